"""Operators whose result shape only the run can tell, because a parameter is computed: handed to the runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from .calls import Call
from .upgrades import ALWAYS, Results, upgrade

PARAMETERS: dict[str, Sequence[int]] = {
    "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Expand": (1,), "Tile": (1,), "Reshape": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "Range": (0, 1, 2), "TopK": (1,), "OneHot": (1,), "Split": (1,), "Resize": (1, 2, 3),
    "Col2Im": (1, 2), "MaxUnpool": (2,),
}  # fmt: skip
"""Operator → the operands that decide the result's shape."""


def _is_open(value: Value | None) -> bool:
    return value is not None and value.known is None and value.data is None


@upgrade(*PARAMETERS, up_to=ALWAYS)
def at_runtime(call: Call, g: GraphBuilder) -> Results:
    """Parameters that are neither constant nor arithmetic on shapes."""
    if call.op == "Resize" and str(call.attributes.get("coordinate_transformation_mode")) != "tf_crop_and_resize":
        call.set_input(1, None)
    if not any(_is_open(call.input(i)) for i in PARAMETERS[call.op]) and not _is_antialiased(call):
        return None
    settings = {name: _plain(value) for name, value in call.attributes.items()}
    made = g.AtRuntime(*call.inputs, n_outputs=call.n_outputs, kind=call.op, settings=json.dumps(settings))
    return made if isinstance(made, list) else [made]


def _is_antialiased(call: Call) -> bool:
    return call.op == "Resize" and bool(call.attributes.get("antialias", 0))


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if isinstance(value, (tuple, list)) else value


@upgrade("ConstantOfShape", up_to=ALWAYS)
def constant_of_shape(call: Call, g: GraphBuilder) -> Results:
    """A scalar expanded."""
    if not _is_open(call.input(0)):
        return None
    value = np.asarray(call.attributes.get("value", np.zeros(1, np.float32))).reshape(())
    return [g.AtRuntime(g.const(value), call.need(0), kind="Expand")]
