"""What `parax inspect --costs` shows: of each operator its arithmetic, its bytes, its intensity and what bounds it."""

from __future__ import annotations

import argparse
import math

from .console import Console, Table, size
from .partition import compile_options


def show(args: argparse.Namespace, console: Console) -> int:
    """The operators of a model; the exit code."""
    from ..planner.operator_costs import operator_costs
    from ..planning import planner_of

    found = operator_costs(planner_of(args.file, compile_options(args), args.machine), args.batch)
    rows = [
        [name, cost.kind, f"{cost.flops / 1e6:,.2f}", size(cost.nbytes), size(cost.weight_nbytes),
         _intensity(cost.intensity), cost.bound(found.machine)]
        for name, cost in (*found.operators, ("all", found.total))
    ]  # fmt: skip
    rows[-1][1] = ""
    machine = f"{found.machine.name}{' (simulated)' if found.machine.simulated else ''}"
    columns = ("operator", "kind", "Mflop", "moved", "of it weights", "elements per multiply-add", "bound by")
    console.result(found.to_json(), Table(str(args.file), ("", ""), [["machine", machine], ["rows", found.rows]]),
                   Table("costs", columns, rows))  # fmt: skip
    return 0


def _intensity(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "–"
