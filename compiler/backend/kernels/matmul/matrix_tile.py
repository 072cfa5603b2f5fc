"""The tile of matrix registers: two by two of them hold sums, and two more each what of A and of B they multiply.

Owns the function of one tile shape, with the parameters of the register tile's (`tile`), so that the same loops call
it. A is a copy (`matrix_copy`): [tile][step][rows] of a register's rows, each of a step's inputs. Blocks of k are whole
sums: the registers would have to be written and read again between them.

    for tile in tiles:                      # below one another
        C[i][j] = 0
        for step in kc:  A[i], B[j] = load;  C[i][j] += A[i] · B[j]
        buffer = C;  for row, vector:  epilogue(bias + buffer)
"""

from __future__ import annotations

from ....ir.types import ceil_div
from ....kernel_ir import matrices
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ....kernel_ir.matrix_registers import MOST_NBYTES, MOST_ROWS, Shape
from ..tail import Tail
from .tile import LINE, TileShape, tile_params

LANES = 16  # columns of a register of sums
_A, _B = 4, 6  # numbers of the first registers of A and of B


def halves(rows: int) -> list[int]:
    """Rows of a tile in each of its registers."""
    n = ceil_div(rows, MOST_ROWS)
    return [rows // n + (i < rows % n) for i in range(n)]


def matrix_tile_function(name: str, shape: TileShape, tail: Tail) -> KFunc:
    """Build the function of one tile shape and epilogue: `tiles` tiles below one another, all of k."""
    assert shape.lanes == LANES and shape.vectors <= 2 and shape.b_pitch is None and not shape.beside
    k = Builder(name, tile_params(shape, tail), tail.symbols, inline="never")
    registers, heights = _shapes(shape), halves(shape.rows)
    matrices.shape(k, registers)
    buffer = k.alloca(shape.emitter.sums, shape.rows * shape.width)
    vectors = range(shape.vectors)
    masks = [k.tail_mask(k["n_columns"] - j * LANES, LANES) if shape.masked else None for j in vectors]
    bias = [k.load(k["bias"], j * LANES, LANES, masks[j]) for j in vectors]

    def tile(number: KValue, _: list[KValue]) -> None:
        row = k["row"] + number * shape.rows * k["row_step"]
        k.for_(0, shape.rows, 1, [], lambda i, _: tail.prefetch(k, row + k["row_step"] * i, 1, k["column"], shape.width))
        _products(k, shape, heights, number)
        for i, j, at in _sums(heights, shape.vectors):
            matrices.store(k, i * shape.vectors + j, buffer, at * shape.width + j * LANES, shape.width)

        def one_row(i: KValue, _: list[KValue]) -> None:
            for j in vectors:
                value = k.load(buffer, i * shape.width + j * LANES, LANES, align=64) + bias[j]
                tail.apply(k, row + k["row_step"] * i, k["column"] + j * LANES, value, masks[j])

        k.for_(0, shape.rows, 1, [], one_row)

    k.for_(0, k["tiles"], 1, [], tile)
    matrices.release(k)
    return k.func


def _shapes(shape: TileShape) -> list[Shape]:
    """Of all registers: sums 0 to 3, A's and B's."""
    heights, none = halves(shape.rows), Shape(0, 0)
    sums = [Shape(rows, MOST_NBYTES) for rows in heights for _ in range(shape.vectors)]
    sums += [none] * (_A - len(sums))
    a = [Shape(rows, MOST_NBYTES) for rows in heights] + [none] * (_B - _A - len(heights))
    return [*sums, *a, *[Shape(MOST_ROWS, MOST_NBYTES)] * shape.vectors]


def _sums(heights: list[int], vectors: int) -> list[tuple[int, int, int]]:
    """(register of A, of B, first row) of each register of sums."""
    return [(i, j, sum(heights[:i])) for i in range(len(heights)) for j in range(vectors)]


def _products(k: Builder, shape: TileShape, heights: list[int], number: KValue) -> None:
    """All steps of k; what a later panel reads of B is asked for meanwhile, a share by each tile."""
    each, inputs, kc = shape.emitter.width, shape.emitter.k_step, k["kc"]
    a = k.gep(k["a"], number * shape.rows * kc * inputs)
    share = shape.width * each // shape.shared
    ahead = k.gep(k["b_ahead"], number * kc * share)
    for i, j, _ in _sums(heights, shape.vectors):
        matrices.zero(k, i * shape.vectors + j)

    def step(s: KValue, _: list[KValue]) -> None:
        for at in range(0, share, LINE):
            k.prefetch(ahead, s * share + at, level=2)
        for j in range(shape.vectors):
            matrices.load(k, _B + j, k["b"], s * (shape.width * each) + j * LANES, shape.width)
        for i in range(len(heights)):
            matrices.load(k, _A + i, a, (s * shape.rows + sum(heights[:i])) * inputs, inputs)
            for j in range(shape.vectors):
                matrices.dot(k, shape.emitter.matrices, i * shape.vectors + j, _A + i, _B + j)

    k.for_(0, kc, 1, [], step)
