"""`python -m benchmarks.switching`: from one caller to eight and back, again and again, on one session.

First the steady latency of each load, then the changes: how many requests took more than 1.2 × the median of their
load's steady state, how many do so in the steady state itself, how the first request after a change fares, the worst;
that every request was answered, and every answer is bit for bit the first one for its input. ONNX Runtime does the same
in a process of its own, before or after, never meanwhile.

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
from .command import command_line, finish, new_file
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
                "visit": args.visit, "least": args.least}  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.switching_side", json.dumps(task)]
        *_, found = records_of(command, args.timeout, _ROOT) or [{"problem": "it said nothing"}]
        if "problem" in found:
            raise InternalError("ended", where=f"{side}, {name}", found=found["problem"])
        record[side] = figures(found)
    return record


def figures(found: Mapping[str, Any]) -> Record:
    """What one side's seconds say; see `of_load` for each load."""
    kept = {key: found[key] for key in ("asked", "lost", "differing", "failures")}
    complete = [load for load, visits in found["switching"].items() if any(visits) and any(found["steady"][load])]
    return {**kept, "loads": {load: of_load(found["steady"][load], found["switching"][load]) for load in complete}}


def of_load(steady: Visits, switching: Visits) -> Record:
    """One load: medians and tails in seconds, shares of slow requests, the worst ones against the steady median.

    Args:
        steady, switching: seconds of the answered requests, visit by visit.
    """
    calm, changing = [t for visit in steady for t in visit], [t for visit in switching for t in visit]
    first = [visit[0] for visit in switching if visit]
    middle = quantile_of(calm, 0.5)

    def slow(times: Sequence[float]) -> int:
        return sum(t > SLOW * middle for t in times)

    return {
        "p50": middle, "p99": quantile_of(calm, 0.99), "slow": slow(calm) / len(calm), "worst": max(calm) / middle,
        "changing": {
            "requests": len(changing), "p50": quantile_of(changing, 0.5), "p99": quantile_of(changing, 0.99),
            "slow": slow(changing), "worst": max(changing) / middle, "first": slow(first) / len(first),
        },
    }  # fmt: skip


def tables(models: Mapping[str, Record], switches: int) -> list[Table]:
    """Latencies, a row per model, side and load; answers, a row per model and side."""
    times, answers = [], []
    for name, sides in models.items():
        for side, record in sides.items():
            for load, found in record["loads"].items():
                now = found["changing"]
                times.append([
                    name, side, load, f"{found['p50'] * 1e3:.3g}", f"{found['p99'] * 1e3:.3g}", f"{found['slow']:.1%}",
                    f"{found['worst']:.1f}", f"{now['p50'] * 1e3:.3g}", f"{now['p99'] * 1e3:.3g}",
                    f"{now['slow']:,} of {now['requests']:,}", f"{now['slow'] / now['requests']:.1%}",
                    f"{now['first']:.1%}", f"{now['worst']:.1f}",
                ])  # fmt: skip
            answers.append([name, side, *(f"{record[key]:,}" for key in ("asked", "lost", "differing"))])
    columns = ("model", "side", "callers", "steady p50 ms", "p99 ms", f"> {SLOW} ×", "worst ×", "changing p50 ms",
               "p99 ms", f"> {SLOW} ×", "share", "of the first", "worst ×")  # fmt: skip
    title = f"From one caller to several and back {switches} times; × is the median of the load's steady state"
    return [
        Table(title, columns, times, n_words=3),
        Table("Answers", ("model", "side", "requests", "lost", "not the first one's bits"), answers, n_words=2),
    ]


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
    settings = {key: getattr(args, key) for key in ("switches", "callers", "seconds", "visit", "least", "small")}
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
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of a steady state (default 3)")
    parser.add_argument("--visit", type=float, default=0.1, metavar="S", help="from change to change (default 0.1)")
    parser.add_argument("--least", type=int, default=3, metavar="N",
                        help="requests of each caller from change to change (default 3)")
    parser.add_argument("--small", action="store_true", help="small editions: a test of the tool, no measurement")
    parser.add_argument("--flags", nargs="*", default=[], metavar="FLAG", help="for paraxc (default: none)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of each process (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every figure there")
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
