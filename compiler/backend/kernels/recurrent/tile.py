"""The small products of recurrent operators: few rows with the panels of one vector of hidden units.

Owns the register tiles and the choice of their height and width. It must not know what the gates mean.

A block's weights are cut into parts of at most two vectors (three gates: one part of three), each a panel [k][vector]
of its own. Few rows take all parts of a block at once: every element of A is then loaded once for all gates. More rows
than such a tile is high take the parts one after the other, in tiles twice as high, so that a weight that comes from
the outer caches serves up to a dozen rows.

    out[i, part, :] = init[i, part, :] + a[i] · part            # i below rows; a[i] by pitch, or by a table of offsets
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ....ir.types import Dim
from ....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ....targets.target import Target
from ...lowering import LowerContext
from ...microkernels.registers import tallest_fit
from ..matmul.tile import best_unroll

LINE = 16  # f32 elements of a cache line
TILES_AHEAD = 4  # that many tiles together prefetch as much of the next panels as each of them reads
NARROW_ROWS = 12  # more rows would need more addresses than there are integer registers
MOST_ROWS = 2 * NARROW_ROWS  # of a product whose rows are counted at run time


def part_vectors(n: int) -> int:
    """Vectors of a part of a block with n gates."""
    return n if n < 4 else 2


def tile_rows(target: Target, vectors: int) -> int:
    """Rows of the tallest tile of `vectors` that neither vector nor integer registers are too few for."""
    return min(NARROW_ROWS, tallest_fit(target, vectors))


@dataclass(frozen=True)
class SmallTile:
    """One tile function.

    Attributes:
        rows: its height. vectors: of all its parts together. part: vectors of a part. lanes: of a vector.
        a_pitch: elements between rows of A, None if a table has their offsets.
        init_pitch, out_pitch: elements between rows of the start and of the result.
        depth: of the product, None if it is an argument. ahead: prefetches the panels of the next block.
    """

    rows: int
    vectors: int
    part: int
    lanes: int
    a_pitch: int | None
    init_pitch: int
    out_pitch: int
    depth: int | None
    ahead: bool


@dataclass
class SmallProduct:
    """Operands of a product with one block; `n` vectors in all. Pitches as in SmallTile."""

    n: int
    a: KValue
    table: KValue | None
    panels: KValue
    depth: Dim
    a_pitch: int | None
    init: KValue
    init_pitch: int
    out: KValue
    out_pitch: int


class SmallProducts:
    """Emits products into a kernel; the tile functions are shared by all kernels of a plan."""

    def __init__(self, k: Builder, ctx: LowerContext) -> None:
        self.k, self.ctx = k, ctx

    def few(self, p: SmallProduct, rows: KValue, most: int) -> None:
        """As few tiles of equal height as possible. `rows` is at most `most`; by cases where it is not known."""
        k = self.k

        def exactly(count: int) -> None:
            wide = tile_rows(self.ctx.target, p.n)
            height, parts = wide, [(0, p.n)]
            if count > wide and p.n > part_vectors(p.n):
                part = part_vectors(p.n)
                height, parts = tile_rows(self.ctx.target, part), [(j, part) for j in range(0, p.n, part)]
            tiles = -(-count // height)
            small, extra = divmod(count, tiles)
            for first, vectors in parts:
                row = 0
                for number in range(tiles):
                    size = small + (number < extra)
                    self._call(p, first, vectors, size, k.index(row), ahead=False)
                    row += size

        def between(low: int, high: int) -> None:
            if low == high:
                exactly(low)
                return
            middle = (low + high) // 2
            k.if_(rows <= middle, lambda: between(low, middle), lambda: between(middle + 1, high))

        if rows.const is not None:
            exactly(int(rows.const))
        else:
            between(1, most)

    def many(self, p: SmallProduct, rows: KValue) -> None:
        """Tiles of the greatest height and one with the rest, for any number of rows."""
        k = self.k
        vectors = p.n if tile_rows(self.ctx.target, p.n) > 4 else part_vectors(p.n)
        height = tile_rows(self.ctx.target, vectors)
        whole = k.udiv(rows, height)
        done = whole * height
        for first in range(0, p.n, vectors):
            def full(i: KValue, _: list[KValue], first: int = first) -> None:
                self._call(p, first, vectors, height, i * height, ahead=True)

            k.for_(0, whole, 1, [], full)
            for n in range(1, height):
                rest = partial(self._call, p, first, vectors, n, done, ahead=False)
                k.if_(rows - done == n, rest)

    def _call(self, p: SmallProduct, first: int, vectors: int, rows: int, row: KValue, ahead: bool) -> None:
        k, lanes = self.k, self.ctx.lanes
        depth = p.depth if isinstance(p.depth, int) else None
        shape = SmallTile(rows, vectors, part_vectors(p.n), lanes, p.a_pitch, p.init_pitch, p.out_pitch, depth, ahead)
        key = ("small_tile", shape)
        if key not in self.ctx.functions:
            name = f"small_tile{rows}x{vectors}_{len(self.ctx.functions)}"
            self.ctx.functions[key] = tile_function(name, shape, self.ctx.target.has_fma)
        size = k.index(p.depth)
        given = {
            "a": p.a if p.a_pitch is None else k.gep(p.a, row * p.a_pitch),
            "table": k.gep(p.table, row) if p.table is not None else None,
            "b": k.gep(p.panels, size * (first * lanes)),
            "b_ahead": k.gep(p.panels, size * ((first + vectors) * lanes) + k.udiv(row, rows) * (
                size * (vectors * lanes // TILES_AHEAD))) if ahead else None,
            "init": k.gep(p.init, row * p.init_pitch + first * lanes),
            "out": k.gep(p.out, row * p.out_pitch + first * lanes),
            "depth": size,
        }  # fmt: skip
        k.call(self.ctx.functions[key], [given[name] for name, _ in tile_params(shape)])


def tile_params(shape: SmallTile) -> list[tuple[str, KType | PtrType]]:
    """Names and types of a tile's parameters, in order."""
    params: list[tuple[str, KType | PtrType]] = [("a", F32PTR)]
    if shape.a_pitch is None:
        params.append(("table", I64PTR))
    params.append(("b", F32PTR))
    if shape.ahead:
        params.append(("b_ahead", F32PTR))
    params += [("init", F32PTR), ("out", F32PTR)]
    if shape.depth is None:
        params.append(("depth", INDEX))
    return params


