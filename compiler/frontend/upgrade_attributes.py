"""Upgrades in which attributes became inputs: axes, sizes, bounds, paddings."""

from __future__ import annotations

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from .calls import Call
from .upgrades import upgrade


@upgrade("Squeeze", "Unsqueeze", "ReduceSum", up_to=12)
@upgrade("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
         "ReduceLogSumExp", "ReduceSumSquare", up_to=17)  # fmt: skip
def axes_to_input(call: Call, g: GraphBuilder) -> None:
    """axes attribute → second input."""
    axes = call.pop("axes")
    if axes is not None:
        call.set_input(1, g.const(np.array(axes, np.int64)))
