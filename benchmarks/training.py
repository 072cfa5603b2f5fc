"""`python -m benchmarks.training`: steps of training against other frameworks, interleaved on all cores, from the same
weights.

All take SGD with momentum on one random batch, parax whole or in shards as it does by default. PyTorch runs the same
model eager, channels-last, and by its compiler (`torch-compile`); JAX as one jitted step whose weights are donated;
MXNet 1.9.1 as one symbolic graph, by an interpreter of its own. The fastest is the one the ratio is against. Each side
has a process, of which one works at a time. Losses of the first steps are compared before any time counts; a peer far
slower than the fastest one by then is timed there and left alone. `peak` is the largest resident size during the timed
steps beyond what the process held before it had a model. A peer that cannot take part is left out, in a line that says
why. Owns the procedure.

`--precision bf16` has parax multiply bf16. PyTorch does so under autocast (`torch-bf16`); `parax-fp32` is as ever:

    python -m benchmarks.training --models resnet18 --precision bf16 --peers parax-fp32 torch torch-bf16

    pip install '.[bench-training]' && python -m benchmarks.training --models resnet18 mobilenet-v1

MXNet needs numpy 1.23.5, so it is named by its interpreter:

    python3.11 -m venv mxnet && mxnet/bin/pip install numpy==1.23.5 mxnet==1.9.1
    python -m benchmarks.training --peers torch torch-compile jax mxnet --mxnet mxnet/bin/python
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from parax.errors import InternalError, UsageError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from .cases import ROOT
from .command import command_line, finish, new_file
from .training_cases import CASES
from .training_peers import OWN, PEERS, Absent, Peer, own_side, present
from .training_table import show

COMPARED, MISS = 3, 0.03
"""First steps whose losses must agree, and by how much of a loss: shards have statistics of their own."""
FAR = 4.0
"""Times the fastest peer's step, beyond which a peer is not timed further."""
Record = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured, 1: losses differ."""
    parser = command_line("training", __doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(CASES), default=sorted(CASES), metavar="NAME",
                        help=f"which of {', '.join(sorted(CASES))} (default all)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=8, metavar="N", help="timed steps of each side (default 8)")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=["torch", "jax", "mxnet"], metavar="NAME",
                        help=f"of {', '.join(PEERS)} (default torch, jax and mxnet)")  # fmt: skip
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                        help="of parax's products (default fp32)")  # fmt: skip
    parser.add_argument("--mxnet", metavar="PYTHON", help="the interpreter that has MXNet 1.9.1")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    peers = present(args.peers, args.mxnet)
    rows = [measured(name, peers, args.steps, args.precision) for name in args.models]
    show(rows)
    print(f"{cpu_name()}, {rows[0]['cores']} cores; medians of {args.steps} steps")
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1))
    return 0 if all(row["agrees"] for row in rows) else 1


def measured(name: str, peers: Sequence[Peer], steps: int, precision: str = "fp32") -> Record:
    """The figures of one model. precision: of parax's products.

    Raises:
        UsageError: none of the peers can run it.
    """
    batch = CASES[name].batch
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.onnx"
        write_whole(path, CASES[name].model(name).SerializeToString())
        children = _started(name, path, peers, stack, precision)
        first = [{side: child.ask("step") for side, child in children.items()} for _ in range(COMPARED)]
        agrees = all([_agree(name, number, found) for number, found in enumerate(first)])
        warm = {side: found["seconds"] for side, found in first[-1].items()}
        running = near(warm, FAR)
        for side in running:
            children[side].ask("peak")
        rounds = [{side: children[side].ask("turn")["seconds"] for side in running} for _ in range(steps)]
        peaks = {side: child.ask("peak") for side, child in children.items()}
    seconds = {side: [found[side] for found in rounds] if side in running else [warm[side]] for side in children}
    held = {side: found["peak"] - found["before"] for side, found in peaks.items()}
    return {"model": name, "batch": batch, "agrees": agrees, "cores": children[OWN].cores,
            **compared(seconds, batch), "seconds": seconds, "peaks": held}  # fmt: skip


def near(seconds: Mapping[str, float], far: float) -> list[str]:
    """Sides whose steps are to be timed: parax, and every peer that is not far slower than the fastest one."""
    fastest = min(value for side, value in seconds.items() if side != OWN)
    return [side for side, value in seconds.items() if side == OWN or value <= far * fastest]


def compared(seconds: Mapping[str, Sequence[float]], batch: int) -> Record:
    """Rows a second of each side, and parax's over the fastest peer's: medians, and quartiles over the rounds."""
    rates = {side: batch / float(np.median(times)) for side, times in seconds.items()}
    peer = max((side for side in rates if side != OWN), key=rates.__getitem__)
    ratios = np.array(seconds[peer]) / np.array(seconds[OWN])
    low, high = np.quantile(ratios, [0.25, 0.75])
    return {"peer": peer, "rates": rates, "ratio": float(np.median(ratios)), "rounds": [float(low), float(high)]}


class Child:
    """One side: `cores` that it uses, and what it answers."""

    def __init__(self, side: str, process: subprocess.Popen[str]) -> None:
        """Wait until it is ready. Raises InternalError where it ends before."""
        self._side, self._process = side, process
        self.cores = self._answer()["cores"]

    def ask(self, command: str) -> Record:
        """What it answers to a command; it works meanwhile. Raises InternalError where it ends."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the end of its answers says more
            print(command, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Record:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: Record = json.loads(line)
                return found
        raise InternalError("ended", where=f"side {self._side}", found=f"exit code {self._process.wait()}")


def _started(
    name: str, path: Path, peers: Sequence[Peer], stack: ExitStack, precision: str
) -> dict[str, Child]:  # fmt: skip
    """Every side's process, parax's last; a peer that cannot run the model is left out with a line."""
    children = {}
    for peer in peers:
        try:
            children[peer.name] = stack.enter_context(started(peer.name, peer.command(name, path)))
        except Absent as why:
            print(f"{name}: without {peer.name}: {why}", file=sys.stderr)
    if not children:
        raise UsageError("no peer is left to compare with", where=name, hint="see --peers, and what each needs")
    task = json.dumps({"side": f"{OWN}-{precision}", "name": name, "model": str(path)})
    children[OWN] = stack.enter_context(started(OWN, own_side(task)))
    return children


@contextmanager
def started(side: str, command: Sequence[str]) -> Iterator[Child]:
    """A side in a process of its own, which ends with the block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Child(side, process)
        finally:
            process.kill()


def _agree(name: str, number: int, found: Mapping[str, Record]) -> bool:
    """Whether the losses of a step do: every peer's with parax's."""
    own = found[OWN]["loss"]
    others = {side: record["loss"] for side, record in found.items() if side != OWN}
    off = {side: loss for side, loss in others.items() if not abs(own - loss) <= MISS * abs(loss)}
    for side, loss in off.items():
        print(f"{name}: losses differ at step {number}: {side} {loss:.5g}, parax {own:.5g}", file=sys.stderr)
    return not off


if __name__ == "__main__":
    finish(main)
