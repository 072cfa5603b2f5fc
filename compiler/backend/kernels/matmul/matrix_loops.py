"""The loops around the tile of matrix registers, and the copy of A that it reads where rows are not evenly spaced.

Owns where rows of a copy go: [tile][step][row of the tile], each as many inputs as a row of a register holds, zeros
behind the last ones of a tap. Rows are found through the table of offsets that all products have, so that a matrix
product and each tap of a convolution are copied by the same function; those of the right type are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ....ir.types import Dim
from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, PtrType
from ...lowering import LowerContext
from ...microkernels.emitter import Emitter
from .blocking import Product
from .gemm import ProductEmitter
from .matrix_tile import copied_inputs

BELOW = (32, 16, 4, 1)  # heights of tiles that cover any number of rows


@dataclass(frozen=True)
class Rows:
    """The rows of A that are copied.

    Attributes:
        base: of all. depth: inputs of a tap. step: elements from one to the next.
        margin: what rows consist of that are nowhere.
    """

    base: KValue
    depth: int
    step: Dim = 1
    margin: int = 0


class RegisterEmitter(ProductEmitter):
    """What all loops of matrix registers share: blocks of rows in turn, and few heights of tiles for what is left."""

    by_blocks = True

    def sizes_below(self, m: int) -> list[int]:
        return [size for size in BELOW if size <= m]


class SpacedEmitter(RegisterEmitter):
    """Emits the loops of one Product of matrix registers whose rows of A are evenly spaced, segment by segment.

    Args:
        row_pitch: elements between rows of A. segment: rows that are evenly spaced, at most a register's, of which
            blocks of rows are multiples. The operands' `koff` says where taps are.
    """

    def __init__(self, k: Builder, ctx: LowerContext, product: Product, *given: Any, row_pitch: int, segment: int):
        super().__init__(k, ctx, replace(product, indexed=True), *given)
        self.row_pitch, self.segment = row_pitch, segment

    def heights(self, count: KValue, known: int | None, m: int) -> list[tuple[int, KValue, KValue]]:
        """Two segments a tile, and a last one."""
        k, two = self.k, 2 * self.segment
        n = k.udiv(count, two) if known is None else k.index(known // two)
        rest = k.udiv(count - n * two, self.segment) if known is None else k.index(known % two // self.segment)
        return [(size, low, tiles) for size, low, tiles in ((two, k.index(0), n), (self.segment, n * two, rest))
                if tiles.const != 0]  # fmt: skip

    def spacing(self, rows: int) -> tuple[int, int]:
        return self.segment, self.row_pitch


class PlacedEmitter(RegisterEmitter):
    """Emits the loops of one Product of matrix registers whose rows of A are read where they are, all evenly spaced.

    Args:
        row_pitch: elements between rows of A. The operands' `koff` says where taps are.
    """

    def __init__(self, k: Builder, ctx: LowerContext, product: Product, *given: Any, row_pitch: int) -> None:
        super().__init__(k, ctx, replace(product, indexed=True), *given)
        self.row_pitch = row_pitch

    def spacing(self, rows: int) -> tuple[int, int]:
        return 0, self.row_pitch


class MatrixEmitter(RegisterEmitter):
    """Emits the loops of one Product of matrix registers, whose operands' `a` is room for a block of rows.

    Args:
        source: what is copied there.
    """

    def __init__(self, k: Builder, ctx: LowerContext, product: Product, *given: Any, source: Rows) -> None:
        super().__init__(k, ctx, replace(product, taps=1, kc=product.taps * product.kc), *given)
        self.taps_of_a, self.steps_of_tap, self.source = product.taps, product.kc, source

    def begin_block(self, outer: KValue, row0: KValue, count: KValue) -> None:
        super().begin_block(outer, row0, count)
        self.when_known(count, lambda known: self.copy(count, known))

    def copy(self, count: KValue, known: int | None) -> None:
        """The block's rows, in the order of its tiles."""
        for height, low, tiles in self.heights(count, known, self.height(0)):
            self.copy_tiles(height, low, tiles)

    def copy_tiles(self, height: int, low: KValue, tiles: KValue) -> None:
        """Those of a height, from a row of the block on."""
        k = self.k
        function = matrix_copy(self.ctx, self.source, height, self.p.emitter)
        k.call(function, [
            self.source.base, k.gep(self.o.table, low), k.gep(self.o.a, low * self.elements_of_row()), tiles,
            k.index(self.p.row_block), k.index(self.taps_of_a), k.index(self.steps_of_tap),
            k.index(self.source.depth), k.index(self.source.step),
        ])  # fmt: skip

    def elements_of_row(self) -> KValue:
        """That a copied row takes."""
        return self.k.index(self.p.kc * copied_inputs(self.p.emitter))

    def tile_of_a(self, step: Any, row: KValue) -> KValue:
        return self.k.gep(step.a, row * self.elements_of_row())

    def height(self, vectors: int) -> int:
        """One copy of A serves panels of all widths."""
        return super().height(max(kind.vectors for kind in self.p.kinds))


