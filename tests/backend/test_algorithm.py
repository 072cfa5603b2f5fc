"""The order among algorithms: what is taken, what is left to measurements, what is not offered."""

from __future__ import annotations

import pytest

from backend.harness import host_targets
from parax.compiler.backend.algorithm import Algorithm, candidates
from parax.compiler.backend.lowering import KernelCall, LowerContext, WeightStore


class Fixed(Algorithm[int]):
    """Serves layers up to a number, at a fixed cost."""

    def __init__(
        self, name: str, cost: float, max_share: float = 0.9, measured_share: float = 0.0, most: int = 9
    ) -> None:
        self.name, self.fixed, self.most = name, cost, most
        self.max_share, self.measured_share = max_share, measured_share

    def applies(self, ctx: LowerContext, layer: int) -> bool:
        return layer <= self.most

    def cost(self, ctx: LowerContext, layer: int) -> float:
        return self.fixed

    def lower(self, ctx: LowerContext, layer: int) -> KernelCall:
        raise NotImplementedError


DIRECT = Fixed("direct", 1)


@pytest.mark.parametrize("others, expected", [
    ([Fixed("a", 0.89)], ["a", "direct"]),
    ([Fixed("a", 0.91)], ["direct"]),
    ([Fixed("a", 0.91, measured_share=1.2)], ["direct", "a"]),
    ([Fixed("a", 1.2, measured_share=1.2)], ["direct"]),
    ([Fixed("a", 0.8), Fixed("b", 0.75)], ["a", "direct"]),  # not 0.9 times what is taken by then
    ([Fixed("a", 0.8), Fixed("b", 0.7)], ["b", "a", "direct"]),
    ([Fixed("a", 0.5, most=3)], ["direct"]),
], ids=range(7))  # fmt: skip
def test_an_algorithm_is_taken_where_it_gains_enough(others: list[Fixed], expected: list[str]) -> None:
    ctx = LowerContext(host_targets()[0], (), WeightStore())
    assert list(candidates([DIRECT, *others], ctx, 5)) == expected


def test_the_first_that_applies_is_taken_whatever_it_costs() -> None:
    ctx = LowerContext(host_targets()[0], (), WeightStore())
    small, large = Fixed("small", 7, most=3), Fixed("large", 9)
    assert list(candidates([small, large], ctx, 5)) == ["large"]
    assert list(candidates([small, large], ctx, 2)) == ["small"]


def test_variants_are_offered_each_by_itself() -> None:
    class Sizes(Fixed):
        def variants(self, ctx: LowerContext, layer: int) -> list[Fixed]:
            return [Fixed("two", 0.8), Fixed("four", 0.6)]

    ctx = LowerContext(host_targets()[0], (), WeightStore())
    assert list(candidates([DIRECT, Sizes("sizes", 0)], ctx, 5)) == ["four", "two", "direct"]
