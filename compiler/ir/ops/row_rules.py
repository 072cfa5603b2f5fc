"""Independent rows: given the axis of each operand that counts rows, the axis of a result that does.

Owns the rules that several kinds of operators share; an operator with a rule of its own defines `row_axis` itself.
Refusing is always allowed; letting rows mix never is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..types import SymDim, TensorType, prod
from .attribute_values import AttributeValues
from .context import InferContext


class RowsInteract(Exception):
    """Rows of the batch influence each other here, or no rule shows that they do not."""


@dataclass(frozen=True)
class Rows:
    """One result of a node, and where the rows of its operands lie.

    Attributes:
        given: the row axis of each operand, None for those that all rows share (and those that are omitted).
        result: the type of the result, which is the `output`th.
    """

    ctx: InferContext
    given: list[int | None]
    result: TensorType
    output: int = 0

    def interact(self, reason: str) -> RowsInteract:
        """What to raise: the reason with the node's name."""
        return RowsInteract(f"{self.ctx.where}: {reason}")

    def first(self, otherwise: str) -> int:
        """The row axis of the first operand, which must be the only one that has rows."""
        axis = self.given[0]
        if axis is None or any(a is not None for a in self.given[1:]):
            raise self.interact(otherwise)
        return axis


RowRule = Callable[[Any, Rows], "int | None"]
"""Of an operator, the row axis of a result; raises RowsInteract."""


def unknown(op: AttributeValues, rows: Rows) -> int | None:
    """For operators of which nothing is known."""
    raise rows.interact("no rule for this operator")


def broadcast(op: AttributeValues, rows: Rows) -> int | None:
    """Element by element: rows lie on one axis of the result."""
    rank = rows.result.rank
    axes = {a + rank - rows.ctx.rank(i) for i, a in enumerate(rows.given) if a is not None}
    if len(axes) != 1:
        raise rows.interact("rows lie on different axes")
    return axes.pop()


def batch_first(op: AttributeValues, rows: Rows) -> int | None:
    """Each item of axis 0 of the first operand is worked on by itself: convolutions, pools, normalisations."""
    if rows.given[0] != 0 or any(a is not None for a in rows.given[1:]):
        raise rows.interact("rows are not on axis 0 of the first operand alone")
    if rows.output > 0:  # MaxPool's indices count from the start of the whole batch
        raise rows.interact("a second result that may count across rows")
    if getattr(op, "training_mode", 0):
        raise rows.interact("statistics over the batch")
    return 0


def reshaped(op: AttributeValues, rows: Rows) -> int | None:
    """The axis of the result before which as many elements lie, if rows stay whole."""
    a, x, y = rows.given[0], rows.ctx.tensor(0), rows.result
    assert a is not None
    before = prod(x.dims[:a])
    for i in range(y.rank):
        if prod(y.dims[:i]) == before and isinstance(y.dims[i], SymDim) and (a == 0 or y.dims[i] == x.dims[a]):
            return i
    raise rows.interact("the reshape mixes rows")


def along_axis(op: AttributeValues, rows: Rows) -> int | None:
    """Operators that work along `axis` and leave the others alone."""
    axes = {a for a in rows.given if a is not None}
    own = getattr(op, "axis", -1) % rows.ctx.rank(0)
    if len(axes) != 1 or own in axes:
        raise rows.interact("works along the rows")
    return axes.pop()


def same_extent(op: AttributeValues, rows: Rows) -> int | None:
    """Parts, margins and repetitions: fine while the row axis keeps its whole extent."""
    a = rows.first("changes the rows")
    x, y = rows.ctx.tensor(0), rows.result
    shift = y.rank - x.rank
    if x.dims[a] != y.dims[a + shift]:
        raise rows.interact("changes the rows")
    return a + shift


def by_elements(op: AttributeValues, rows: Rows) -> int | None:
    """GatherElements, ScatterElements: all operands have the rows on one axis, and positions lie on another."""
    ctx, a = rows.ctx, rows.given[0]
    own = op.axis % ctx.rank(0)  # type: ignore[attr-defined]
    if a is None or a == own or len(set(rows.given)) > 1 or len({ctx.shape(i)[a] for i in range(ctx.n_inputs)}) > 1:
        raise rows.interact("positions reach across the rows")
    return a
