"""`parax reduce MODEL.onnx --expect wrong`: the smallest part of a model that still shows a mistake."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...files import check_writable, write_whole
from . import arguments
from .console import Console, Progress, Table
from .inputs import RANDOM, read_array
from .models import check_model

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from ..shrinking.candidates import Case
    from ..shrinking.trial import Expectation

NAME = "reduce"
HELP = "make a model small that is wrong, slow, crashes or is refused, so that it still is"
EXPECTATIONS = ("wrong", "slow", "crash", "refused")
INPUTS_TRIED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--expect", choices=EXPECTATIONS, required=True, dest="shows",
                        help="what the model shows. wrong: an output differs from the other implementation's; slow: it "
                             "takes --factor times as long as ONNX Runtime, on one core each; crash: parax dies, hangs "
                             "or has an internal error; refused: it is not compiled or not run")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="small.onnx",
                        help="where the small model goes, its inputs beside it as .npz "
                             "(default MODEL.small.onnx)")  # fmt: skip
    parser.add_argument("--test", type=Path, metavar="FILE.py", help="also write a test that passes once it is mended")
    parser.add_argument("--against", choices=("onnxruntime", "reference"),
                        help="the other implementation (default: onnxruntime where installed)")  # fmt: skip
    parser.add_argument("--input", type=arguments.assignment, action="append", default=[], metavar="NAME=@FILE.npy",
                        help="an input that shows it; repeatable (default: random ones, of which "
                             f"{INPUTS_TRIED} are tried)")  # fmt: skip
    parser.add_argument("--batch", type=arguments.positive, default=1, metavar="B", help="rows per input (default 1)")
    parser.add_argument("--seed", type=arguments.natural, default=0, help="of the random inputs (default 0)")
    parser.add_argument("--factor", type=arguments.seconds, default=2.0, metavar="F",
                        help="with --expect slow (default 2)")  # fmt: skip
    parser.add_argument("--rtol", type=float, help="allowed |Δ| per |reference| (default: by type, 1e-3 for f32)")
    parser.add_argument("--atol", type=float,
                        help="allowed |Δ| besides (default: by type, 1e-4 of root mean square for f32)")  # fmt: skip
    parser.add_argument("--timeout", type=arguments.seconds, default=60.0, metavar="S",
                        help="seconds that one trial may take; after that it hangs (default 60)")  # fmt: skip
    parser.add_argument("--max-seconds", type=arguments.seconds, default=600.0, metavar="S",
                        help="the time after which it ends with what it has (default 600)")  # fmt: skip
    arguments.add_compile_options(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Reduce, write, show; the exit code is 2 when the whole model does not show what is expected."""
    from ..shrinking.reduction import Reduction, Sizes, fitting, whole_model
    from ..shrinking.written import test_text, write_model

    check_model(args.model)
    wanted = _expectation(args)
    output = args.output or Path(f"{args.model.stem}.small.onnx")
    for path in (output, output.with_suffix(".npz"), *([args.test] if args.test else [])):
        check_writable(path)
    sizes = Sizes(arguments.fixed_dims(args.dim), args.batch, range(args.seed, args.seed + INPUTS_TRIED))
    reduction = Reduction(whole_model(args.model), wanted, args.timeout)
    try:
        with console.progress(args.model.name) as progress:
            progress("does the model show it?", 0.0)
            whole = reduction.start(_given(args), sizes)
            small = reduction.run(whole, args.max_seconds, _teller(whole, progress))
    finally:
        reduction.close()
    assert reduction.shown is not None
    beside = write_model(small, output)
    if args.test:
        wanted = type(wanted)(**{**vars(wanted), "options": fitting(wanted.options, small.model)})
        write_whole(args.test, test_text(small, wanted, reduction.shown, "reduced"))
    nodes = [f"{node.op_type}({', '.join(node.input)})" for node in small.model.graph.node]
    document = {
        "model": args.model, "expect": args.shows, "problem": f"{reduction.shown.status}: {reduction.shown.problem}",
        "nodes": len(nodes), "nodes_before": whole.size[0], "output": output, "inputs": beside, "test": args.test,
        "graph": nodes,
    }  # fmt: skip
    rows = [["shows", document["problem"]], ["nodes", f"{whole.size[0]} → {len(nodes)}"],
            ["elements", f"{whole.size[2]:,} → {small.size[2]:,}"], *(["", text] for text in nodes[:20]),
            ["written", ", ".join(str(p) for p in (output, beside, args.test) if p)]]  # fmt: skip
    console.result(document, Table(f"{args.model.name}, reduced", ("", ""), rows))
    return 0


def _expectation(args: argparse.Namespace) -> Expectation:
    from ..frontend.oracle import best_kind
    from ..shrinking.trial import SLOW, Expectation, without_watching

    if args.shows == SLOW and args.against == "reference":
        raise UsageError("onnx.reference is no measure of speed", where="--against reference", hint="leave it out")
    kind = "onnxruntime" if args.shows == SLOW else args.against or best_kind()
    return Expectation(args.shows, kind, without_watching(arguments.compile_options(args)), args.rtol, args.atol,
                       args.factor)  # fmt: skip


def _given(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """The arrays of --input.

    Raises:
        UsageError: one is no file.
    """
    found = {}
    for name, text in args.input:
        if text == RANDOM:
            continue
        if not text.startswith("@"):
            raise UsageError("an array's file is needed here", where=f"--input {name}", expected="@FILE.npy",
                             found=text)  # fmt: skip
        found[name] = read_array(name, text[1:])
    return found


def _teller(whole: Case, progress: Progress) -> Callable[[Case, int], None]:
    """Shows the size so far; how much is left to find, nobody knows: the share is of nodes that are gone."""

    def tell(case: Case, tried: int) -> None:
        nodes, _, elements = case.size
        progress(f"{nodes} of {whole.size[0]} nodes, {elements:,} elements, {tried} tried",
                 1 - nodes / max(whole.size[0], 1))  # fmt: skip

    return tell
