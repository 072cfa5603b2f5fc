"""LAMB: Adam's step, as long for each tensor as the tensor is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Value
from ..sums import sum_of
from .adam import Adam
from .base import Slots, Terms

LINE = 16  # at most so many numbers of a vector are one line, all of one tensor


@dataclass(frozen=True)
class LAMB(Adam):
    """p ← p - lr · |p| / |u| · u with u = m̂ / (√v̂ + eps) + weight_decay · p; |·| is of a tensor, and 0 / 0 counts as 1.

    The ratio is 1 where one of the norms is 0. m̂ and v̂ are Adam's. (You et al., "Large Batch Optimization for Deep
    Learning", 2020, algorithm 2 with φ(z) = z. A clipped gradient, as NVIDIA's has it, is the trainer's `clip`.)
    """

    name = "lamb"
    by_element = False
    eps: float = 1e-6
    weight_decay: float = 0.01

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        """As the base class. All is computed in lines, so that what a line is multiplied by is found by its number."""
        width, whole = reduce(gcd, terms.sizes, LINE), np.array([sum(terms.sizes)])
        lines = [g.Reshape(v, np.array([-1, width])) for v in (parameter, gradient, *(slots[s] for s in self.slots))]
        own = dict(zip(self.slots, lines[2:], strict=True))
        direction, kept = self.direction(g, lines[1], own, terms)
        if terms.decay:
            direction = g.Add(direction, g.Mul(lines[0], terms.decay))
        counts = [size // width for size in terms.sizes]
        ratio = _ratios(g, lines[0], direction, counts)
        of_line = np.repeat(np.arange(len(counts)), counts)
        step = g.Mul(direction, g.Mul(g.Gather(ratio, of_line.reshape(-1, 1)), terms.rate))
        moved = g.Sub(lines[0], step)
        return g.Reshape(moved, whole), {slot: g.Reshape(v, whole) for slot, v in kept.items()}


def _ratios(g: GraphBuilder, parameter: Value, direction: Value, counts: list[int]) -> Value:
    """|parameter| / |direction| of each tensor, of `counts` lines each; 1 where one of them is 0."""
    above, below = (_norms(g, lines, counts) for lines in (parameter, direction))
    zero, one = g.const(0.0), g.const(1.0)
    both = g.And(g.Greater(above, zero), g.Greater(below, zero))
    return g.Where(both, g.Div(above, g.Where(both, below, one)), one)


def _norms(g: GraphBuilder, lines: Value, counts: list[int]) -> Value:
    """The Euclidean norm of each tensor, a vector: sums of the lines' squares, then of each tensor's lines."""
    squares = g.ReduceSumSquare(lines, np.array([1]), keepdims=0)
    parts = [squares] if len(counts) == 1 else g.Split(squares, np.array(counts), axis=0, n_outputs=len(counts))
    sums = [g.Reshape(sum_of(g, part), np.array([1])) for part in parts]
    return g.Sqrt(sums[0] if len(sums) == 1 else g.Concat(*sums, axis=0))
