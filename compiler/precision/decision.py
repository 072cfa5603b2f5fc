"""What a decision about a model's precision hands on."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import AccuracyMismatch
from ...runtime.plan import Plan
from ..ir.graph import Graph
from .record import PrecisionRecord, percent


@dataclass(frozen=True)
class Decided:
    """A plan at the precision that was decided.

    Attributes:
        graph: what the plan was made of, in operators that other runtimes have. record: what was decided, and why.
    """

    plan: Plan
    graph: Graph
    record: PrecisionRecord


def too_much(what: str, metric: str, n_held_back: int, budget: float, drop: float, hint: str) -> AccuracyMismatch:
    """The error of a precision that was asked for and loses more than the budget on so many samples held back.

    Args:
        what: loses it, in words, with the verb.
    """
    return AccuracyMismatch(
        f"{what} too much by {metric} on {n_held_back} samples held back", expected=f"{percent(budget)} at most",
        found=percent(drop), hint=hint)  # fmt: skip
