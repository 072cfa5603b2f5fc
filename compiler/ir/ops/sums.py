"""Which operators add up so much that the order of the sum, which nobody says, decides their results' last bits."""

from __future__ import annotations

from .attention import DotProductAttention
from .base import Contraction, Operator
from .normalization import Normalize
from .quantization import IntegralConv, IntegralMatMul
from .recurrent import Recurrent
from .softmax import LogSoftmax, Softmax

_SUMS: tuple[type[Operator], ...] = (Contraction, Normalize, Softmax, LogSoftmax, Recurrent, DotProductAttention)


def is_open_sum(op: Operator) -> bool:
    """Whether results have no single right rounding: what follows need not be rounded step by step either."""
    return isinstance(op, _SUMS) and not isinstance(op, (IntegralConv, IntegralMatMul))
