"""One side of `python -m benchmarks.training` in a process of its own: steps when asked to.

`python -m benchmarks.training_side JSON` makes a trainer and answers as `training_protocol` says. Owns which sides
there are in this interpreter; knows nothing of ratios.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: its idle threads must not take our cores

from parax.runtime.topology import choose_cores

from .training_cases import CASES, MOMENTUM, RATE
from .training_protocol import Step, serve

Maker = Callable[[Path, str], Step]
"""Makes the step of (the model's file, its name in the list)."""


def main() -> None:
    """Entry point."""
    task = json.loads(sys.argv[1])
    made = PARTS[task["side"]]()
    serve(lambda: made(Path(task["model"]), task["name"]), len(choose_cores(None)))


def _parax(precision: str) -> Maker:
    import parax
    import parax.compiler.trainer  # loads on first use, which is no memory of the model's

    def made(model: Path, name: str) -> Step:
        case = CASES[name]
        optimizer = parax.SGD(lr=RATE, momentum=MOMENTUM)
        trainer = parax.Trainer(model, loss=case.loss, optimizer=optimizer, batch=case.batch, precision=precision)
        data = case.data(name)
        return lambda: trainer.step(data)["loss"]

    return made


def _torch(compiled: bool = False, halves: bool = False) -> Maker:
    """`halves`: under autocast, which multiplies bf16, with the loss outside of it, in f32."""
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
            with torch.autocast("cpu", torch.bfloat16, enabled=halves):
                result = run(*values.values())
            loss = loss_of(result.float(), labels)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    return made


def _jax() -> Maker:
    from .training_jax import step_of

    return step_of


PARTS: dict[str, Callable[[], Maker]] = {
    "parax-fp32": lambda: _parax("fp32"), "parax-bf16": lambda: _parax("bf16"),
    "torch": _torch, "torch-compile": lambda: _torch(compiled=True), "torch-bf16": lambda: _torch(halves=True),
    "jax": _jax,
}  # fmt: skip
"""Each side: loads its libraries and returns what makes its step."""


if __name__ == "__main__":
    main()
