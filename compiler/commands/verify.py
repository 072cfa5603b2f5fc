"""`parax verify MODEL.onnx`: parax against ONNX Runtime or onnx.reference on fresh random inputs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import AccuracyMismatch, UsageError
from . import arguments, layers
from .console import Console, Table
from .made_up import sizes_of, still_open
from .models import check_model, open_plan
from .outcomes import shown_result

if TYPE_CHECKING:
    from ..compare import Difference

NAME = "verify"
HELP = "compare a model's results with another implementation's on random inputs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--plan", type=Path, metavar="plan.bin", help="verify this plan of the model; else compile now")
    parser.add_argument("--against", choices=("onnxruntime", "reference"),
                        help="the other implementation (default: onnxruntime where installed)")  # fmt: skip
    parser.add_argument("--layerwise", action="store_true",
                        help="the error of every layer that has a result in this build, and the first that departs; "
                             "the fused node where that is gets opened")  # fmt: skip
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="with --layerwise: draw the error by layer")
    parser.add_argument("--n", type=arguments.positive, default=5, metavar="N", help="random inputs (default 5)")
    parser.add_argument("--batch", type=arguments.positive, default=1, metavar="B", help="rows per input (default 1)")
    parser.add_argument("--seed", type=arguments.natural, default=0, help="of the random inputs (default 0)")
    parser.add_argument("--rtol", type=float, help="allowed |Δ| per |reference| (default: by type, 1e-3 for f32)")
    parser.add_argument("--atol", type=float,
                        help="allowed |Δ| besides (default: by type, 1e-4 of root mean square for f32)")  # fmt: skip
    arguments.add_compile_options(parser)
    parser.add_argument("--cores-per-instance", type=arguments.positive, metavar="X", help="cores of one instance")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Compare and show; the exit code is 5 when any output differs."""
    from ..check import Procedure, compare_with_oracle
    from ..frontend.oracle import best_kind

    check_model(args.model)
    if args.layerwise:
        return layers.execute(args, console)
    if args.picture:
        raise UsageError("only layers are drawn", where="--picture", hint="add --layerwise")
    plan = open_plan(args.plan or args.model, arguments.compile_options(args), console)
    how = Procedure(
        kind=args.against or best_kind(), times=args.n, seed=args.seed,
        sizes=sizes_of(plan, still_open(plan, args.dim), args.batch, console),
        instances=args.instances, cores_per_instance=args.cores_per_instance,
        rtol=args.rtol, atol=args.atol,
    )  # fmt: skip
    runs = list(compare_with_oracle(plan, args.model, how))
    passed = all(d.passed for differences in runs for d in differences)
    document = {
        "model": args.model, "against": how.kind, "n": args.n, "passed": passed,
        "runs": [[{**vars(d), "passed": d.passed} for d in differences] for differences in runs],
    }  # fmt: skip
    for warning in dict.fromkeys(f"output {d.name}: {d.warning}" for found in runs for d in found if d.warning):
        console.note(warning)
    console.result(document, _table(args.model.name, how.kind, runs, passed))
    return 0 if passed else AccuracyMismatch.exit_code


def _table(name: str, kind: str, runs: list[list[Difference]], passed: bool) -> Table:
    rows = [
        [number, d.name, f"{d.max_abs:.3g}", f"{d.worst:.3g}", "" if d.top1 is None else f"{d.top1:.1%}",
         shown_result(d)]
        for number, differences in enumerate(runs, 1) for d in differences
    ]  # fmt: skip
    columns = ("input", "output", "max |Δ|", "of allowed", "top-1", "result")
    return Table(f"{name} against {kind}: {'same' if passed else 'DIFFERENT'}", columns, rows)
