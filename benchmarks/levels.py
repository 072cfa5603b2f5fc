"""`python -m benchmarks.levels`: where -O 2, which only counts, picks other kernels than -O 3, which measures.

Every model is compiled at both levels, with a calibrated machine and nothing else kept, and both plans run by
`parax.load(PLAN).session().run(x)` in processes of their own, turn by turn. Printed are the ratio of their speeds, and
every kind of disagreement: what was counted to be best, what was measured to be, how often, and what it costs, as a
share of the time that all nodes with a choice take.

    python -m benchmarks.levels --models resnet50 bert-base --json levels.json
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from examples.models import MODELS
from parax.runtime.cpu import cpu_name
from parax.runtime.loading import load

from .answering import Answering
from .children import Record
from .command import add_compiling, command_line, finish, measure_each
from .defaults import LISTED
from .defaults_side import LOADS
from .open_models import feed_options, open_model
from .peers import show
from .peers_table import Table

LEVELS = ("2", "3")
SHOWN = ("1 × B=1", "1 × B=8", "4 × B=1")
"""The loads that are measured by default."""


def measure_model(name: str, folder: Path, args: argparse.Namespace) -> Record:
    """Seconds of compiling, rates by load and level, and the disagreements."""
    record: Record = {"seconds": {}}
    plans: list[Path] = []
    with ExitStack() as stack:
        sides: dict[str, Answering] = {}
        for level in LEVELS:
            place = folder / level
            place.mkdir()
            files = open_model(name, place, args.small, ["-O", level, *args.flags], args.timeout)
            plans.append(files.plan)
            record["seconds"][level] = files.compile["seconds"]
            task = {"side": "parax", "name": name, "small": args.small, "loads": args.loads, "model": str(files.plan),
                    "outputs": str(place / "outputs.npz"), "feed_options": feed_options(name)}  # fmt: skip
            sides[level] = Answering(f"-O {level}", "benchmarks.defaults_side", task)
            stack.callback(sides[level].close)
        record["loads"] = {each: _rates(sides, each, args) for each in args.loads}
    record |= disagreements(*map(choices_of, plans))
    return record


def _rates(sides: Mapping[str, Answering], name: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Items a second by level, round by round."""
    for side in sides.values():
        side.ask(do=name, seconds=args.seconds)  # warms up, and lets sessions learn
    rates: dict[str, list[float]] = {level: [] for level in sides}
    for _ in range(args.rounds):
        for level, side in sides.items():
            rates[level].append(side.ask(do=name, seconds=args.seconds)["rate"])
    return rates


def choices_of(plan: Path) -> dict[str, Record]:
    """Node → its choice, of the plan's first target."""
    return {choice["node"]: choice for choice in load(plan).manifest.provenance.get("choices", [])}


def disagreements(counted: Mapping[str, Record], measured: Mapping[str, Record]) -> Record:
    """How many nodes had a choice that was measured, and each kind of disagreement with its cost.

    Returns:
        nodes: with measured candidates. lost: the share of their time that other picks cost. kinds: "a → b" (counted →
        measured) → count, and lost as above.
    """
    best = picked = 0.0
    n_nodes = 0
    kinds: dict[str, Record] = defaultdict(lambda: {"count": 0, "lost": 0.0, "nodes": []})
    for node, choice in measured.items():
        seconds, before = choice["seconds"], counted.get(node, {}).get("kernel")
        if None in seconds.values() or before not in seconds:
            continue
        n_nodes += 1
        best += seconds[choice["kernel"]]
        picked += seconds[before]
        if before != choice["kernel"]:
            kind = kinds[f"{before} → {choice['kernel']}"]
            kind["count"] += 1
            kind["lost"] += seconds[before] - seconds[choice["kernel"]]
            kind["nodes"].append(node)
    for kind in kinds.values():
        kind["lost"] /= best
    return {"nodes": n_nodes, "lost": picked / best - 1 if best else 0.0, "kinds": dict(kinds)}


def tables(models: Mapping[str, Record]) -> list[Table]:
    """The levels side by side, and the disagreements."""
    loads = list(next(iter(models.values()))["loads"])
    speed, kinds = [], []
    for name, record in models.items():
        ratios = [_ratio(record["loads"][each]) for each in loads]
        differ = sum(kind["count"] for kind in record["kinds"].values())
        seconds = [f"{record['seconds'][level]:.1f}" for level in LEVELS]
        speed.append([name, *ratios, f"{differ} of {record['nodes']}", f"{record['lost']:.1%}", *seconds])
        for kind, found in sorted(record["kinds"].items(), key=lambda item: -item[1]["lost"]):
            kinds.append([name, kind, str(found["count"]), f"{found['lost']:.1%}", found["nodes"][0]])
    return [
        Table("-O 2 ÷ -O 3, items a second; seconds of compiling",
              ("model", *loads, "other kernels", "their cost", "-O 2", "-O 3"), speed),
        Table("Other kernels: counted → measured", ("model", "kernels", "nodes", "cost", "for example"), kinds),
    ]  # fmt: skip


def _ratio(rates: Mapping[str, Sequence[float]]) -> str:
    return f"{median(a / b for a, b in zip(*(rates[level] for level in LEVELS), strict=True)):.2f}"


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    args = _arguments(argv)
    document: Record = {"cpu": cpu_name(), "seconds": args.seconds, "rounds": args.rounds, "models": {}}
    measure_each(args, document, lambda name, folder: measure_model(name, folder, args))
    show(tables(document["models"]))
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("levels", __doc__)
    parser.add_argument("--models", nargs="+", default=list(LISTED), choices=list(MODELS), metavar="NAME",
                        help="of the model list (default: those of the README's table)")
    parser.add_argument("--loads", nargs="+", default=list(SHOWN), choices=list(LOADS), metavar="LOAD",
                        help=f"of {', '.join(LOADS)} (default: {', '.join(SHOWN)})")
    parser.add_argument("--rounds", type=int, default=5, metavar="R", help="in which each side runs once (default 5)")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="of a side in a round (default 0.5)")
    add_compiling(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
