"""Which values are known to be no less than +0 (nor -0), whatever the inputs are; they may be NaN."""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node, Value
from ...ir.ops.arithmetic import Abs, Max, Min, Pow
from ...ir.ops.elementwise import Add, Cast, Div, Exp, Identity, Mul, Sigmoid, Sqrt
from ...ir.ops.filling import Expand
from ...ir.ops.pool import GlobalAveragePool
from ...ir.ops.reduce import ReduceL1, ReduceL2, ReduceMean, ReduceSum, ReduceSumSquare
from ...ir.ops.shape import Reshape, Squeeze, Transpose, Unsqueeze
from ...ir.ops.softmax import Softmax

MOST_DEPTH = 8
"""Operators that are looked back through."""
_ALWAYS = (Abs, Exp, ReduceL1, ReduceL2, ReduceSumSquare, Sigmoid, Softmax)
_AS_OPERANDS = (Add, Mul, Div, Max, Min, Sqrt, Cast, Identity, Reshape, Transpose, ReduceMean, ReduceSum, Unsqueeze,
                        Squeeze, Expand, GlobalAveragePool)  # fmt: skip


def never_negative(v: Value, depth: int = MOST_DEPTH) -> bool:
    """Whether every element is +0 or more, or NaN."""
    if v.data is not None:
        return v.data.dtype.kind == "f" and not bool(np.signbit(v.data).any())
    node = v.producer
    if node is None or depth == 0 or not v.tensor.dtype.is_float:
        return False
    if isinstance(node.op, _ALWAYS) or _is_square(node):
        return True
    floats = [x for x in node.operands if x.tensor.dtype.is_float]  # others are shapes and axes
    return isinstance(node.op, _AS_OPERANDS) and bool(floats) and all(never_negative(x, depth - 1) for x in floats)


def _is_square(node: Node) -> bool:
    if isinstance(node.op, Pow):
        exponent = node.operands[1].data
        return exponent is not None and exponent.size == 1 and exponent.item() == 2
    return isinstance(node.op, Mul) and node.operands[0] is node.operands[1]
