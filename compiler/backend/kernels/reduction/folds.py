"""Folds of lines into a few numbers each, once through memory in the order in which it lies.

Owns the choice between two schedules:

    narrow (see `lines`): a line, or V·lanes neighbouring ones, at a time; the accumulators stay in registers
    wide, across many neighbouring lines: for block of positions: for V·lanes of the lines: for position of the block

A narrow item takes a short piece of each position and leaves the rest to others. Where positions are far apart, the
processor does not foresee the next piece: column sums of [1024, 3072] took twice as long. A wide item takes longer
pieces, and its accumulators wait in the first cache. It must not know any operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ....ir.types import Dim, DType, ceil_div, prod
from ....kernel_ir.builder import Builder, KValue
from ..nest import Lane, decode
from .line_blocks import BLOCK, Merge, State
from .lines import Lines, Walk, emit_lines, shifted

VECTORS = 4  # of neighbouring lines whose accumulators stay in registers
WIDEST = 256  # lines of a wide item
FAR = 2048  # bytes from one position to the next from which on items are wide; on Zen 3 narrow ones won at 1024
TOGETHER = 8  # positions for which accumulators are fetched once; 4 to 8 alike on Zen 3
ITEMS_A_CORE = 4  # so many at least, lest cores wait for the last one

Group = Callable[[KValue, "list[KValue | None]"], None]  # of VECTORS vectors, from a line on, and their masks


@dataclass(frozen=True)
class Fold:
    """What becomes of a line.

    Attributes:
        dtype: of the accumulators. init: what they start from, scalars. prepare: what `step` and `finish` need of a
            line besides, found anew as often as it suits. step: takes elements in. merge: joins partial states.
        finish: stores a line's results.
    """

    dtype: DType
    init: Sequence[KValue]
    prepare: Callable[[Lane], State]
    step: Callable[[Lane, State, State], State]
    merge: Merge
    finish: Callable[[Lane, State, State], None]


@dataclass(frozen=True)
class Schedule:
    """How lines are folded; `width`: neighbouring lines of a wide item, 0 where items are narrow."""

    lines: Lines
    lanes: int
    width: int

    @staticmethod
    def of(lines: Lines, lanes: int, nbytes: int, n_cores: int) -> Schedule:
        """`nbytes`: of an element of the tensor that is read most. No bit depends on the number of cores."""
        inner, steps, group = lines.kept.inner, lines.line.inner, VECTORS * lanes
        pitch = lines.line.strides[0][-1]
        short = isinstance(steps, int) and steps < 2 * TOGETHER
        near = not isinstance(pitch, int) or pitch * nbytes < FAR or lines.kept.strides[0][-1] != 1
        if not lines.across or short or near or not isinstance(inner, int) or inner <= group:
            return Schedule(lines, lanes, 0)
        width, items = min(WIDEST, ceil_div(inner, group) * group), prod(lines.kept.outer)
        wanted = ITEMS_A_CORE * n_cores if n_cores > 1 else 1
        while width > group and isinstance(items, int) and items * ceil_div(inner, width) < wanted:
            width = max(group, width // 2 // group * group)
        return Schedule(lines, lanes, width)

    @property
    def work(self) -> Dim:
        """Work items."""
        lines = self.lines
        if self.width:
            return prod(lines.kept.outer) * ceil_div(lines.kept.inner, self.width)
        return lines.work(self.lanes, VECTORS)

    def emit(self, k: Builder, fold: Fold) -> None:
        """Write the loop over the work items [begin, end)."""
        if self.width:
            Wide(k, self, fold).emit()
        else:
            emit_lines(k, self.lines, self.lanes, partial(_narrow, fold), VECTORS)


def _narrow(fold: Fold, walk: Walk) -> None:
    results = walk.results()
    known = [fold.prepare(lane) for lane in results]
    totals = walk.fold(fold.init, lambda lane, state, v: fold.step(lane, known[v], state), fold.merge)
    for lane, own, total in zip(results, known, totals, strict=True):
        fold.finish(lane, own, total)


class Wide:
    """Emits the loops over wide items. See the file."""

    def __init__(self, k: Builder, schedule: Schedule, fold: Fold) -> None:
        self.k, self.fold = k, fold
        self.lines, self.lanes, self.width = schedule.lines, schedule.lanes, schedule.width
        assert isinstance(self.lines.kept.inner, int)
        self.size, self.group = self.lines.kept.inner, VECTORS * self.lanes
        self.steps = tuple(row[-1] for row in self.lines.kept.strides)
        room = len(fold.init) * self.width
        self.part, self.total = (k.alloca(fold.dtype, room) for _ in range(2))  # of a block of positions; of all

    def emit(self) -> None:
        """All work items of the call."""
        k, kept = self.k, self.lines.kept

        def item(work: KValue, _: State) -> None:
            *outer, chunk = decode(k, work, (*kept.outer, ceil_div(self.size, self.width)))
            bases: tuple[KValue, ...] = tuple(k.index(0) for _ in kept.strides)
            for axis, i in enumerate(outer):
                bases = shifted(k, bases, [row[axis] for row in kept.strides], i)
            self.first, self.start = chunk * self.width, bases
            self.groups(partial(self.put, self.total, [list(self.fold.init)] * VECTORS))
            self.nest(0, bases)
            self.groups(self.finish)

        k.for_(k["begin"], k["end"], 1, [], item)

    def groups(self, group: Group) -> None:
        """Calls group(first line, masks) for those of the item."""
        k, size = self.k, self.size
        whole = size // self.group * self.group
        end = k.min(self.first + self.width, whole)
        k.for_(self.first, end, self.group, [], lambda c, _: group(c, [None] * VECTORS))
        if whole < size:
            used = ceil_div(size - whole, self.lanes)
            left = [size - whole - v * self.lanes for v in range(used)]
            masks = [None if n >= self.lanes else k.tail_mask(k.index(n), self.lanes) for n in left]
            k.if_(self.first + self.width > whole, lambda: group(k.index(whole), masks))

    def nest(self, axis: int, bases: tuple[KValue, ...]) -> None:
        """The axes of the line from one on; the innermost in blocks, each summed by itself (see `line_blocks`)."""
        k, line = self.k, self.lines.line
        strides, size = [row[axis] for row in line.strides], k.index(line.sizes[axis])

        def block(first: KValue, _: State) -> None:
            end = k.min(first + BLOCK, size)
            whole = first + k.udiv(end - first, TOGETHER) * TOGETHER
            self.groups(partial(self.put, self.part, [list(self.fold.init)] * VECTORS))
            for begin, stop, n in ((first, whole, TOGETHER), (whole, end, 1)):
                k.for_(begin, stop, n, [], lambda i, _, n=n: self.groups(partial(self.take, bases, strides, i, n)))
            self.groups(self.join)

        if axis < len(line.sizes) - 1:
            k.for_(0, size, 1, [], lambda i, _: self.nest(axis + 1, shifted(k, bases, strides, i)))
        else:
            k.for_(0, size, BLOCK, [], block)

    def lane(self, bases: Sequence[KValue], i: KValue, c: KValue, mask: KValue | None) -> Lane:
        """The vector of lines from c on at position i, whose line 0 is at `bases`."""
        return Lane(shifted(self.k, bases, self.steps, c), self.steps, i, (), self.lanes, mask)

    def vectors(self, c: KValue, masks: Sequence[KValue | None]) -> list[tuple[KValue, Lane]]:
        """The first line of each vector, and where its lines begin."""
        starts = [c + v * self.lanes for v in range(len(masks))]
        zero = self.k.index(0)
        return [(at, self.lane(self.start, zero, at, mask)) for at, mask in zip(starts, masks, strict=True)]

    def place(self, c: KValue, j: int) -> KValue:
        """Where accumulator j of the lines from c on waits."""
        return c - self.first + j * self.width

    def get(self, memory: KValue, c: KValue) -> State:
        """The accumulators of a vector of lines."""
        return [self.k.load(memory, self.place(c, j), self.lanes) for j in range(len(self.fold.init))]

    def put(self, memory: KValue, states: Sequence[State], c: KValue, masks: Sequence[KValue | None]) -> None:
        """Those of a group."""
        for v, state in enumerate(states[: len(masks)]):
            for j, value in enumerate(state):
                self.k.store(memory, self.place(c + v * self.lanes, j), self.k.splat(value, self.lanes))

    def take(self, bases: tuple[KValue, ...], strides: Sequence[Dim], i: KValue, n: int, c: KValue,
             masks: Sequence[KValue | None]) -> None:  # fmt: skip
        """Positions i … i + n of a group."""
        at = [shifted(self.k, bases, strides, i + p) for p in range(n)]
        states = []
        for own, start in self.vectors(c, masks):
            known, state = self.fold.prepare(start), self.get(self.part, own)
            for p, base in enumerate(at):
                state = self.fold.step(self.lane(base, i + p, own, start.mask), known, state)
            states.append(state)
        self.put(self.part, states, c, masks)

    def join(self, c: KValue, masks: Sequence[KValue | None]) -> None:
        """A block's accumulators of a group come to the totals."""
        owns = [own for own, _ in self.vectors(c, masks)]
        merged = [self.fold.merge(self.get(self.total, own), self.get(self.part, own)) for own in owns]
        self.put(self.total, merged, c, masks)

    def finish(self, c: KValue, masks: Sequence[KValue | None]) -> None:
        """Store a group's results."""
        for own, start in self.vectors(c, masks):
            self.fold.finish(start, self.fold.prepare(start), self.get(self.total, own))
