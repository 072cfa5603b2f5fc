"""What a decision about a model's precision hands on."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ...runtime.plan import Plan
from ..ir.graph import Graph
from ..ir.ops.quantization import QuantizeLinear
from .record import PrecisionRecord


@dataclass(frozen=True)
class Decided:
    """A plan at the precision that was decided.

    Attributes:
        graph: what the plan was made of, in operators that other runtimes have. record: what was decided, and why.
    """

    plan: Plan
    graph: Graph
    record: PrecisionRecord


def refuse_quantized(graph: Graph) -> None:
    """Raises UsageError if activations of the model are rounded already."""
    if any(isinstance(node.op, QuantizeLinear) for node in graph):
        raise UsageError("the model is quantised already", where="--precision", hint="compile it as it is")
