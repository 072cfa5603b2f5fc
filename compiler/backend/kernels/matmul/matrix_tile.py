"""The tile of matrix registers: two by two of them hold sums, and two more each what of A and of B they multiply.

Owns the function of one tile shape, with the parameters of the register tile's (`tile`), so that the same loops call
it. A is a copy: [tile][step][rows], each as many inputs as a row of a register holds (`matrix_copy`); or with rows that
are evenly spaced, of which the table says where a register's first one is, and `koff` where each tap is from there
(`conv/regions`). Sums are whole: there are no blocks of k.

    for tile in tiles:                      # below one another
        C[i][j] = 0
        for tap, step:
            A[i], B[j] = load;  C[i][j] += A[i] · B[j]
            for some rows of the tile above:  epilogue(bias + buffer);  ask for that row's results of this tile
        buffer = C                          # one of two, in turn

An epilogue takes as long as eight steps of bytes. Behind all steps it would run alone: a core sees no further than half
of it, so that the registers wait. One core of an Emerald Rapids, in turn, medians of 50 to 150 (2026-11-29): ViT 1.09,
BERT 1.06, U-Net 1.06, ResNet50 1.04 in bf16 and 1.03 in 8 bits, MobileNet-v2 1.00.

Speed: on an Emerald Rapids the second cache gives a core 26 bytes a cycle (`parax doctor --measure`, 2026-11-27), and a
step of a full tile takes 2 KiB each of A and of B in 64 cycles: one of both has to come from the first cache.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.types import ceil_div
from ....kernel_ir import matrices
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ....kernel_ir.matrix_registers import ELEMENT_NBYTES, MOST_NBYTES, MOST_ROWS, Shape
from ...microkernels.emitter import Emitter
from ..tail import Tail
from .tile import LINE, TileShape, tile_params

LANES = 16  # columns of a register of sums
FIRST_A, FIRST_B = 4, 6  # numbers of registers


def halves(rows: int, segment: int = 0) -> list[int]:
    """Rows of a tile in each of its registers; `segment`: evenly spaced ones, where not all are."""
    n = rows // segment if segment else ceil_div(rows, MOST_ROWS)
    return [rows // n + (i < rows % n) for i in range(n)]


def matrix_tile_function(name: str, shape: TileShape, tail: Tail) -> KFunc:
    """Build the function of one tile shape and epilogue: `tiles` tiles below one another, all of k."""
    assert shape.lanes == LANES and shape.vectors <= 2 and shape.b_pitch is None and not shape.beside
    k = Builder(name, tile_params(shape, tail), tail.symbols, inline="never")
    heights = halves(shape.rows, shape.segment)
    matrices.shape(k, register_shapes(heights, shape.vectors, shape.emitter.width))
    sums, epilogue = register_sums(heights, shape.vectors), _Epilogue(k, shape, tail)

    def multiply(number: KValue, rows: KValue) -> list[KValue]:
        for register, *_place in sums:
            matrices.zero(k, register)
        return _products(k, shape, heights, number, lambda done: epilogue.some(number - 1, done, rows))

    def keep(number: KValue) -> None:
        for register, at, column in sums:
            matrices.store(k, register, epilogue.buffer(number), at * shape.width + column, shape.width)

    def tile(number: KValue, _: list[KValue]) -> None:
        rows = k.select(number > 0, k.index(shape.rows), k.index(0))  # of the tile above
        (done,) = k.if_(number < k["tiles"], lambda: multiply(number, rows), lambda: [k.index(0)])
        epilogue.rows(number - 1, done, rows)
        k.if_(number < k["tiles"], lambda: keep(number))

    k.for_(0, k["tiles"] + 1, 1, [], tile)
    matrices.release(k)
    return k.func


class _Epilogue:
    """Finishes a tile, whose sums lie in one of two buffers, while the registers multiply the next one's."""

    def __init__(self, k: Builder, shape: TileShape, tail: Tail) -> None:
        self.k, self.shape, self.tail = k, shape, tail
        self.size = shape.rows * shape.width
        self.room = k.alloca(shape.emitter.sums, 2 * self.size)
        self.masks = [k.tail_mask(k["n_columns"] - j * LANES, LANES) if shape.masked else None
                      for j in range(shape.vectors)]  # fmt: skip
        self.bias = [k.load(k["bias"], j * LANES, LANES, mask) for j, mask in enumerate(self.masks)]
        steps = k.max(k["taps"] * k["kc"], 1)
        self.each_step = k.udiv(shape.rows - 1 + steps, steps)

    def buffer(self, number: KValue) -> KValue:
        """The sums of a tile."""
        return self.k.gep(self.room, self.k.urem(number, 2) * self.size)

    def some(self, number: KValue, done: KValue, rows: KValue) -> KValue:
        """A step's share of the `rows` of a tile of which so many are done; how many are now."""
        end = self.k.min(done + self.each_step, rows)
        self.rows(number, done, end)
        return end

    def rows(self, number: KValue, first: KValue, end: KValue) -> None:
        """Rows of a tile; each asks for that of the tile below."""
        k, shape, width = self.k, self.shape, self.shape.width
        row, sums = k["row"] + number * shape.rows * k["row_step"], self.buffer(number)

        def one(i: KValue, _: list[KValue]) -> None:
            for j, mask in enumerate(self.masks):
                value = k.load(sums, i * width + j * LANES, LANES, align=64) + self.bias[j]
                self.tail.apply(k, row + k["row_step"] * i, k["column"] + j * LANES, value, mask)
            self.tail.prefetch(k, row + k["row_step"] * (i + shape.rows), 1, k["column"], width)

        k.for_(first, end, 1, [], one)