def tile_function(name: str, shape: SmallTile, has_fma: bool) -> KFunc:
    """rows × vectors accumulators carried through k, a function of its own so that none spills."""
    k = Builder(name, tile_params(shape), inline="never")
    lanes, part, rows = shape.lanes, shape.part, range(shape.rows)
    depth = k.index(shape.depth) if shape.depth is not None else k["depth"]
    places = [(i, j * lanes) for i in rows for j in range(shape.vectors)]
    if shape.a_pitch is None:
        a = [(k.gep(k["a"], k.load(k["table"], i)), 0) for i in rows]
    else:
        a = [(k["a"], i * shape.a_pitch) for i in rows]
    panels = [k.gep(k["b"], depth * (first * lanes)) for first in range(0, shape.vectors, part)]
    unroll, exact = best_unroll(shape.depth) if shape.depth else (4, False)

    def step(kk: KValue, acc: list[KValue]) -> list[KValue]:
        at = [kk * (part * lanes) + j * lanes for j in range(part)]
        columns = [k.load(b, i, lanes, align=4 * lanes) for b in panels for i in at]
        out: list[KValue] = []
        for row, shift in a:  # one after the other: all at once would need more registers than there are
            v = k.splat(k.load(row, kk + shift), lanes)
            own = zip(columns, acc[len(out) :])
            out += [k.fma(v, c, s) if has_fma else s + v * c for c, s in own]
        return out

    def several(kk: KValue, acc: list[KValue]) -> list[KValue]:
        if shape.ahead:
            width = shape.vectors * lanes // TILES_AHEAD
            for at in range(0, width * unroll, LINE):
                k.prefetch(k["b_ahead"], kk * width + at, level=2)
        for u in range(unroll):
            acc = step(kk + u, acc)
        return acc

    acc = [k.load(k["init"], shape.init_pitch * i + j, lanes) for i, j in places]
    whole = depth if exact else k.udiv(depth, unroll) * unroll
    acc = k.for_(0, whole, unroll, acc, several)
    if not exact:
        acc = k.for_(whole, depth, 1, acc, step)
    for (i, j), value in zip(places, acc, strict=True):
        k.store(k["out"], shape.out_pitch * i + j, value)
    return k.func
