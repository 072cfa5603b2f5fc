"""Which operators add up so much that the order of the sum, which nobody says, decides their results' last bits."""

from __future__ import annotations

from .graph import Node
from .ops.attention import DotProductAttention
from .ops.base import Contraction, Operator
from .ops.contraction import Conv, ConvTranspose, Gemm, IntegralConv, IntegralMatMul, MatMul
from .ops.normalization import Normalize
from .ops.recurrent import Recurrent
from .ops.softmax import LogSoftmax, Softmax
from .types import TensorType, prod

_SUMS: tuple[type[Operator], ...] = (Contraction, Normalize, Softmax, LogSoftmax, Recurrent, DotProductAttention)


def is_open_sum(node: Node) -> bool:
    """Whether results have no single right rounding: what follows need not be rounded step by step either."""
    t = node.outputs[0].type
    is_float = isinstance(t, TensorType) and t.dtype.is_float
    is_sum = isinstance(node.op, _SUMS) and not isinstance(node.op, (IntegralConv, IntegralMatMul))
    return is_float and is_sum and not _is_of_one_product(node)


def _is_of_one_product(node: Node) -> bool:
    """Whether every element of the result is one product and nothing else, which has a right rounding."""
    op = node.op
    if not isinstance(op, (MatMul, Gemm, Conv, ConvTranspose)) or len(node.operands) > 2:
        return False
    a, b = (v.tensor for v in node.operands)
    if isinstance(op, MatMul):
        return a.dims[-1] == 1
    if isinstance(op, Gemm):
        return a.dims[0 if op.transA else 1] == 1
    inputs = b.dims[1] if isinstance(op, Conv) else b.dims[0] // op.group
    return prod((inputs, *b.dims[2:])) == 1