def copied_inputs(emitter: Emitter) -> int:
    """Inputs that a copy of A has room for in a step: whole rows of a register, of which fewer may be read."""
    return MOST_NBYTES * 8 // emitter.element.bits


def register_shapes(heights: list[int], vectors: int, elements: int) -> list[Shape]:
    """Of all registers: sums 0 to 3, A's of so many elements a row, and B's."""
    none = Shape(0, 0)
    sums = [Shape(rows, MOST_NBYTES) for rows in heights for _ in range(vectors)]
    sums += [none] * (FIRST_A - len(sums))
    a = [Shape(rows, ELEMENT_NBYTES * elements) for rows in heights]
    a += [none] * (FIRST_B - FIRST_A - len(heights))
    return [*sums, *a, *[Shape(elements, MOST_NBYTES)] * vectors]


def register_sums(heights: list[int], vectors: int) -> list[tuple[int, int, int]]:
    """(number, first row, first column) of each register of sums."""
    return [(i * vectors + j, sum(heights[:i]), j * LANES) for i in range(len(heights)) for j in range(vectors)]


def _products(
    k: Builder, shape: TileShape, heights: list[int], number: KValue, meanwhile: Callable[[KValue], KValue]
) -> list[KValue]:
    """All steps of k; what a later panel reads of B is asked for meanwhile, a share by each tile.

    Args:
        meanwhile: done behind every step; takes what it returned the last time, first 0, which is also the result.
    """
    each, kc = shape.emitter.width, k["kc"]
    inputs = shape.emitter.k_step if shape.row_pitch else copied_inputs(shape.emitter)
    firsts = [sum(heights[:i]) for i in range(len(heights))]
    share = shape.width * each // shape.shared
    ahead = k.gep(k["b_ahead"], number * k["taps"] * kc * share)
    if shape.row_pitch:
        starts = [k.gep(k["a"], k.load(k["table"], number * shape.rows + first)) for first in firsts]
    else:
        starts = [k.gep(k["a"], (number * k["taps"] * kc * shape.rows + first) * inputs) for first in firsts]
    pitch, step_of_a = (shape.row_pitch, inputs) if shape.row_pitch else (inputs, shape.rows * inputs)

    def tap(t: KValue, done: list[KValue]) -> list[KValue]:
        own = [k.gep(start, k.load(k["koff"], t)) for start in starts] if shape.row_pitch else starts

        def step(s: KValue, done: list[KValue]) -> list[KValue]:
            at = t * kc + s
            for line in range(0, share, LINE):
                k.prefetch(ahead, at * share + line, level=2)
            for j in range(shape.vectors):
                matrices.load(k, FIRST_B + j, k["b"], at * (shape.width * each) + j * LANES, shape.width)
            for i in range(len(heights)):
                matrices.load(k, FIRST_A + i, own[i], s * step_of_a, pitch)
                for j in range(shape.vectors):
                    matrices.dot(k, shape.emitter.matrices, i * shape.vectors + j, FIRST_A + i, FIRST_B + j)
            return [meanwhile(done[0])]

        return k.for_(0, kc, 1, done, step)

    return k.for_(0, k["taps"], 1, [k.index(0)], tap)
