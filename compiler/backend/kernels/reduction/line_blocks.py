"""Folds of long lines in blocks, each from a new start and joined with the total before it.

    for block of the line: part = start; for element in block: part = step(part, element); total = join(total, part)

The rounding error of a sum then grows with the length of a block and the number of blocks, not with their product
(Higham, "The accuracy of floating point summation", 1993). Owns how long blocks are; knows no operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....kernel_ir.builder import Builder, KValue
from ..nest import Axes

BLOCK = 256  # elements that an accumulator takes in before it is joined with the total

State = list[KValue]
Merge = Callable[[State, State], State]


@dataclass(frozen=True)
class Blocks:
    """So many steps of the loop over one of the line's axes start anew and are joined with the total."""

    axis: int
    steps: int
    start: State
    join: Merge

    @staticmethod
    def of(line: Axes, at_once: int, start: State, join: Merge) -> Blocks | None:
        """None for short lines.

        Args:
            at_once: elements of the innermost axis that the accumulators take in together.
        """
        most, inner = BLOCK * at_once, 1
        for axis in reversed(range(len(line.sizes))):
            size = line.sizes[axis]
            if not isinstance(size, int) or size * inner > 2 * most:
                return Blocks(axis, max(1, most // inner), start, join)
            inner *= size
        return None


def fold_axis(
    k: Builder, blocks: Blocks | None, axis: int, size: KValue, total: State,
    part: Callable[[KValue, KValue, State], State],
) -> State:  # fmt: skip
    """The total of [0, size), in blocks if they are of this axis: `part(first, end, state)` folds what lies between."""
    if blocks is None or blocks.axis != axis:
        return part(k.index(0), size, total)

    def block(first: KValue, total: State) -> State:
        return blocks.join(total, part(first, k.min(first + blocks.steps, size), blocks.start))

    return k.for_(0, size, blocks.steps, total, block)
