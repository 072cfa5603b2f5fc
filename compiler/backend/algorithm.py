"""Algorithms for an operator: which layers one serves, what it is expected to cost there, and its kernel.

Owns the order among them. A family of kernels lists its algorithms in one place, those that are always good enough
first; an algorithm is one object, so that another one is a file and a line of that list. It must not know any of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from .lowering import Candidates, KernelCall, LowerContext

Layer = TypeVar("Layer")


class Algorithm(ABC, Generic[Layer]):
    """A way to compute the layers of a family, by the description that the family has of one.

    Attributes:
        name: among the candidates of a node, and in the cache of measured times.
        max_share: of the cost of what would be taken without it, up to which it is taken itself.
        measured_share: of the cost of the family's direct algorithm, below which it is offered to measurements though
            it is not taken.
    """

    name: str
    max_share: float = 1.0
    measured_share: float = 0.0

    @abstractmethod
    def applies(self, ctx: LowerContext, layer: Layer) -> bool:
        """Whether it can make a layer's kernel for the target, within the errors that are allowed."""

    def cost(self, ctx: LowerContext, layer: Layer) -> float:
        """Its expected time in times of the family's direct algorithm, by one count of cycles for both."""
        return 1.0

    @abstractmethod
    def lower(self, ctx: LowerContext, layer: Layer) -> KernelCall:
        """The kernel call of a layer that it applies to."""

    def variants(self, ctx: LowerContext, layer: Layer) -> Sequence[Algorithm[Layer]]:
        """Itself with each of the sizes that suit a layer; they apply where it does."""
        return (self,)


def candidates(algorithms: Sequence[Algorithm[Layer]], ctx: LowerContext, layer: Layer) -> Candidates:
    """The algorithms that can serve a layer, by name, the one expected to be fastest first.

    They come in turn: the first that applies is taken, a later one in its place where it costs at most `max_share` of
    it, and is left to measurements or dropped otherwise.
    """
    order: list[Algorithm[Layer]] = []
    least = math.inf
    for algorithm in algorithms:
        for variant in algorithm.variants(ctx, layer) if algorithm.applies(ctx, layer) else ():
            cost = variant.cost(ctx, layer)
            if not order or cost <= variant.max_share * least:
                order.insert(0, variant)
                least = cost
            elif cost < variant.measured_share:
                order.append(variant)
    return {each.name: partial(each.lower, layer=layer) for each in order}
