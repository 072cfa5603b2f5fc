"""Which operators add up so much that the order of the sum, which nobody says, decides their results' last bits."""

from __future__ import annotations

from .graph import Node
from .ops.attention import DotProductAttention
from .ops.base import Contraction, Operator
from .ops.normalization import Normalize
from .ops.quantization import IntegralConv, IntegralMatMul
from .ops.recurrent import Recurrent
from .ops.softmax import LogSoftmax, Softmax
from .types import TensorType

_SUMS: tuple[type[Operator], ...] = (Contraction, Normalize, Softmax, LogSoftmax, Recurrent, DotProductAttention)


def is_open_sum(node: Node) -> bool:
    """Whether results have no single right rounding: what follows need not be rounded step by step either."""
    t = node.outputs[0].type
    is_float = isinstance(t, TensorType) and t.dtype.is_float
    return is_float and isinstance(node.op, _SUMS) and not isinstance(node.op, (IntegralConv, IntegralMatMul))
