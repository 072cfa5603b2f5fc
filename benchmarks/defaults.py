"""`python -m benchmarks.defaults`: what somebody gets who sets nothing, against ONNX Runtime and OpenVINO likewise.

Every model is taken as it is exported, with its open dimensions open, compiled by `paraxc` and run by
`parax.load(PLAN).session().run(x)`; the peers get `InferenceSession(model)` and `compile_model(model)` at f32. Loads:
one caller with one row and with eight, four and eight callers with one row, four callers with sizes from 1 to 16. Each
side has a process of its own and runs alone for some tenths of a second at a time, turn by turn.

    python -m benchmarks.defaults --models resnet50 bert-base --json defaults.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from examples.models import MODELS, build
from parax.compiler.contest import quantile_of
from parax.errors import InternalError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from .command import command_line, finish, new_file
from .defaults_side import LOADS, SIDES
from .peers import show
from .peers_case import disagreement
from .peers_fresh import compiled
from .peers_table import Table

Record = dict[str, Any]
OPEN = {"bert-base": {"length": "S"}}
"""Options that leave open what exporters leave open."""
LISTED = ("resnet50", "resnet18", "vgg16", "mobilenet-v1", "mobilenet-v2", "inception-v3", "inception-bn", "unet",
          "bert-base", "vit", "gnmt", "word-lm", "ncf")  # fmt: skip


class Side:
    """A process that runs one side."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        """Start it and wait until it has answered once."""
        self.name = task["side"]
        command = [sys.executable, "-m", "benchmarks.defaults_side", json.dumps(task)]
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in close)
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       stderr=self._messages)  # fmt: skip
        self._answer()

    def ask(self, **what: Any) -> Record:
        """One line there, one line back."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(what) + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> Record:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._child.wait()
            self._messages.seek(0)
            raise InternalError("ended", where=self.name, found=self._messages.read().strip()[-400:])
        return dict(json.loads(line))

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        self._messages.close()


def measure_model(name: str, folder: Path, args: argparse.Namespace) -> Record:
    """Every side under every load; figures by side, and by load."""
    model, plan = folder / "model.onnx", folder / "plan.bin"
    options = OPEN.get(name, {})
    model.write_bytes(build(name, small=args.small, options=options).SerializeToString())
    record: Record = {"compile": {**compiled(model, plan, args.flags, args.timeout), "model": model.stat().st_size}}
    sides: list[Side] = []
    try:
        for side in args.sides:
            task = {"side": side, "name": name, "small": args.small, "loads": args.loads,
                    "model": str(plan if side == "parax" else model), "outputs": str(folder / f"{side}.npz"),
                    "feed_options": {key: MODELS[name].options[key] for key in options}}  # fmt: skip
            sides.append(Side(task))
        record["problem"] = _differences(name, folder, args.sides)
        record["loads"] = {load: _rounds(sides, load, args) for load in args.loads}
        record["resident"] = {side.name: side.ask(do="memory")["resident"] for side in sides}
    finally:
        for side in sides:
            side.close()
    return record


def _differences(name: str, folder: Path, sides: Sequence[str]) -> str:
    found = {side: list(np.load(folder / f"{side}.npz").values()) for side in sides}
    first = found["onnxruntime" if "onnxruntime" in found else sides[-1]]
    problems = [disagreement(found[side], first, MODELS[name].classifies)[0] for side in sides]
    return "; ".join(f"{side}: {problem}" for side, problem in zip(sides, problems, strict=True) if problem)


def _rounds(sides: Sequence[Side], load: str, args: argparse.Namespace) -> Record:
    """Rates round by round and quantiles over all calls, by side."""
    for side in sides:
        side.ask(do=load, seconds=args.seconds)  # warms up, and lets sessions learn
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(args.rounds):
        for side in sides:
            found = side.ask(do=load, seconds=args.seconds)
            rates[side.name].append(found["rate"])
            seconds[side.name] += found["seconds"]
    return {
        name: {"rates": rates[name], "p50": quantile_of(seconds[name], 0.5), "p99": quantile_of(seconds[name], 0.99)}
        for name in rates
    }


def ratio(load: Record) -> float:
    """parax's rate by the better peer's, the median of the rounds' own ratios."""
    peers = [name for name in load if name != "parax"]
    best = max(peers, key=lambda name: median(load[name]["rates"]))
    return median(a / b for a, b in zip(load["parax"]["rates"], load[best]["rates"], strict=True))


def tail(load: Record) -> float:
    """parax's p99 by the better peer's."""
    return float(load["parax"]["p99"] / min(load[name]["p99"] for name in load if name != "parax"))


def tables(models: Mapping[str, Record], sides: Sequence[str]) -> list[Table]:
    """Throughput ratios, p99 ratios, and memory, a row per model."""
    loads = list(next(iter(models.values()))["loads"])
    speed, slow, memory = [], [], []
    for name, record in models.items():
        speed.append([name, *(f"{ratio(record['loads'][load]):.2f}" for load in loads)])
        slow.append([name, *(f"{tail(record['loads'][load]):.2f}" for load in loads)])
        made = record["compile"]
        memory.append([name, *(f"{record['resident'][side] / 1e6:.0f}" for side in sides),
                       f"{made['peak'] / 1e6:.0f}", f"{made['peak'] / made['model']:.1f}"])  # fmt: skip
    return [
        Table("Items a second: parax ÷ the better peer", ("model", *loads), speed),
        Table("p99 of a call: parax ÷ the better peer", ("model", *loads), slow),
        Table("Resident MB", ("model", *sides, "paraxc's peak", "÷ model"), memory),
    ]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 1 where results differ."""
    args = _arguments(argv)
    document: Record = {"cpu": cpu_name(), "seconds": args.seconds, "rounds": args.rounds, "models": {}}
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix=f"parax-{name}-") as folder:
            document["models"][name] = measure_model(name, Path(folder), args)
        print(f"{name}: {document['models'][name]['problem'] or 'measured'}", file=sys.stderr, flush=True)
        if args.json:
            write_whole(args.json, json.dumps(document, indent=1))
    show(tables(document["models"], args.sides))
    return int(any(record["problem"] for record in document["models"].values()))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("defaults", __doc__)
    parser.add_argument("--models", nargs="+", default=list(LISTED), choices=list(MODELS), metavar="NAME",
                        help="of the model list (default: those of the README's table)")
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=list(LOADS), metavar="LOAD",
                        help=f"of {', '.join(LOADS)} (default: all)")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES), metavar="SIDE",
                        help="parax and at least one of onnxruntime, openvino (default: all)")
    parser.add_argument("--rounds", type=int, default=5, metavar="R", help="in which each side runs once (default 5)")
    parser.add_argument("--seconds", type=float, default=0.8, metavar="S", help="of a side in a round (default 0.8)")
    parser.add_argument("--small", action="store_true", help="small editions: a test of the tool, no measurement")
    parser.add_argument("--flags", nargs="*", default=[], metavar="FLAG", help="for paraxc (default: none)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of a compilation (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every figure there")
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
