"""`parax verify MODEL.onnx`: parax against ONNX Runtime or onnx.reference on fresh random inputs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import AccuracyMismatch
from . import arguments
from .console import Console, Table
from .models import open_plan

NAME = "verify"
HELP = "compare a model's results with another implementation's on random inputs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--plan", type=Path, metavar="plan.bin", help="verify this plan of the model; else compile now")
    parser.add_argument("--against", choices=("onnxruntime", "reference"),
                        help="the other implementation (default: onnxruntime where installed)")  # fmt: skip
    parser.add_argument("--n", type=arguments.positive, default=5, metavar="N", help="random inputs (default 5)")
    parser.add_argument("--batch", type=arguments.positive, default=1, metavar="B", help="rows per input (default 1)")
    parser.add_argument("--seed", type=arguments.natural, default=0, help="of the random inputs (default 0)")
    parser.add_argument("--rtol", type=float, default=1e-3, help="allowed |Δ| per |reference| (default 1e-3)")
    parser.add_argument("--atol", type=float, default=1e-4, help="allowed |Δ| besides (default 1e-4)")
    arguments.add_compile_options(parser)
    parser.add_argument("--cores-per-instance", type=arguments.positive, metavar="X", help="cores of one instance")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Compare and show; the exit code is 5 when any output differs."""
    from ..check import Procedure, compare_with_oracle
    from ..frontend.oracle import best_kind

    plan = open_plan(args.plan or args.model, arguments.compile_options(args), console)
    sizes = {symbol: size for symbol, size in args.dim if isinstance(size, int)}
    known = {symbol.name for symbol in plan.manifest.symbols}
    how = Procedure(
        kind=args.against or best_kind(), times=args.n, sizes={s: n for s, n in sizes.items() if s in known},
        batch=args.batch, seed=args.seed, instances=args.instances, cores_per_instance=args.cores_per_instance,
        rtol=args.rtol, atol=args.atol,
    )  # fmt: skip
    runs = list(compare_with_oracle(plan, args.model, how))
    rows = [
        [number, d.name, f"{d.max_abs:.3g}", f"{d.worst:.3g}", "" if d.top1 is None else f"{d.top1:.1%}",
         "same" if d.passed else f"DIFFERS {d.problem}"]
        for number, differences in enumerate(runs, 1) for d in differences
    ]  # fmt: skip
    passed = all(d.passed for differences in runs for d in differences)
    document = {
        "model": args.model, "against": how.kind, "n": args.n, "passed": passed, "rtol": how.rtol, "atol": how.atol,
        "runs": [[{**vars(d), "passed": d.passed} for d in differences] for differences in runs],
    }  # fmt: skip
    title = f"{args.model.name} against {how.kind}: {'same' if passed else 'DIFFERENT'}"
    columns = ("input", "output", "max |Δ|", "of allowed", "top-1", "result")
    console.result(document, Table(title, columns, rows))
    return 0 if passed else AccuracyMismatch.exit_code
