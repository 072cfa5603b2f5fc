"""One side of `python -m benchmarks.training` in a process of its own: steps when asked to.

`python -m benchmarks.training_side JSON` makes a trainer, says so, and reads commands, a line each: `step` → the loss
and the seconds of one step, `peak` → bytes of the largest resident size since the last `peak` (the first time, since
the start) and of what was resident before anything of the model was made. Owns the process; knows nothing of ratios.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: its idle threads must not take our cores

from parax.runtime.topology import choose_cores

from .training_cases import CASES, MOMENTUM, RATE

Step = Callable[[], float]


def main() -> None:
    """Entry point."""
    task = json.loads(sys.argv[1])
    made = PARTS[task["side"]]()
    before = _status("VmRSS")
    step = made(Path(task["model"]), task["name"])
    _say({"cores": len(choose_cores(None))})
    for line in sys.stdin:
        if line.strip() == "peak":
            _say({"peak": _status("VmHWM"), "before": before})
            Path("/proc/self/clear_refs").write_text("5")  # the largest resident size counts from here
            continue
        began = time.perf_counter()
        loss = step()
        _say({"loss": loss, "seconds": time.perf_counter() - began})


def _parax() -> Callable[[Path, str], Step]:
    import parax
    import parax.compiler.trainer  # loads on first use, which is no memory of the model's

    def made(model: Path, name: str) -> Step:
        case = CASES[name]
        optimizer = parax.SGD(lr=RATE, momentum=MOMENTUM)
        trainer = parax.Trainer(model, loss=case.loss, optimizer=optimizer, batch=case.batch)
        data = case.data(name)
        return lambda: trainer.step(data)["loss"]

    return made


def _torch(compiled: bool) -> Callable[[Path, str], Step]:
    import torch

    from .training_torch import module_of

    def made(model: Path, name: str) -> Step:
        torch.set_num_threads(len(choose_cores(None)))
        module, loss_of = module_of(model, name)
        optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM, fused=True)
        values = {key: torch.from_numpy(value) for key, value in CASES[name].data(name).items()}
        labels, run = values.pop("labels"), torch.compile(module) if compiled else module
        values = {key: v.to(memory_format=torch.channels_last) if v.dim() == 4 else v for key, v in values.items()}

        def step() -> float:
            optimizer.zero_grad()
            loss = loss_of(run(*values.values()), labels)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    return made


PARTS: dict[str, Callable[[], Callable[[Path, str], Step]]] = {
    "parax": _parax, "torch": lambda: _torch(False), "torch-compile": lambda: _torch(True)
}  # fmt: skip
"""Each side: loads its libraries and returns what makes its step."""


def _status(key: str) -> int:
    """Bytes of a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
