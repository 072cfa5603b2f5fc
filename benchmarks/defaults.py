"""`python -m benchmarks.defaults`: what somebody gets who sets nothing, against ONNX Runtime and OpenVINO likewise.

Every model is taken as it is exported, with its open dimensions open, compiled by `paraxc` and run by
`parax.load(PLAN).session().run(x)`; the peers get `InferenceSession(model)` and `compile_model(model)` at f32. Loads:
one caller with one row and with eight, four and eight callers with one row, four callers with sizes from 1 to 16. Each
side has a process of its own and runs alone for some tenths of a second at a time, turn by turn. With `--beside` a
neighbour is busy on the same cores meanwhile; with `--quota` each side has a control group of so much processor time.

    python -m benchmarks.defaults --models resnet50 bert-base --json defaults.json
    python -m benchmarks.defaults --models resnet18 ncf --beside runtime --quota 1.5
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from examples.models import MODELS
from parax.compiler.contest import quantile_of
from parax.runtime.topology import choose_cores

from .answering import Answering
from .children import Record
from .command import add_compiling, command_line, finish, measure_each, repeating
from .defaults_side import LOADS, SIDES
from .neighbour import NEIGHBOURS, neighbour
from .open_models import feed_options, open_model
from .peers import machine, show, versions
from .peers_case import disagreement
from .peers_table import Table
from .quota import cpu_quota, quota

LISTED = ("resnet50", "resnet18", "vgg16", "mobilenet-v1", "mobilenet-v2", "inception-v3", "inception-bn", "unet",
          "bert-base", "vit", "gnmt", "word-lm", "ncf")  # fmt: skip


def measure_model(name: str, folder: Path, args: argparse.Namespace) -> Record:
    """Every side under every load; figures by side, and by load."""
    files = open_model(name, folder, args.small, args.flags, args.timeout)
    record: Record = {"compile": files.compile}
    with ExitStack() as stack:
        beside = stack.enter_context(neighbour(args.beside, folder, args.timeout))
        sides, groups = [], []
        for side in args.sides:
            groups.append(stack.enter_context(cpu_quota(args.quota)))
            task = {"side": side, "name": name, "small": args.small, "loads": args.loads, "model": files.file(side),
                    "outputs": str(folder / f"{side}.npz"), "feed_options": feed_options(name)}  # fmt: skip
            sides.append(Answering(side, "benchmarks.defaults_side", task, groups[-1].before))
            stack.callback(sides[-1].close)
        record["problem"] = _differences(name, folder, args.sides)
        record["loads"] = {load: _rounds(sides, load, beside, args) for load in args.loads}
        record["resident"] = {side.name: side.ask(do="memory")["resident"] for side in sides}
        record["throttled"] = {side: group.throttled() for side, group in zip(args.sides, groups, strict=True)}
    return record


def _differences(name: str, folder: Path, sides: Sequence[str]) -> str:
    found = {side: list(np.load(folder / f"{side}.npz").values()) for side in sides}
    first = found["onnxruntime" if "onnxruntime" in found else sides[-1]]
    problems = [disagreement(found[side], first, MODELS[name].classifies)[0] for side in sides]
    return "; ".join(f"{side}: {problem}" for side, problem in zip(sides, problems, strict=True) if problem)


def _rounds(sides: Sequence[Answering], load: str, beside: Answering | None, args: argparse.Namespace) -> Record:
    """Rates round by round and quantiles over all calls, by side; the neighbour's runs a second meanwhile."""
    for side in sides:
        side.ask(do=load, seconds=args.seconds)  # warms up, and lets sessions learn
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    left: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(args.rounds):
        for side in sides:
            began, before = time.perf_counter(), _runs(beside)
            found = side.ask(do=load, seconds=args.seconds)
            left[side.name].append((_runs(beside) - before) / (time.perf_counter() - began))
            rates[side.name].append(found["rate"])
            seconds[side.name] += found["seconds"]
    return {
        name: {"rates": rates[name], "p50": quantile_of(seconds[name], 0.5), "p99": quantile_of(seconds[name], 0.99),
               "neighbour": left[name] if beside else []}
        for name in rates
    }  # fmt: skip


