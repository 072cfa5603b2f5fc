"""What `parax verify --layerwise` shows: the error of every layer, the first that departs, a picture."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ...errors import AccuracyMismatch, UsageError
from ...files import check_writable, write_whole
from . import arguments
from .console import Console, Table
from .made_up import sizes_of, still_open
from .outcomes import shown_result

if TYPE_CHECKING:
    from ...runtime.plan import Plan
    from ..layerwise import Layer, Report

COLUMNS = ("layer", "node", "computed by", "max |Δ|", "relative", "ULPs", "of allowed", "result")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Compare and show; the exit code is 5 when a layer departs.

    Raises:
        UsageError: with --plan; or the picture cannot be drawn or written.
    """
    from ..check import Procedure
    from ..frontend.oracle import best_kind
    from ..layerwise import compare_layers

    if args.plan:
        raise UsageError("a plan has no intermediate tensors", where="--plan", hint="leave out --plan or --layerwise")
    if args.picture:
        check_writable(args.picture)
    how = Procedure(
        kind=args.against or best_kind(), times=args.n, seed=args.seed, sizes={},
        instances=args.instances, cores_per_instance=args.cores_per_instance, rtol=args.rtol, atol=args.atol,
    )  # fmt: skip

    def sizes(plan: Plan) -> dict[str, int]:
        return sizes_of(plan, still_open(plan, args.dim), args.batch, console)

    with console.progress(args.model.name) as progress:
        report = compare_layers(args.model, arguments.compile_options(args), how, sizes, progress)
    if args.picture:
        from ...runtime.charts import error_chart

        write_whole(args.picture, error_chart(f"{args.model.name} against {how.kind}", _points(report)))
    document = {
        "model": args.model, "against": how.kind, "n": args.n, "passed": report.first is None,
        "first": None if report.first is None else report.first.name, "only_fused": report.alone or None,
        "layers": [_layer_document(layer) for layer in report.layers],
    }  # fmt: skip
    console.result(document, _table(args.model.name, how.kind, report))
    if report.first is not None:
        console.note(first_to_depart(report))
    return 0 if report.first is None else AccuracyMismatch.exit_code


def first_to_depart(report: Report) -> str:
    """The first layer that departs, in words."""
    first = report.first
    assert first is not None and first.difference is not None
    text = f"first to depart: {first.name} ({first.node or 'no node'})"
    if first.opened:
        text += ", inside of a fused node, which was opened"
    elif report.alone:
        text += f"; {report.alone} one by one do not depart: the fused kernel does"
    elif first.kernel:
        text += f", computed by {first.kernel}"
    return f"{text}: {first.difference.problem}"


def _points(report: Report) -> list[dict[str, Any]]:
    return [
        {"number": number, "layer": layer.name, "node": layer.node, "relative": layer.relative,
         "departs": layer.departs}
        for number, layer in enumerate(report.layers, 1) if layer.difference is not None
    ]  # fmt: skip


def _layer_document(layer: Layer) -> dict[str, Any]:
    d = layer.difference
    return {
        "name": layer.name, "node": layer.node, "kernel": layer.kernel, "opened": layer.opened,
        "compared": d is not None, "max_abs": d and d.max_abs, "relative": layer.relative if d else None,
        "ulps": layer.ulps if d else None, "worst": d and d.worst, "passed": d and d.passed,
        "problem": d and d.problem,
    }  # fmt: skip


def _table(name: str, kind: str, report: Report) -> Table:
    rows: list[list[object]] = []
    for layer in report.layers:
        d = layer.difference
        by = f"{layer.kernel}, opened" if layer.opened else layer.kernel
        if d is None:
            rows.append([layer.name, layer.node, by, "", "", "", "", "has no value of its own" if not by else
                         "kept in another form"])  # fmt: skip
        else:
            rows.append([layer.name, layer.node, by, f"{d.max_abs:.3g}", f"{layer.relative:.3g}", f"{layer.ulps:.3g}",
                         f"{d.worst:.3g}", shown_result(d)])  # fmt: skip
    outcome = "same" if report.first is None else "DIFFERENT"
    return Table(f"{name} against {kind}, layer by layer: {outcome}", COLUMNS, rows)
