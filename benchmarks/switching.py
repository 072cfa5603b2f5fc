"""`python -m benchmarks.switching`: from one caller to eight and back, again and again, on one session.

First the steady latency of each load, then the changes, in ten blocks of both: how many requests took more than 1.2 ×
the median of their load's steady state, how many do so in the steady state itself, how the first request after a change
fares, the worst; that every request was answered, and every answer is bit for bit the first one for its input. ONNX
Runtime does the same in a process of its own, before or after, never meanwhile.

    python -m benchmarks.switching resnet18 ncf --json switching.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.models import MODELS
from parax.compiler.contest import quantile_of
from parax.errors import InternalError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from .children import records_of
from .command import add_compiling, command_line, finish
from .defaults_side import SIDES
from .open_models import feed_options, open_model
from .peers import show
from .peers_table import Table

Record = dict[str, Any]
Visits = Sequence[Sequence[float]]
SLOW = 1.2
"""Times the steady median: what a request should not take more than."""
_ROOT = Path(__file__).parents[1]


def measure_model(name: str, folder: Path, args: argparse.Namespace) -> Record:
    """The figures of each side; see `figures`.

    Raises:
        InternalError: a side ended early; ResourceLimit: the compilation took too long.
    """
    files = open_model(name, folder, args.small, args.flags, args.timeout)
    record: Record = {}
    for side in args.sides:
        task = {"side": side, "name": name, "small": args.small, "model": files.file(side), "callers": args.callers,
                "feed_options": feed_options(name), "switches": args.switches, "seconds": args.seconds,
                "visit": args.visit, "least": args.least, "blocks": args.blocks}  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.switching_side", json.dumps(task)]
        *_, found = records_of(command, args.timeout, _ROOT) or [{"problem": "it said nothing"}]
        if "problem" in found:
            raise InternalError("ended", where=f"{side}, {name}", found=found["problem"])
        record[side] = figures(found)
    return record


def figures(found: Mapping[str, Any]) -> Record:
    """What one side's seconds say; see `of_load` for each load."""
    kept = {key: found[key] for key in ("asked", "lost", "differing", "failures")}
    complete = {load: [block for block in blocks if any(block["steady"]) and any(block["switching"])]
                for load, blocks in found["loads"].items()}  # fmt: skip
    return {**kept, "loads": {load: of_load(blocks) for load, blocks in complete.items() if blocks}}


def of_load(blocks: Sequence[Mapping[str, Visits]]) -> Record:
    """One load: medians and tails in seconds, and requests against the median of their own block's steady state.

    Args:
        blocks: of each, seconds of the answered requests in the "steady" state and while "switching", visit by visit.
    """
    middles = [quantile_of(_all(block["steady"]), 0.5) for block in blocks]

    def seconds(what: str) -> list[float]:
        return [t for block in blocks for t in _all(block[what])]

    def ratios(what: str) -> list[float]:
        return [t / middle for block, middle in zip(blocks, middles, strict=True) for t in _all(block[what])]

    first = [visit[0] / middle for block, middle in zip(blocks, middles, strict=True)
             for visit in block["switching"] if visit]  # fmt: skip
    return {
        **{
            what: {
                "requests": len(seconds(what)), "p50": quantile_of(seconds(what), 0.5),
                "p99": quantile_of(seconds(what), 0.99), "slow": _slow(ratios(what)), "worst": max(ratios(what)),
            }
            for what in ("steady", "switching")
        },
        "slow_first": _slow(first), "first": len(first),
    }  # fmt: skip


def _all(visits: Visits) -> list[float]:
    return [t for visit in visits for t in visit]


def _slow(ratios: Sequence[float]) -> int:
    return sum(ratio > SLOW for ratio in ratios)


def tables(models: Mapping[str, Record], switches: int) -> list[Table]:
    """Latencies, a row per model, side and load; answers, a row per model and side."""
    times, answers = [], []
    for name, sides in models.items():
        for side, record in sides.items():
            for load, found in record["loads"].items():
                cells = [cell for what in ("steady", "switching") for cell in _cells(found[what])]
                times.append([name, side, load, *cells, f"{found['slow_first'] / found['first']:.1%}"])
            answers.append([name, side, *(f"{record[key]:,}" for key in ("asked", "lost", "differing"))])
    each = ("p50 ms", "p99 ms", f"> {SLOW} ×", "share", "worst ×")
    columns = ("model", "side", "callers", f"steady {each[0]}", *each[1:], f"changing {each[0]}", *each[1:],
               "of the first")  # fmt: skip
    title = f"From one caller to several and back {switches} times; × is the median of the load's steady state"
    return [
        Table(title, columns, times, n_words=3),
        Table("Answers", ("model", "side", "requests", "lost", "not the first one's bits"), answers, n_words=2),
    ]


def _cells(found: Record) -> list[str]:
    return [
        f"{found['p50'] * 1e3:.3g}", f"{found['p99'] * 1e3:.3g}", f"{found['slow']:,} of {found['requests']:,}",
        f"{found['slow'] / found['requests']:.1%}", f"{found['worst']:.1f}",
    ]  # fmt: skip


def problems(models: Mapping[str, Record]) -> list[str]:
    """Lost and differing answers of parax, a line per model."""
    found = [(name, record["parax"]) for name, record in models.items() if "parax" in record]
    return [
        f"{name}: {record['lost']} lost, {record['differing']} differing {'; '.join(record['failures'][:3])}".strip()
        for name, record in found
        if record["lost"] or record["differing"]
    ]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 1 where parax lost a request, or two answers to one input differ."""
    args = _arguments(argv)
    keys = ("switches", "callers", "seconds", "visit", "least", "blocks", "small")
    settings = {key: getattr(args, key) for key in keys}
    document: Record = {"cpu": cpu_name(), "settings": settings, "models": {}}
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix=f"parax-{name}-") as folder:
            document["models"][name] = measure_model(name, Path(folder), args)
        if args.json:
            write_whole(args.json, json.dumps(document, indent=1))
    show(tables(document["models"], args.switches))
    failures = problems(document["models"])
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(bool(failures))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("switching", __doc__)
    parser.add_argument("models", nargs="+", choices=list(MODELS), metavar="MODEL", help="of the model list")
    parser.add_argument("--sides", nargs="+", default=["parax", "onnxruntime"], choices=list(SIDES), metavar="SIDE",
                        help=f"of {', '.join(SIDES)} (default: the first two)")
    parser.add_argument("--switches", type=int, default=100, metavar="N", help="there and back (default 100)")
    parser.add_argument("--callers", type=int, default=8, metavar="N", help="of the greater load (default 8)")
    parser.add_argument("--seconds", type=float, default=0.6, metavar="S",
                        help="of each load's steady state in a block (default 0.6)")
    parser.add_argument("--blocks", type=int, default=10, metavar="N",
                        help="of steady states and then changes, each held against its own (default 10)")
    parser.add_argument("--visit", type=float, default=0.1, metavar="S", help="from change to change (default 0.1)")
    parser.add_argument("--least", type=int, default=3, metavar="N",
                        help="requests of each caller from change to change (default 3)")
    add_compiling(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
