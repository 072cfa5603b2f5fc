"""Graphs run on calibration data: compiled plainly, request after request, and what they gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...env import NATIVE, read
from ...errors import IncompatiblePlan, UsageError
from ...runtime.plan import Plan
from ..driver import compile_graph
from ..ir.graph import Graph
from ..options import FULL, CompileOptions
from .samples import Request

MOST_LEVEL = 2  # of optimisation: nothing is searched for a plan that is thrown away


def trial_options(options: CompileOptions, precision: str = FULL) -> CompileOptions:
    """The options of plans that run here and are thrown away."""
    return replace(
        options, precision=precision, opt_level=min(options.opt_level, MOST_LEVEL), targets=(NATIVE,), dump=None,
        print_after=(), check=0, profile=False, hint="latency", mode="sequential", instances=None, delay_groups=None,
        delay_seconds=None,
    )  # fmt: skip


def trial_plan(graph: Graph, options: CompileOptions, precision: str = FULL) -> Plan:
    """A plan of a copy of the graph, for this machine."""
    return compile_graph(graph.clone(), trial_options(options, precision))


def results(plan: Plan, requests: Sequence[Request]) -> Iterator[dict[str, np.ndarray]]:
    """The outputs of every request, in order.

    Raises:
        UsageError: the plan is for another machine.
    """
    try:
        session = plan.session()
    except IncompatiblePlan as error:
        hint = f"add --target {NATIVE}" if read("PARAX_TARGET") == NATIVE else "unset PARAX_TARGET"
        raise UsageError("accuracy is measured on this machine, which cannot run the plan", where="--target",
                         found=error, hint=hint) from error  # fmt: skip
    with session:
        for request in requests:
            yield session.run(request.inputs)
