"""What the kernels of recurrent operators have in common: which rows and blocks of units a core works on, and where
their elements lie. Owns groups of rows, lengths and times; it must not know what a step computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from ....ir.types import I64
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.synchronisation import meet
from ...fusion import store, widen
from ..nest import strided_index
from ..plain import strided_load
from .plan import ITEM_ROWS, Cut
from .tile import SmallProducts

P = TypeVar("P", bound=Cut)


class Walk(ABC, Generic[P]):
    """Writes the work items [begin, end) of a kernel.

    Attributes:
        row0, count: the batch rows that are worked on.
    """

    row0: KValue
    count: KValue

    def __init__(self, k: Builder, plan: P, products: SmallProducts, site: int) -> None:
        self.k, self.p, self.products, self.site = k, plan, products, site
        self.steps, self.lanes = k.index(plan.shape.steps), plan.lanes

    def emit(self) -> None:
        """All rows, as many at a time as fit the working memory."""
        k, p = self.k, self.p
        batch = k.index(p.shape.batch)

        def some(row0: KValue, count: KValue) -> None:
            self.row0, self.count = row0, count
            self._lengths()
            self._rows_together()

        def shared() -> None:
            def group(row: KValue, _: list[KValue]) -> None:
                whole = isinstance(p.shape.batch, int) and p.shape.batch % p.rows == 0
                some(row, k.index(p.rows) if whole else k.min(batch - row, p.rows))

            k.for_(0, batch, p.rows, [], group)

        def alone(item: KValue, _: list[KValue]) -> None:
            row, together = item * ITEM_ROWS, p.rows // ITEM_ROWS
            end = k.min(k.min(item + together, k["end"]) * ITEM_ROWS, batch)
            some(row, end - row)

        self._directions(self._prepare)
        if p.shared:
            k.if_(k["begin"] < k["end"], shared)
        else:
            k.for_(k["begin"], k["end"], p.rows // ITEM_ROWS, [], alone)

    @abstractmethod
    def _prepare(self, direction: KValue, first: KValue, last: KValue) -> None:
        """What the blocks [first, last) of a direction need once, for all rows."""

    @abstractmethod
    def _rows_together(self) -> None:
        """All steps of the batch rows from row0 on."""

    # -- what is whose -------------------------------------------------------------------------------------
    def _directions(self, body: Callable[[KValue, KValue, KValue], None]) -> None:
        """body(direction, first block, last block) for each direction that this core has blocks of."""
        k, p = self.k, self.p
        blocks = p.blocks

        def one(d: KValue, _: list[KValue]) -> None:
            if not p.shared:
                body(d, k.index(0), k.index(blocks))
                return
            low, high = k.max(k["begin"] - d * blocks, 0), k.min(k["end"] - d * blocks, blocks)
            if p.shape.directions == 1:
                body(d, low, high)
            else:
                k.if_(low < high, lambda: body(d, low, high))

        k.for_(0, p.shape.directions, 1, [], one)

    def _meet(self) -> None:
        k = self.k
        if self.p.shared:
            meet(k, k["meeting"], k["end"] - k["begin"], self.p.work)

    def _rows(self, body: Callable[[KValue], None]) -> None:
        self.k.for_(0, self.count, 1, [], lambda row, _: body(row))

    def _units(self, low: KValue, high: KValue, body: Callable[[KValue, KValue], None]) -> None:
        """body(first unit, mask of existing units) for each vector of the blocks [low, high)."""
        n = self.p.vectors
        first, last = (low, high) if n == 1 else (low * n, high * n)
        self.k.for_(first, last, 1, [], lambda u, _: body(u * self.lanes, self._mask(u * self.lanes)))

    def _mask(self, unit: KValue) -> KValue:
        return self.k.tail_mask(self.k.index(self.p.shape.hidden) - unit, self.lanes)

    # -- addresses -----------------------------------------------------------------------------------------
    def _cells(self, direction: KValue) -> KValue:
        """Where the rows of a direction begin in a state."""
        return direction * (self.p.rows * self.p.pitch)

    def _read(self, name: str, direction: KValue, row: KValue, unit: KValue, mask: KValue,
              step: KValue | None = None) -> KValue:  # fmt: skip
        """A vector of an operand that has (direction, batch, unit), with a `step` also that."""
        k = self.k
        t, d, b, u = self.p.axes(name)
        at = direction * k.index(d) + (self.row0 + row) * k.index(b) + unit * k.index(u)
        if step is not None:
            at = step * k.index(t) + at
        return widen(k, strided_load(k, k[name], at, u, self.lanes, mask))

    def _write(self, name: str, step: KValue, direction: KValue, row: KValue, unit: KValue, value: KValue,
               mask: KValue) -> None:  # fmt: skip
        k = self.k
        t, d, b, u = self.p.axes(name)
        at = step * k.index(t) + direction * k.index(d) + (self.row0 + row) * k.index(b) + unit * k.index(u)
        if u == 1:
            store(k, k[name], at, value, mask)
        else:
            k.scatter(k[name], strided_index(k, at, u, self.lanes), k.cast(value, k[name].dtype), mask)

    # -- sequences -----------------------------------------------------------------------------------------
    def _lengths(self) -> None:
        k, p = self.k, self.p
        if "lens" not in p.types:
            return

        def row(i: KValue) -> None:
            given = k.cast(k.load(k["lens"], self.row0 + i), I64)
            k.if_((given < 0) | (given > self.steps), lambda: k.fail(self.site))
            k.store(k["lengths"], i, k.clip(given, 0, self.steps))

        self._rows(row)

    def _length(self, row: KValue) -> KValue:
        return self.k.load(self.k["lengths"], row) if "lens" in self.p.types else self.steps

    def _time(self, direction: KValue, step: KValue, length: KValue) -> KValue:
        """The time that is the `step`-th of a sequence; beyond its end, the step itself."""
        k = self.k
        reverse = {"forward": k.index(0), "reverse": k.index(1)}.get(self.p.op.direction, direction)
        if reverse.const == 0:
            return step
        return k.select((reverse != 0) & (step < length), length - 1 - step, step)
