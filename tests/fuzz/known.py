"""Where ONNX Runtime is known to be wrong, each with the reason. The list should only shrink.

What onnx.reference computes wrong has a plain definition in `exact` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import onnx

from parax.compiler.shrinking.graphs import all_nodes, uses_of

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
@dataclass(frozen=True)
class Freedom:
    """How much further results may be off than rounding takes them.

    Attributes:
        as_float32: float64 may have been float32 on the way, or the other way round.
        coarse: float64 may be as precise as float32 only, with numbers as great as its own.
        unbounded: numbers of float16 may be greater than its greatest, on the way.
        kept_wide: those may that parax keeps in float32 (`halves`).
        vanishing: operators whose results are 0 where what they divide by overflows.
        loose: operators whose results are off by units of 1, not of themselves.
        without_nan: operators that may leave out what is not a number.
        sequential: poolings that add a window's numbers one after the other, each to the sum of all before it.
        in_blocks: sums are off by as much as parax promises at most. in_sequence: by as much as any order of terms may.
    """

    as_float32: bool = False
    coarse: bool = False
    unbounded: bool = False
    kept_wide: bool = False
    vanishing: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    without_nan: tuple[str, ...] = ()
    sequential: tuple[str, ...] = ()
    in_blocks: bool = False
    in_sequence: bool = False

    def __or__(self, other: Freedom) -> Freedom:
        """What either allows: bools by or, operators of both."""
        both = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Freedom(*(mine or its if isinstance(mine, bool) else (*mine, *its) for mine, its in both))


NONE, AS_FLOAT32, COARSE = Freedom(), Freedom(as_float32=True), Freedom(coarse=True)


@dataclass(frozen=True)
class Cause:
    """Why somebody's results may be further from the model's than rounding takes them.

    Attributes:
        reason: in words. voters: whose. test: nodes that it comes from, among those that an output is computed by.
        freedom: what that may change.
    """

    reason: str
    voters: tuple[str, ...]
    test: Test
    freedom: Freedom


def _is_narrow(node: onnx.NodeProto) -> bool:
    """A number of float64 that has been one of float32, and more than a few binary digits."""
    tensor = next((a.t for a in node.attribute if a.name == "value"), None)
    if node.op_type != "Constant" or tensor is None or tensor.data_type != onnx.TensorProto.DOUBLE:
        return False
    value = onnx.numpy_helper.to_array(tensor)
    return bool(((value == value.astype(np.float32)) & (value * 1024 % 1 != 0)).any())


def window_size(node: Any) -> int:
    """How many numbers a pooling's window has."""
    return math.prod(onnx.helper.get_node_attr_value(node, "kernel_shape"))


MANY = 1024
"""Numbers of a window from which on the order of a sum shows."""
WINDOWS = ("AveragePool",)
EXTREMES = ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "ArgMax", "ArgMin")
DISSENTS = (
    Cause("PyTorch's exporter makes float32 of numbers without axes where PyTorch computes in float64", ("framework",),
          lambda n: n.op_type == "Cast" and onnx.helper.get_node_attr_value(n, "to") == onnx.TensorProto.FLOAT,
          AS_FLOAT32),
    Cause("PyTorch's exporter rounds constants of its own to float32", ("framework",), _is_narrow, COARSE),
    Cause("attributes of ONNX are float32, those of PyTorch float64", ("framework",),
          lambda n: n.op_type in ("LeakyRelu", "Elu"), COARSE),
    Cause("PyTorch's sigmoid is 1 / (1 + exp(-x)), 0 where the exponential overflows", ("framework",),
          lambda n: n.op_type == "Sigmoid", Freedom(vanishing=("Sigmoid",))),
    Cause("ONNX Runtime's sigmoid is a ratio of polynomials behind 1/2", ("onnxruntime", "optimised"),
          lambda n: n.op_type == "Sigmoid", Freedom(loose=("Sigmoid",))),
    Cause("ONNX Runtime stays in float32 from one operator without float16 to the next, where float16 overflows",
          ("onnxruntime", "optimised"), lambda n: True, Freedom(unbounded=True)),
    Cause("others add up many numbers of a window one after the other", ("framework", "onnxruntime", "optimised"),
          lambda n: n.op_type in WINDOWS and window_size(n) >= MANY, Freedom(sequential=WINDOWS)),
    Cause("ONNX Runtime compares with NaN, and keeps what it had", ("onnxruntime", "optimised"),
          lambda n: n.op_type in EXTREMES, Freedom(without_nan=EXTREMES)),
)  # fmt: skip
"""Where others do something else than ONNX says. A cause explains only what it can move a result by."""
LISTS = {"onnxruntime": ONNX_RUNTIME, "optimised": ONNX_RUNTIME}

IMPRECISE = ("HardSwish", "Gelu", "Mish")
"""Operators whose constants other implementations hold in float32, in float64 too: not generated in float64."""


def distrusted(node: onnx.NodeProto, kind: str) -> str:
    """Why an implementation is not asked for this node; "" if it is."""
    return next((reason for reason, test in LISTS.get(kind, ()) if test(node)), "")


def distrusted_model(model: onnx.ModelProto, kind: str) -> str:
    """Why an implementation is not asked for this model; "" if it is."""
    return next((reason for node in all_nodes(model.graph) if (reason := distrusted(node, kind))), "")


def causes(model: onnx.ModelProto, output: str, voter: str) -> list[Cause]:
    """Why somebody's result for an output may be another one than the model's."""
    nodes = list(_ancestors(model.graph, output))
    return [cause for cause in DISSENTS if voter in cause.voters and any(map(cause.test, nodes))]


def _ancestors(graph: onnx.GraphProto, output: str) -> Iterator[onnx.NodeProto]:
    """The nodes that an output is computed by, with those of their bodies, last ones first."""
    needed = {output}
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed |= uses_of(node)
            yield node
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from all_nodes(attribute.g)
