"""What a decision about a model's precision hands on."""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.plan import Plan
from ..ir.graph import Graph
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
