"""`parax bench plan.bin|MODEL.onnx [--vs onnxruntime]`: throughput and latency, side by side where asked."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...errors import UsageError
from ...files import check_writable, write_whole
from ...runtime.cpu import cpu_name
from . import arguments
from .console import Console, Table, plain
from .doctor import package_versions
from .made_up import random_arrays, sizes_of, still_open
from .models import check_model, is_plan, open_plan

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan
    from ..contest import Contestant, Ratio

NAME = "bench"
HELP = "measure throughput and latency, interleaved with other runtimes where asked"
ROUNDS = 7
QUANTILES = (0.5, 0.9, 0.99)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("plan", type=Path, metavar="plan.bin|MODEL.onnx")
    parser.add_argument("--vs", choices=("onnxruntime", "openvino"), action="append", default=[],
                        help="also measure this runtime, interleaved; repeatable")  # fmt: skip
    parser.add_argument("--model", type=Path, metavar="MODEL.onnx", help="the plan's model, for --vs with a plan.bin")
    parser.add_argument("--duration", type=arguments.seconds, default=5.0, metavar="S",
                        help="seconds for each contestant, over all rounds (default 5)")  # fmt: skip
    parser.add_argument("--rounds", type=arguments.positive, default=ROUNDS, metavar="R",
                        help=f"rounds in which everybody runs once (default {ROUNDS})")  # fmt: skip
    parser.add_argument("--batch", type=arguments.positive, default=1, metavar="B",
                        help="rows per request where the model leaves that open (default 1)")  # fmt: skip
    parser.add_argument("--seed", type=arguments.natural, default=0, help="of the random inputs (default 0)")
    parser.add_argument("--export-json", type=Path, metavar="FILE", help="write everything measured to a file")
    parser.add_argument("--cores-per-instance", type=arguments.positive, metavar="X",
                        help="cores of one instance (default: both 1 and all are tried)")  # fmt: skip
    arguments.add_batch_window(parser)
    arguments.add_compile_options(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Measure and show; the exit code."""
    from ...runtime.topology import choose_cores
    from .. import contest
    from ..sizes import naming_sizes

    model = args.model if is_plan(args.plan) else args.plan
    if args.model is not None:
        check_model(args.model)
    if args.vs and model is None:
        raise UsageError("other runtimes need the ONNX model", where="--vs", hint="give --model MODEL.onnx")
    if args.export_json:
        check_writable(args.export_json)
    plan = open_plan(args.plan, arguments.compile_options(args), console)
    cores = choose_cores(args.cores)
    sizes = sizes_of(plan, still_open(plan, args.dim), args.batch, console)
    inputs = random_arrays(plan, sizes, args.seed)
    rows = rows_of(plan, sizes, inputs)
    with ExitStack() as stack, naming_sizes(plan.manifest, sizes):
        contestants = line_up(plan, model, inputs, rows, cores, args)
        for contestant in contestants:
            stack.callback(contestant.close)
        with console.progress("bench") as progress:
            contest.hold(contestants, args.duration, args.rounds, progress)
    ratios = [(peer, ratio) for peer in dict.fromkeys(args.vs) for ratio in contest.compare(contestants, "parax", peer)]
    document = described(args, inputs, rows, cores, contestants, ratios)
    if args.export_json:
        write_whole(args.export_json, json.dumps(plain(document), indent=1))
    for contestant in document["contestants"]:
        del contestant["seconds"]
    console.result(document, *tables(args.plan.name, rows, contestants, ratios))
    return 0


def rows_of(plan: Plan, sizes: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> int:
    """How many rows of the batch a request holds: 1 where there is no batch."""
    from ..sizes import batch_symbol

    rows = batch_symbol(plan.manifest)
    if rows is not None and rows in sizes:
        return sizes[rows]
    leading = {array.shape[0] for array in inputs.values() if array.ndim}
    return leading.pop() if len(leading) == 1 else 1


def line_up(
    plan: Plan, model: Path | None, inputs: Mapping[str, np.ndarray], rows: int, cores: tuple[int, ...],
    args: argparse.Namespace,
) -> list[Contestant]:  # fmt: skip
    """Everybody who takes part, parax first."""
    from . import peers

    width, n = args.cores_per_instance, len(cores)
    widths = [width] if width else list(dict.fromkeys((n, 1)))
    setups = [(args.instances or n // w, w) for w in widths]
    if any(instances * w > n or instances == 0 for instances, w in setups):
        raise UsageError("more cores wanted than there are", where="--instances, --cores-per-instance", found=n)
    mode = None if args.mode == "auto" else args.mode
    contestants = peers.parax(plan, inputs, rows, cores, setups, mode=mode)
    if args.batch_window is not None:  # the same crowd with and without
        for window in (None, args.batch_window):
            contestants += peers.parax(plan, inputs, rows, cores, setups, peers.CROWD * n, mode=mode, window=window)
    for peer in dict.fromkeys(args.vs):
        assert model is not None
        contestants += (peers.onnxruntime if peer == "onnxruntime" else peers.openvino)(model, inputs, rows, cores)
    return contestants


def tables(name: str, rows: int, contestants: list[Contestant], ratios: list[tuple[str, Ratio]]) -> list[Table]:
    """What --format table prints."""
    lines = [
        [c.side, c.setup, f"{c.rate:,.1f}", f"±{c.spread / 2:.1%}", *(f"{c.latency(q) * 1e3:.3f}" for q in QUANTILES)]
        for c in contestants
    ]
    columns = ("runtime", "set-up", "items/s", "spread", "p50 ms", "p90 ms", "p99 ms")
    result = [Table(f"{name}, {rows} row{'s' if rows > 1 else ''} a request", columns, lines)]
    if ratios:
        against = [
            [peer, r.what, r.ours, r.theirs, f"{r.middle:.3f}", f"{r.least:.3f}..{r.greatest:.3f}"]
            for peer, r in ratios
        ]
        names = ("against", "what", "parax", "peer", "ratio", "over the rounds")
        result.append(Table("parax ÷ peer, each at its best; above 1 parax is faster", names, against))
    return result


def described(
    args: argparse.Namespace, inputs: Mapping[str, np.ndarray], rows: int, cores: tuple[int, ...],
    contestants: list[Contestant], ratios: list[tuple[str, Ratio]],
) -> dict[str, Any]:  # fmt: skip
    """Everything measured, and on what."""
    packages = ("numpy", "llvmlite", *dict.fromkeys(args.vs))
    return {
        "plan": args.plan, "rows": rows, "inputs": {name: list(array.shape) for name, array in inputs.items()},
        "machine": {"cpu": cpu_name(), "cores": cores, "kernel": platform.release()},
        "versions": {"parax": __version__, **package_versions(packages), "python": platform.python_version()},
        "duration": args.duration, "rounds": args.rounds,
        "contestants": [
            {"runtime": c.side, "setup": c.setup, "clients": len(c.calls), "items_per_second": c.rate,
             "spread": c.spread, "rates": c.rates, "seconds": c.seconds,
             **{f"p{q * 100:.0f}": c.latency(q) for q in QUANTILES}}
            for c in contestants
        ],
        "ratios": [{"against": peer, **vars(ratio)} for peer, ratio in ratios],
    }  # fmt: skip
