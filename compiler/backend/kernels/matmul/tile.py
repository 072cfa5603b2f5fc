"""The register tile: the innermost loop of every matrix product and convolution.

Owns one function per tile shape: MR rows × NV vectors of accumulators carried through the loop over k. Rows of A are
found through a table of offsets, so that a matrix product, a convolution (Dukhan, "The Indirect Convolution
Algorithm", 2019) and each phase of a transposed convolution share the same code. It must not know how its operands
are blocked, packed or split over cores.

    for tile in tiles:                      # below one another: a call's arguments are set up once
        acc[i][j] = bias[j], or 0 for a later block of k
        for t in taps:                      # 1 for a matrix product
            a[i] = x + table[t, tile · MR + i], or the zero row when the entry is negative
            for kk in kc:  acc[i][:] += a[i][kk] * b[t, kk, :]
        acc += partial[tile]                # of a later block
        epilogue(acc) or partial[tile] = acc

A later block of k does not go on from the sums before it, which it would round at every step, but is summed by itself
and added: the rounding error of a sum of K products in blocks of K_b grows with K_b + K / K_b, not with K (Higham, "The
accuracy of floating point summation", 1993; `blocking.MOST_STEPS`). The blocks are those of the plan, whoever computes
them, so that no bit depends on the rows of a call or on how cores share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.types import Dim
from ....kernel_ir.builder import I64PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ...microkernels.emitter import SINGLE, Emitter
from ..tail import Tail

LINE = 16  # elements of a cache line: f32, or as wide
STEPS_AHEAD = 12  # of k: that far ahead a tile asks for a B that is not packed
# Lines that a tile alone asks for ahead of what it reads of a packed B: 16 KiB, half of the smallest first cache. Six
# products by 1024 × 4096 and back, both cores of Zen 5, in turn with a prefetch of some of the next panel (2026-11-28):
# 4 rows 1.8 ms → 1.2, 6 rows 1.9 → 1.4, of weights in 16 bits 1.0 → 0.7 and 1.1 → 0.7; a quarter as far 1.3, 1.5, 0.9
# and 0.9, into the second cache 1.5, 1.7, 0.9 and 0.8. One and two rows the machine sees by itself.
LINES_AHEAD = 256


@dataclass(frozen=True)
class TileShape:
    """One tile function.

    Attributes:
        rows, vectors: size in rows and vector registers. lanes: f32 elements of a register.
        masked: fewer columns may exist than the tile has. indexed: A's element of step k is at offset koff[k]
            of its row (one tap), instead of at k.
        fma: whether the target multiplies and adds in one instruction.
        unroll: steps of k per iteration. exact: kc is always a multiple of it.
        prefetched_rows: rows of the result whose memory an iteration asks for, one after the other: a core can wait for
            few lines at a time, and asking for a whole tile's at once holds up A and B. 0 = all at once, before the
            first step.
        shared: so many tiles together prefetch as much of B as each of them reads; 1: what it will read itself.
        emitter: what an element is, and how a step multiplies.
        b_pitch: elements from a step's columns of B to the next one's, where B is read as it lies; None: it is packed.
        interleaved: A is a copy, [tile][k][rows] (`interleave`): no table, and one tap.
        beside: tiles lie beside one another, of the same rows and bias, each with a panel of B behind the last one's.
        row_pitch: elements of A from a row to the next one, where the table need not say; 0: it does. segment: rows
            that are so far apart, where not all of the tile are; see `matrix_tile`.
        forms: B is the difference of two panels, `b` - `less`, which the tile leaves in `formed` for those after it.
    """

    rows: int
    vectors: int
    lanes: int
    masked: bool = False
    indexed: bool = False
    fma: bool = True
    unroll: int = 4
    exact: bool = False
    prefetched_rows: int = 0
    shared: int = 8
    emitter: Emitter = SINGLE
    b_pitch: int | None = None
    interleaved: bool = False
    beside: bool = False
    segment: int = 0
    row_pitch: int = 0
    forms: bool = False

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes

    @property
    def name(self) -> str:
        lies = self.b_pitch is not None
        marks = ((self.masked, "m"), (self.indexed, "i"), (lies, "l"), (self.interleaved, "c"), (self.beside, "b"),
                 (self.forms, "d"))  # fmt: skip
        return f"tile{self.rows}x{self.width}" + "".join(mark for holds, mark in marks if holds)


def best_unroll(depth: Dim) -> tuple[int, bool]:
    """Steps of k per iteration, and whether they divide `depth`."""
    if isinstance(depth, int):
        for n in (4, 8, 7, 6, 9, 5, 11):
            if depth % n == 0:
                return n, True
    return 4, False


def tile_params(shape: TileShape, tail: Tail) -> list[tuple[str, KType | PtrType]]:
    """Names and types of the parameters, in order. All offsets and strides count elements."""
    element, sums = PtrType(shape.emitter.element), PtrType(shape.emitter.sums)
    b_element = PtrType(shape.emitter.b_element)
    pointers: list[tuple[str, KType | PtrType]] = [
        ("a", element),
        ("zero", element),
        ("table", I64PTR),
        ("b", b_element),
        ("b_ahead", b_element),
        ("bias", sums),
        ("partial", sums),
    ]
    if shape.indexed:
        pointers.append(("koff", I64PTR))
    if shape.forms:
        pointers += [("less", b_element), ("formed", b_element)]
    pointers += tail.params()
    if tail.needs_dims:
        pointers.append(("dims", I64PTR))
    numbers = ["tiles", "table_stride", "taps", "kc", "first", "last", "row", "ahead", "row_step", "column", "pitch"]
    if shape.masked:
        numbers.append("n_columns")
    return pointers + [(n, INDEX) for n in numbers]


def tile_function(name: str, shape: TileShape, tail: Tail) -> KFunc:
    """Build the function of one tile shape and epilogue: `tiles` tiles, below one another or beside."""
    k = Builder(name, tile_params(shape, tail), tail.symbols, inline="never")
    rows, vectors, lanes = range(shape.rows), range(shape.vectors), shape.lanes
    masks: list[KValue | None] = [None] * shape.vectors
    if shape.masked:
        masks = [k.tail_mask(k["n_columns"] - j * lanes, lanes) for j in vectors]

    def tile(number: KValue, _: list[KValue]) -> None:
        below, right = (k.index(0), number) if shape.beside else (number, k.index(0))
        row, column = k["row"] + below * shape.rows * k["row_step"], k["column"] + right * shape.width
        partial = k.gep(k["partial"], below * (shape.rows * shape.width))

        def from_bias() -> list[KValue]:
            bias = [shape.emitter.begin(k, k.load(k["bias"], j * lanes, lanes, masks[j])) for j in vectors]
            return [bias[j] for _ in rows for j in vectors]

        def from_zero() -> list[KValue]:
            zero = shape.emitter.begin(k, k.splat(k.const(0, shape.emitter.sums), lanes))
            return [zero for _ in rows for _ in vectors]

        def with_those_before() -> list[KValue]:
            places = ((i * shape.vectors + j) * lanes for i in rows for j in vectors)
            before = [k.load(partial, place, lanes, align=4 * lanes) for place in places]
            return [total + own for total, own in zip(before, sums, strict=True)]

        def ask(done: KValue) -> None:
            """For the rows of the result after `done` steps; of a sum that goes on, always for the first one."""
            n = shape.prefetched_rows
            at = k.min(k.udiv(done, shape.unroll) * n, shape.rows - n) * k["last"]
            tail.prefetch(k, row + k["ahead"] + at * k["row_step"], n, column, shape.width)

        if not shape.prefetched_rows:
            k.if_(k["last"] != 0, lambda: tail.prefetch(k, row + k["ahead"], shape.rows, column, shape.width))
        acc = k.if_(k["first"] != 0, from_bias, from_zero)
        asks = ask if shape.prefetched_rows else None
        acc = k.for_(0, k["taps"], 1, acc, lambda t, c: one_tap(k, shape, below, right, t, c, asks, masks))
        sums = [shape.emitter.end(k, value) for value in acc]
        totals = k.if_(k["first"] != 0, lambda: sums, with_those_before)

        def keep() -> None:
            for n, value in enumerate(totals):
                k.store(partial, n * lanes, value, align=4 * lanes)

        k.if_(k["last"] != 0, lambda: _finish(k, shape, tail, row, column, totals, masks), keep)

    k.for_(0, k["tiles"], 1, [], tile)
    return k.func


def one_tap(
    k: Builder,
    shape: TileShape,
    tile: KValue,
    panel: KValue,
    tap: KValue,
    acc: list[KValue],
    ask: Callable[[KValue], None] | None,
    masks: list[KValue | None],
) -> list[KValue]:
    """All k steps of one tap of a tile; `ask` is told in every iteration how many steps the tile has made."""
    lanes, kc, packed, each = shape.lanes, k["kc"], shape.b_pitch is None, shape.emitter.width
    multiply_add = shape.emitter.multiply_add
    assert multiply_add is not None
    pitch = shape.width if shape.b_pitch is None else shape.b_pitch
    a = rows_of_a(k, shape, tile, tap)
    b = k.gep(k["b"], (panel + tap) * kc * (pitch * each))
    ahead = k.gep(a[-1], kc * each)  # where the next tile's rows are, if rows follow each other in memory
    b_ahead = k.gep(k["b_ahead"], (tile * k["taps"] + tap) * kc * (shape.width // shape.shared * each))

    def step(kk: KValue, carried: list[KValue]) -> list[KValue]:
        places = [kk * (pitch * each) + j * lanes * each for j in range(shape.vectors)]
        load = shape.emitter.columns
        if packed:
            columns = [load(k, b, place, lanes, None, 4 * lanes) for place in places]
        else:
            columns = [load(k, b, place, lanes, mask, None) for place, mask in zip(places, masks, strict=True)]
        if shape.forms:
            columns = [_form(k, column, place, lanes) for column, place in zip(columns, places, strict=True)]
        at = k.load(k["koff"], kk) if shape.indexed else kk * ((shape.rows if shape.interleaved else 1) * each)
        out = []
        for i in range(shape.rows):
            value = shape.emitter.splat(k, a[i], at, lanes)
            for j, column in enumerate(columns):
                c = carried[i * shape.vectors + j]
                out.append(multiply_add(k, value, column, c, shape.fma))
        return out

    def several(kk: KValue, carried: list[KValue]) -> list[KValue]:
        if not shape.indexed and not shape.interleaved:
            step_lines = shape.rows * (shape.emitter.column_nbytes // 4)
            for at in range(0, step_lines * shape.unroll, LINE):
                k.prefetch(ahead, kk * step_lines + at)
        if not packed:  # the lines of a step are far from the last one's: no machine sees them as one stream
            for u in range(shape.unroll):
                for at in range(0, shape.width, LINE):
                    k.prefetch(b, (kk + (u + STEPS_AHEAD)) * pitch + at)
        if packed and shape.rows > 2:
            _ask_for_b(k, shape, b, b_ahead, kk)
        if ask is not None:
            ask(tap * kc + kk)
        for u in range(shape.unroll):
            carried = step(kk + u, carried)
        return carried

    whole = kc if shape.exact else k.udiv(kc, shape.unroll) * shape.unroll
    acc = k.for_(0, whole, shape.unroll, acc, several)
    return acc if shape.exact else k.for_(whole, kc, 1, acc, step)


def _ask_for_b(k: Builder, shape: TileShape, b: KValue, b_ahead: KValue, kk: KValue) -> None:
    """For the tile's share of a panel ahead, or where it is alone for what it will read itself."""
    each, line = shape.emitter.width, LINE * 32 // shape.emitter.b_element.bits
    base, first, level = (b, LINES_AHEAD * line, 1) if shape.shared == 1 else (b_ahead, 0, 2)
    each_step = shape.width // shape.shared * each
    for at in range(0, shape.width * shape.unroll // shape.shared * each, line):
        k.prefetch(base, kk * each_step + (first + at), level=level)


def _form(k: Builder, column: KValue, place: KValue, lanes: int) -> KValue:
    """A vector of B from one of each of two panels."""
    formed = column - k.load(k["less"], place, lanes, align=4 * lanes)
    k.store(k["formed"], place, formed, align=4 * lanes)
    return formed


def rows_of_a(k: Builder, shape: TileShape, tile: KValue, tap: KValue) -> list[KValue]:
    """Where each row of a tile starts."""
    if shape.interleaved:
        each = shape.emitter.width
        first = k.gep(k["a"], tile * (shape.rows * each) * k["kc"])
        return [k.gep(first, i * each) for i in range(shape.rows)]
    entry = tap * k["table_stride"] + tile * shape.rows
    if shape.row_pitch:
        first = k.gep(k["a"], k.load(k["table"], entry))
        return [k.gep(first, i * shape.row_pitch) for i in range(shape.rows)]
    a = []
    for i in range(shape.rows):
        offset = k.load(k["table"], entry + i)
        a.append(k.select(offset >= 0, k.gep(k["a"], offset), k["zero"]))
    return a


def _finish(
    k: Builder, shape: TileShape, tail: Tail, row: KValue, column: KValue, sums: list[KValue],
    masks: list[KValue | None],
) -> None:  # fmt: skip
    """Apply the tail to the sums; expensive tails go through the stack to keep the code small."""
    lanes, step = shape.lanes, k["row_step"]
    if not tail.heavy:
        for j in range(shape.vectors):
            for i in range(shape.rows):
                tail.apply(k, row + step * i, column + j * lanes, sums[i * shape.vectors + j], masks[j])
        return
    buffer = k.alloca(shape.emitter.sums, shape.rows * shape.width)
    for n, value in enumerate(sums):
        k.store(buffer, n * lanes, value, align=4 * lanes)

    def one_row(i: KValue, _: list[KValue]) -> None:
        for j in range(shape.vectors):
            value = k.load(buffer, i * shape.width + j * lanes, lanes, align=4 * lanes)
            tail.apply(k, row + step * i, column + j * lanes, value, masks[j])

    k.for_(0, shape.rows, 1, [], one_row)
