"""Where ONNX Runtime is known to be wrong, each with the reason. The list should only shrink.

What onnx.reference computes wrong has a plain definition in `exact` instead.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from parax.compiler.shrinking.graphs import all_nodes

Test = Callable[[onnx.NodeProto], bool]


def _is_deep(node: onnx.NodeProto) -> bool:
    return any(len(a.ints) > (4 if a.name == "pads" else 2) for a in node.attribute)


ONNX_RUNTIME: tuple[tuple[str, Test], ...] = (
    ("ONNX Runtime takes a variance as a difference of squares, and the root of what is below 0",
     lambda n: n.op_type == "MeanVarianceNormalization"),
    ("ONNX Runtime takes the greatest end of a backward slice as none",
     lambda n: n.op_type == "Slice" and len(n.input) > 4),
    ("ONNX Runtime computes in float32 in every type", lambda n: n.op_type == "Shrink"),
    ("ONNX Runtime moves its sum of squares along, and keeps what large channels left in it",
     lambda n: n.op_type == "LRN"),
    ("ONNX Runtime loses its place where blocks have more than two axes",
     lambda n: n.op_type == "Col2Im" and _is_deep(n)),
)  # fmt: skip
LISTS = {"onnxruntime": ONNX_RUNTIME}

IMPRECISE = ("HardSwish", "Gelu", "Mish")
"""Operators whose constants other implementations hold in float32, in float64 too: not generated in float64."""


def distrusted(node: onnx.NodeProto, kind: str) -> str:
    """Why an implementation is not asked for this node; "" if it is."""
    return next((reason for reason, test in LISTS.get(kind, ()) if test(node)), "")


def distrusted_model(model: onnx.ModelProto, kind: str) -> str:
    """Why an implementation is not asked for this model; "" if it is."""
    return next((reason for node in all_nodes(model.graph) if (reason := distrusted(node, kind))), "")
