"""Tensors as independent lines: the schedule of reductions, softmax, normalisations and running sums.

A line is what a statistic runs over (the reduced axes); the kept axes enumerate the lines. Owns the choice of the
vector axis, the loops, accumulators and masked tails; kernels say what is done with an element. It must not know any
operator.

    along a line (its innermost axis is contiguous): for line in items: for i in line step lanes; then across lanes
    across lines (else): for block of V·lanes neighbouring lines in items: for i in line: for v in V

Short lines of known length stay in registers from the first pass to the last; long ones are folded in `line_blocks`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir.types import Dim, ceil_div, prod
from ....kernel_ir.builder import Builder, KValue
from ..nest import Axes, Lane, decode, load_lane, merge_axes
from .line_blocks import Blocks, Merge, State, fold_axis

ACCUMULATORS = 4  # independent vectors, enough to hide the latency of an addition

Step = Callable[[Lane, State], State]


@dataclass(frozen=True)
class Lines:
    """Kept axes (which line) and line axes (where on it); each operand has a row of strides in both."""

    kept: Axes
    line: Axes
    across: bool
    in_registers: int
    """Vectors of a line (or block of lines) that may stay in registers."""

    @property
    def length(self) -> Dim:
        """Elements of a line."""
        return prod(self.line.sizes)

    def vectors(self, lanes: int, most: int) -> int:
        """Vectors of neighbouring lines that one work item holds."""
        inner = self.kept.inner
        return min(most, ceil_div(inner, lanes)) if isinstance(inner, int) and inner else 1

    def work(self, lanes: int, most: int) -> Dim:
        """Work items: lines, or blocks of neighbouring lines."""
        if not self.across:
            return prod(self.kept.sizes)
        return prod(self.kept.outer) * ceil_div(self.kept.inner, self.vectors(lanes, most) * lanes)


def split_lines(kept: Sequence[int], line: Sequence[int], dims: Sequence[Dim], strides: Sequence[Sequence[Dim]],
                lanes: int, n_registers: int, *, only_across: bool = False) -> Lines:
    """Choose the schedule.

    Args:
        kept, line: the logical axes of either kind, outermost in memory first. dims: size per logical axis.
        strides: one row per operand, the first is the tensor that is read most. only_across: never along a line.
    """
    kept_axes, line_axes = merge_axes(kept, dims, strides), merge_axes(line, dims, strides)
    contiguous = line_axes.strides[0][-1] == 1
    few = prod(line_axes.sizes)
    many = kept_axes.inner
    # a short line wastes most of a vector: take neighbouring lines instead, if there are enough
    short = isinstance(few, int) and few * 2 <= lanes and not (isinstance(many, int) and many < lanes)
    return Lines(kept_axes, line_axes, only_across or not contiguous or short, n_registers // 2)


class Walk:
    """One work item: a line (`Along`) or a block of neighbouring lines (`Across`)."""

    k: Builder
    lines: Lines
    n: int
    """Independent results: vectors of lines, 1 for a single line."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[object, ...], KValue] = {}
        self.in_registers = False

    @abstractmethod
    def fold(self, init: Sequence[KValue], step: Callable[[Lane, State, int], State], merge: Merge) -> list[State]:
        """Combine all elements: `step(lane, state, v)` takes one vector in, `merge` joins two partial states.

        Returns the state for each of the `n` results: scalars for a single line, vectors for a block of lines.
        """
        raise NotImplementedError

    @abstractmethod
    def each(self, visit: Callable[[Lane, int], None]) -> None:
        """Visit every element vector."""
        raise NotImplementedError

    @abstractmethod
    def results(self) -> list[Lane]:
        """Where each of the `n` results lies, for operands that have one element per line."""
        raise NotImplementedError

    def load(self, name: str, lane: Lane, operand: int) -> KValue:
        """The operand's elements, read once if the line stays in registers."""
        return self.keep(name, lane, lambda: load_lane(self.k, self.k[name], lane, operand))

    def keep(self, what: str, lane: Lane, make: Callable[[], KValue]) -> KValue:
        """`make()`, or what it gave before for this vector if the line stays in registers."""
        if not self.in_registers:
            return make()
        assert isinstance(lane, PlacedLane)
        key = (what, *(o.const if o.const is not None else id(o) for o in lane.place))
        if key not in self._loaded:
            self._loaded[key] = make()
        return self._loaded[key]