def matrix_copy(ctx: LowerContext, source: Rows, rows: int, emitter: Emitter) -> KFunc:
    """A function that copies tiles of A through a table of offsets, as the inputs of a kind of matrix product.

    For t in [0, tiles), tap in [0, taps), s in [0, steps), i in [0, rows): the elements of
    dst from (((t · taps + tap) · steps + s) · rows + i) · room on are inputs s · k_step … of the row that starts at
    src[table[tap · pitch + t · rows + i]]: zeros from `depth` on; the margin where that entry is negative. `room` is
    what `copied_inputs` says; what stands there behind a step is not read.
    """
    dtype, contiguous = source.base.dtype, source.step == 1
    key = ("matrix_copy", dtype, rows, emitter, contiguous, source.margin)
    if key not in ctx.functions:
        numbers = ("tiles", "pitch", "taps", "steps", "depth", "step")
        k = Builder(f"matrix_copy{rows}_{dtype}_{len(ctx.functions)}",
                    [("src", PtrType(dtype)), ("table", PtrType(INDEX.dtype)), ("dst", PtrType(emitter.element)),
                     *((n, INDEX) for n in numbers)], inline="never")  # fmt: skip
        _Copy(k, rows, emitter, contiguous, source.margin).emit()
        ctx.functions[key] = k.func
    return ctx.functions[key]


class _Copy:
    """The loops of one copying function."""

    def __init__(self, k: Builder, rows: int, emitter: Emitter, contiguous: bool, margin: int) -> None:
        self.k, self.rows, self.emitter, self.contiguous, self.margin = k, rows, emitter, contiguous, margin
        self.room = copied_inputs(emitter)

    def emit(self) -> None:
        k = self.k
        k.for_(0, k["tiles"], 1, [], lambda t, _: k.for_(0, k["taps"], 1, [], lambda p, _: self.tap(t, p)) and None)

    def tap(self, tile: KValue, tap: KValue) -> None:
        k = self.k
        place = k.gep(k["dst"], (tile * k["taps"] + tap) * k["steps"] * (self.rows * self.room))
        entry = tap * k["pitch"] + tile * self.rows

        def row(i: KValue, _: list[KValue]) -> None:
            offset, own = k.load(k["table"], entry + i), k.gep(place, i * self.room)
            k.if_(offset >= 0, lambda: self.row(k.gep(k["src"], offset), own), lambda: self.pad(own))

        k.for_(0, self.rows, 1, [], row)

    def row(self, src: KValue, place: KValue) -> None:
        """One row: whole steps, and one whose last inputs are missing."""
        k, each = self.k, self.emitter.k_step
        whole = k.udiv(k["depth"], each)
        only = None if each == self.room else k.index(each)
        k.for_(0, whole, 1, [], lambda s, _: self.keep(place, s, self.inputs(src, s * each, only)))
        rest = k["depth"] - whole * each
        k.if_(rest > 0, lambda: self.keep(place, whole, self.inputs(src, whole * each, rest)))

    def pad(self, place: KValue) -> None:
        k = self.k
        margin = k.cast(k.splat(k.const(self.margin, F32), self.room), self.emitter.element)
        k.for_(0, k["steps"], 1, [], lambda s, _: self.keep(place, s, margin))

    def keep(self, place: KValue, step: KValue, value: KValue) -> None:
        self.k.store(place, step * (self.rows * self.room), value, align=64)

    def inputs(self, src: KValue, at: KValue, count: KValue | None) -> KValue:
        """A step's inputs from number `at` on, of which `count` are there."""
        k, each = self.k, self.room
        mask = None if count is None else k.tail_mask(count, each)
        if self.contiguous:
            value = k.load(src, at, each, mask)
        else:
            value = k.gather(src, (k.splat(at, each) + k.ramp(each)) * k.splat(k["step"], each), mask)
        return k.cast(value, self.emitter.element)