def _runs(beside: Answering | None) -> int:
    return int(beside.ask()["runs"]) if beside else 0


def ratio(load: Record, what: str = "rates") -> float:
    """parax's rate by the better peer's, the median of the rounds' own ratios.

    Args:
        what: "neighbour" for the neighbour's rates beside those two.
    """
    peers = [name for name in load if name != "parax"]
    best = max(peers, key=lambda name: median(load[name]["rates"]))
    return median(a / b for a, b in zip(load["parax"][what], load[best][what], strict=True) if b)


def tail(load: Record) -> float:
    """parax's p99 by the better peer's."""
    return float(load["parax"]["p99"] / min(load[name]["p99"] for name in load if name != "parax"))


def circumstances(document: Mapping[str, Any]) -> str:
    """What the sides ran beside and within, for a table's caption."""
    words = [NEIGHBOURS[document["beside"]]]
    words += [f"each in a control group of {document['quota']:g} cores"] if document["quota"] else []
    return "".join(f", {each}" for each in words if each)


def tables(document: Mapping[str, Any]) -> list[Table]:
    """Throughput ratios, p99 ratios, what was left to a neighbour, what a quota took, memory: a row per model."""
    models: Mapping[str, Record] = document["models"]
    sides: Sequence[str] = document["sides"]
    loads = list(next(iter(models.values()))["loads"])
    memory = []
    for name, record in models.items():
        made = record["compile"]
        memory.append([name, *(f"{record['resident'][side] / 1e6:.0f}" for side in sides),
                       f"{made['peak'] / 1e6:.0f}", f"{made['peak'] / made['model']:.1f}"])  # fmt: skip
    by_load: list[tuple[str, Callable[[Record], float]]] = [
        ("Items a second: parax ÷ the better peer", ratio),
        ("p99 of a call: parax ÷ the better peer", tail),
    ]
    if document["beside"] != "nothing":
        by_load.append(("Runs a second of the neighbour: beside parax ÷ beside the better peer",
                        lambda load: ratio(load, "neighbour")))  # fmt: skip
    made_tables = [
        Table(title + circumstances(document), ("model", *loads),
              [[name, *(f"{value(record['loads'][load]):.2f}" for load in loads)] for name, record in models.items()])
        for title, value in by_load
    ]  # fmt: skip
    if document["quota"]:
        rows = [[name, *(f"{record['throttled'][side]:.0%}" for side in sides)] for name, record in models.items()]
        made_tables.append(Table("Periods in which the group's time ran out", ("model", *sides), rows))
    return [*made_tables, Table("Resident MB", ("model", *sides, "paraxc's peak", "÷ model"), memory)]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 1 where results differ."""
    args = _arguments(argv)
    options = ("models", "loads", "sides", "rounds", "seconds", "beside", "quota", "flags", "small")
    document: Record = {
        "command": repeating("defaults", args, _arguments([]), options), "date": time.strftime("%Y-%m-%d"),
        "machine": machine(choose_cores(None)), "versions": versions(args.sides), "sides": args.sides,
        "seconds": args.seconds, "rounds": args.rounds, "beside": args.beside, "quota": args.quota, "models": {},
    }  # fmt: skip
    measure_each(args, document, lambda name, folder: measure_model(name, folder, args))
    show(tables(document))
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
    parser.add_argument("--beside", default="nothing", choices=list(NEIGHBOURS), metavar="WHAT",
                        help="a neighbour on the same cores that runs a small model in a loop meanwhile: nothing, "
                             "runtime (ONNX Runtime, whose threads spin) or session (of parax) (default nothing)")
    parser.add_argument("--quota", type=quota, metavar="CORES",
                        help="put each side into a control group of so much processor time, say 1.5 (default: none)")
    add_compiling(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
