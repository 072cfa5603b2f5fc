"""Arithmetic: how much an operator computes by the direct algorithm, and what kind of work that is.

Owns the rules that several operators share. How near to a machine's limits a kind of work comes, into how many pieces
kernels cut it and which algorithm they take is not said here: the kernels' counts (`backend/costs.py`) do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .attribute_values import AttributeValues

NORM_FLOPS, SOFTMAX_FLOPS = 7, 16  # an element: (x-m)/s·a+b, exp & sum


class Effort(Enum):
    """What one element of an element-wise operator costs: (flops, whether an epilogue may repeat its code).

    A register tile applies its epilogue to every accumulator. What is a few instructions is written out for each; of
    longer code there is one copy a tile.
    """

    MOVE = (0, False)
    CHEAP = (1, True)
    SINGLE = (1, False)
    FUNCTION = (12, False)  # a transcendental function: a polynomial of about so many terms

    @property
    def flops(self) -> int:
        return self.value[0]

    @property
    def repeats(self) -> bool:
        return self.value[1]


@dataclass(frozen=True)
class Shapes:
    """Sizes of a node's operands, None for those that are omitted, and of its results."""

    operands: Sequence[tuple[int, ...] | None]
    results: Sequence[tuple[int, ...]]

    def operand(self, i: int) -> tuple[int, ...]:
        """The sizes of an operand that is given."""
        shape = self.operands[i]
        assert shape is not None
        return shape

    @property
    def x_elements(self) -> int:
        """Elements of the first operand."""
        return math.prod(self.operand(0))

    @property
    def y_elements(self) -> int:
        """Elements of the first result."""
        return math.prod(self.results[0])

    @property
    def written(self) -> int:
        """Elements of all results."""
        return sum(map(math.prod, self.results))


@dataclass(frozen=True)
class Work:
    """What one run computes.

    Attributes:
        kind: of work; each has kernels that say how they cut it. flops: a multiply-add is two.
        selects: whether no more of the first operand is read than there are elements in the result.
        reads: whether it reads its operands at all, rather than their sizes. times_read: operand → how often its
            constants are read, where that is not once. meetings: how often cores that share it meet before its end.
    """

    kind: str
    flops: int = 0
    selects: bool = False
    reads: bool = True
    times_read: Mapping[int, int] = field(default_factory=dict)
    meetings: int = 0


WorkRule = Callable[[Any, Shapes], Work]
"""Of an operator, what it computes for these sizes."""


def none(op: AttributeValues, shapes: Shapes) -> Work:
    """Of what is only a name for other nodes or bytes."""
    return Work("view")


def moves(op: AttributeValues, shapes: Shapes) -> Work:
    """Copies of all or of most of the operands."""
    return Work("movement")


def writes_sizes(op: AttributeValues, shapes: Shapes) -> Work:
    """Numbers that follow from the operands' sizes: nothing is read, but users must wait for them."""
    return Work("movement", reads=False)


def selects(op: AttributeValues, shapes: Shapes) -> Work:
    """Copies of what goes into the result."""
    return Work("movement", selects=True)


def looks_up(op: AttributeValues, shapes: Shapes) -> Work:
    """Copies from or to where indices say."""
    return Work("lookup", selects=True)


def reduces(op: AttributeValues, shapes: Shapes) -> Work:
    """One operation for each element of the operand."""
    return Work("reduce", shapes.x_elements)


def elementwise(op: AttributeValues, shapes: Shapes) -> Work:
    """The operator's effort for each element of the result."""
    return Work("elementwise", op.effort.flops * shapes.y_elements)  # type: ignore[attr-defined]


def undecided(op: AttributeValues, shapes: Shapes) -> Work:
    """An operator that the passes have not taken apart yet: a few flops for each element."""
    return Work("elementwise", 4 * shapes.written)


def in_python(op: AttributeValues, shapes: Shapes) -> Work:
    """A step of the runtime's, a flop for each element; what bodies compute comes on top."""
    return Work("host", shapes.written)


def per_element(kind: str, flops: int) -> WorkRule:
    """So many flops for each element of the first operand."""
    return lambda op, shapes: Work(kind, flops * shapes.x_elements)