@dataclass(frozen=True)
class PlacedLane(Lane):
    """A vector that knows its place in the walk: position on the line, vector of the block."""

    place: tuple[KValue, ...] = ()


def shifted(k: Builder, bases: Sequence[KValue], strides: Sequence[Dim], by: KValue) -> tuple[KValue, ...]:
    """bases + by · strides."""
    return tuple(b + by * k.index(s) if s != 0 else b for b, s in zip(bases, strides))


class Along(Walk):
    """One line; vectors lie along its innermost axis."""

    def __init__(self, k: Builder, lines: Lines, lanes: int, bases: tuple[KValue, ...]) -> None:
        super().__init__()
        self.k, self.lines, self.lanes, self.bases, self.n = k, lines, lanes, bases, 1
        self.steps = tuple(row[-1] for row in lines.line.strides)
        self.size = lines.line.inner
        whole = len(lines.line.sizes) == 1
        self.in_registers = whole and isinstance(self.size, int) and self.size <= lines.in_registers * lanes

    def results(self) -> list[Lane]:
        return [PlacedLane(self.bases, (0,) * len(self.bases), self.k.index(0), (), 1, None, ())]

    def fold(self, init: Sequence[KValue], step: Callable[[Lane, State, int], State], merge: Merge) -> list[State]:
        k, n = self.k, self._n_accumulators()
        start = [k.splat(v, self.lanes) for _ in range(n) for v in init]
        m = len(init)

        def advance(lane: Lane, state: State) -> State:
            new = step(lane, state, 0)
            return new if lane.mask is None else [k.select(lane.mask, a, b) for a, b in zip(new, state)]

        def join(a: State, b: State) -> State:
            return [x for i in range(0, n * m, m) for x in merge(a[i : i + m], b[i : i + m])]

        blocks = Blocks.of(self.lines.line, n * self.lanes, start, join)
        flat = self._nest(0, self.bases, start, blocks,
                          lambda bases, carried: self._fold_row(bases, carried, m, blocks, advance))  # fmt: skip
        states = [flat[i * m : i * m + m] for i in range(n)]
        while len(states) > 1:
            states = [merge(*states[i : i + 2]) if i + 1 < len(states) else states[i] for i in range(0, len(states), 2)]
        return [self._across_lanes(states[0], merge)]

    def each(self, visit: Callable[[Lane, int], None]) -> None:
        def take(lane: Lane, state: State) -> State:
            visit(lane, 0)
            return state

        def row(bases: tuple[KValue, ...], carried: State) -> State:
            return self._fold_row(bases, carried, 0, None, take)

        self._nest(0, self.bases, [], None, row)

    def _n_accumulators(self) -> int:
        if not isinstance(self.size, int):
            return ACCUMULATORS
        return min(ACCUMULATORS, max(1, -(-self.size // self.lanes)))

    def _nest(self, axis: int, bases: tuple[KValue, ...], carried: State, blocks: Blocks | None,
              row: Callable[[tuple[KValue, ...], State], State]) -> State:
        k, line = self.k, self.lines.line
        if axis == len(line.sizes) - 1:
            return row(bases, carried)
        strides = [r[axis] for r in line.strides]

        def part(first: KValue, end: KValue, state: State) -> State:
            return k.for_(first, end, 1, state,
                          lambda i, c: self._nest(axis + 1, shifted(k, bases, strides, i), c, blocks, row))

        return fold_axis(k, blocks, axis, k.index(line.sizes[axis]), carried, part)

    def _lane(self, bases: tuple[KValue, ...], i: KValue, mask: KValue | None) -> Lane:
        offsets = shifted(self.k, bases, self.steps, i)
        return PlacedLane(offsets, self.steps, i, (), self.lanes, mask, (i,))

    def _fold_row(self, bases: tuple[KValue, ...], carried: State, m: int, blocks: Blocks | None,
                  advance: Step) -> State:
        """The innermost axis; accumulator a takes vectors a, a + n, a + 2n, … of it."""
        k, lanes = self.k, self.lanes
        n = len(carried) // m if m else min(2, self._n_accumulators())
        size = k.index(self.size)

        def vectors(i: KValue, state: State) -> State:
            out: State = []
            for a in range(n):
                out += advance(self._lane(bases, i + a * lanes, None), list(state[a * m : a * m + m]))
            return out

        def rest(start: KValue, count: int, state: State) -> State:
            for a in range(count):
                state[a * m : a * m + m] = advance(self._lane(bases, start + a * lanes, None), state[a * m : a * m + m])
            return state

        def middle_of(end: KValue, state: State) -> State:
            return fold_axis(k, blocks, len(self.lines.line.sizes) - 1, end, state,
                             lambda first, last, part: k.for_(first, last, wide, part, vectors))  # fmt: skip

        wide = n * lanes
        if isinstance(self.size, int):
            main = self.size // wide * wide
            if self.in_registers:
                for start in range(0, main, wide):
                    carried = vectors(k.index(start), carried)
            else:
                carried = middle_of(k.index(main), carried)
            left = (self.size - main) // lanes
            carried = rest(k.index(main), left, list(carried))
            start, a = main + left * lanes, left % n
            if start < self.size:
                lane = self._lane(bases, k.index(start), k.tail_mask(k.index(self.size - start), lanes))
                carried[a * m : a * m + m] = advance(lane, carried[a * m : a * m + m])
            return carried
        middle = k.udiv(size, wide) * wide
        carried = middle_of(middle, carried)
        end = k.udiv(size, lanes) * lanes
        carried = k.for_(middle, end, lanes, carried, lambda i, state: rest(i, 1, list(state)))

        def tail() -> State:
            lane = self._lane(bases, end, k.tail_mask(size - end, lanes))
            return [*advance(lane, list(carried[:m])), *carried[m:]]

        return k.if_(end < size, tail, lambda: carried)

    def _across_lanes(self, state: State, merge: Merge) -> State:
        k, lanes = self.k, self.lanes
        while lanes > 1:
            lanes //= 2
            low, high = range(lanes), range(lanes, 2 * lanes)
            state = merge([k.shuffle(v, v, low) for v in state], [k.shuffle(v, v, high) for v in state])
        return [v if v.lanes == 1 else k.extract(v, 0) for v in state]


class Across(Walk):
    """A block of neighbouring lines; lane i of vector v is line v · lanes + i of the block."""

    def __init__(self, k: Builder, lines: Lines, lanes: int, bases: tuple[KValue, ...],
                 masks: Sequence[KValue | None]) -> None:
        super().__init__()
        self.k, self.lines, self.lanes, self.bases, self.masks = k, lines, lanes, bases, masks
        self.n = len(masks)
        self.steps = tuple(row[-1] for row in lines.kept.strides)
        length = lines.length
        whole = len(lines.line.sizes) == 1
        self.in_registers = whole and isinstance(length, int) and length * self.n <= lines.in_registers

    def _lane(self, bases: tuple[KValue, ...], i: KValue, v: int) -> Lane:
        offsets = shifted(self.k, bases, self.steps, self.k.index(v * self.lanes))
        return PlacedLane(offsets, self.steps, i, (), self.lanes, self.masks[v], (i, self.k.index(v)))

    def results(self) -> list[Lane]:
        return [self._lane(self.bases, self.k.index(0), v) for v in range(self.n)]

    def fold(self, init: Sequence[KValue], step: Callable[[Lane, State, int], State], merge: Merge) -> list[State]:
        k, m = self.k, len(init)
        unroll = max(1, ACCUMULATORS // self.n)
        inner = self.lines.line.inner
        unroll = min(unroll, max(inner, 1)) if isinstance(inner, int) else unroll
        group = self.n * m
        start = [k.splat(v, self.lanes) for _ in range(unroll * self.n) for v in init]

        def take(bases: tuple[KValue, ...], i: KValue, state: State) -> State:
            out: State = []
            for v in range(self.n):
                out += step(self._lane(bases, i, v), list(state[v * m : v * m + m]), v)
            return out

        def join(a: State, b: State) -> State:
            return [x for i in range(0, len(a), m) for x in merge(a[i : i + m], b[i : i + m])]

        blocks = Blocks.of(self.lines.line, unroll, start, join)
        flat = self._nest(0, self.bases, start, blocks, group, take)
        total = flat[:group]
        for u in range(group, len(flat), group):
            total = join(total, flat[u : u + group])
        return [total[v * m : v * m + m] for v in range(self.n)]

    def each(self, visit: Callable[[Lane, int], None]) -> None:
        def take(bases: tuple[KValue, ...], i: KValue, state: State) -> State:
            for v in range(self.n):
                visit(self._lane(bases, i, v), v)
            return state

        self._nest(0, self.bases, [], None, 0, take)

    def scan(self, init: Sequence[KValue], step: Callable[[Lane, State], State], reverse: bool) -> None:
        """Visit the positions of the (single) line axis one after the other, the state of each vector handed on."""
        k, line, m = self.k, self.lines.line, len(init)
        strides, size = [r[0] for r in line.strides], k.index(line.inner)

        def at(i: KValue, state: State) -> State:
            place = size - 1 - i if reverse else i
            bases = shifted(k, self.bases, strides, place)
            return [x for v in range(self.n) for x in step(self._lane(bases, place, v), state[v * m : v * m + m])]

        k.for_(0, size, 1, [k.splat(x, self.lanes) for _ in range(self.n) for x in init], at)

    def _nest(self, axis: int, bases: tuple[KValue, ...], carried: State, blocks: Blocks | None, group: int,
              take: Callable[[tuple[KValue, ...], KValue, State], State]) -> State:
        k, line = self.k, self.lines.line
        strides, size, unroll = [r[axis] for r in line.strides], line.sizes[axis], len(carried) // group if group else 1

        def at(i: KValue, state: State) -> State:
            return take(shifted(k, bases, strides, i), i, state)

        def several(i: KValue, state: State) -> State:
            return [x for u in range(unroll) for x in at(i + u, list(state[u * group : u * group + group]))]

        def part(first: KValue, end: KValue, state: State) -> State:
            if axis < len(line.sizes) - 1:
                return k.for_(first, end, 1, state, lambda i, c: self._nest(axis + 1, shifted(k, bases, strides, i), c,
                                                                            blocks, group, take))
            middle = first + k.udiv(end - first, unroll) * unroll
            state = k.for_(first, middle, unroll, state, several)
            return k.for_(middle, end, 1, state, lambda i, c: [*at(i, list(c[:group])), *c[group:]])

        if self.in_registers and isinstance(size, int):
            for i in range(size):
                u = i % unroll * group
                carried[u : u + group] = at(k.index(i), list(carried[u : u + group]))
            return carried
        return fold_axis(k, blocks, axis, k.index(size), carried, part)


def emit_lines(k: Builder, lines: Lines, lanes: int, body: Callable[[Walk], None], vectors: int = 4,
               items: tuple[KValue, KValue] | None = None) -> None:
    """Write the loop over work items of `lines.work(lanes, vectors)`: [begin, end) or those given."""
    kept = lines.kept

    def base(indices: Sequence[KValue]) -> tuple[KValue, ...]:
        total = [k.index(0)] * len(kept.strides)
        for axis, i in enumerate(indices):
            total = list(shifted(k, total, [row[axis] for row in kept.strides], i))
        return tuple(total)

    def line(work: KValue, _: State) -> None:
        body(Along(k, lines, lanes, base(decode(k, work, kept.sizes))))

    n = lines.vectors(lanes, vectors)
    width, inner = n * lanes, kept.inner

    def block(work: KValue, _: State) -> None:
        *outer, chunk = decode(k, work, (*kept.outer, ceil_div(inner, width)))
        first = chunk * width
        bases = base((*outer, first))
        left = k.index(inner) - first

        def masked() -> None:
            used = n if not isinstance(inner, int) else ceil_div(inner % width or width, lanes)
            body(Across(k, lines, lanes, bases, [k.tail_mask(left - v * lanes, lanes) for v in range(used)]))

        if isinstance(inner, int) and inner % width == 0:
            body(Across(k, lines, lanes, bases, [None] * n))
        elif isinstance(inner, int) and inner < width:
            masked()
        else:
            k.if_(left >= width, lambda: body(Across(k, lines, lanes, bases, [None] * n)), masked)

    begin, end = items or (k["begin"], k["end"])
    k.for_(begin, end, 1, [], block if lines.across else line)
