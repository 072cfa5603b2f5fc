"""Products of attention's register tile by packed panels of B, and how these are packed.

Where operands are bf16 and the target has an instruction for their pairs, tiles multiply those: a panel is [steps of
two][width] of pairs, zeros filling the last one up. Matrix registers read such panels, too, 16 steps at once, whose
last ones are zeros. Elsewhere everything is f32, whatever the operands are kept as.

Error of an element y = Σ p·v of operands that are bf16, with p the softmax of their scores and u = 2^-8: the numbers
that multiply v and the result round once each, so that |y - exact| <= (2u + u²) Σ p·|v|, besides what f32 loses. The
sum that p is divided by is of numbers that are not rounded.
"""

from __future__ import annotations

from functools import partial

from ....ir.types import BF16, U16, U32, DType
from ....kernel_ir import matrices
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, PtrType
from ....targets.target import Target
from ...lowering import LowerContext
from ...microkernels.bf16 import MATRICES, PAIRS
from ...microkernels.emitter import SINGLE, Emitter
from ...microkernels.table import emitter_of, products_of_f32s
from ..matmul.matrix_tile import FIRST_A, FIRST_B, LANES, halves, register_shapes, register_sums
from ..matmul.pack import transpose_square

PAIR = PAIRS.k_step
STEP = MATRICES.width  # pairs of a row of a matrix register


def has_matrices(target: Target, dtype: DType) -> bool:
    """Whether matrix registers multiply operands of a type."""
    return dtype == BF16 and emitter_of(target, BF16) is MATRICES

def emitter_for(target: Target, dtype: DType) -> Emitter:
    """How tiles multiply operands of a type: pairs of bf16 unless the target is known to be slower by them."""
    paired = dtype == BF16 and emitter_of(target, BF16) is PAIRS and products_of_f32s(target, BF16) >= 1
    return PAIRS if paired or has_matrices(target, dtype) else SINGLE


def product_function(ctx: LowerContext, rows: int, vectors: int, emitter: Emitter) -> KFunc:
    """C += A · B (C = A · B if `first`) for `tiles` tiles of rows below one another; B is a packed panel.

    `depth` counts the emitter's steps, pitches count elements.
    """
    if emitter is PAIRS and has_matrices(ctx.target, BF16):
        return _matrix_product_function(ctx, rows, vectors)
    key = ("attention_product", rows, vectors, ctx.lanes, emitter)
    if key in ctx.functions:
        return ctx.functions[key]
    lanes, width, multiply_add = ctx.lanes, vectors * ctx.lanes, emitter.multiply_add
    assert multiply_add is not None
    numbers = ("a_pitch", "c_pitch", "depth", "first", "tiles")
    pointers = [("a", PtrType(emitter.element)), ("b", PtrType(emitter.b_element)), ("c", F32PTR)]
    mark = "" if emitter is SINGLE else f"_{emitter.element}"
    k = Builder(f"attention_product{rows}x{width}{mark}", [*pointers, *((n, INDEX) for n in numbers)], inline="never")
    zero, each = k.splat(k.const(0.0, F32), lanes), emitter.width

    def tile(number: KValue, _: list[KValue]) -> None:
        a = [k.gep(k["a"], (number * rows + i) * k["a_pitch"]) for i in range(rows)]
        c = [k.gep(k["c"], (number * rows + i) * k["c_pitch"]) for i in range(rows)]

        def step(kk: KValue, acc: list[KValue]) -> list[KValue]:
            places = [kk * (width * each) + j * lanes * each for j in range(vectors)]
            b = [emitter.columns(k, k["b"], place, lanes, None, 4 * lanes) for place in places]
            out = []
            for i in range(rows):
                x = emitter.splat(k, a[i], kk * each, lanes)
                out += [multiply_add(k, x, b[j], acc[i * vectors + j], ctx.target.has_fma) for j in range(vectors)]
            return out

        def kept() -> list[KValue]:
            return [k.load(c[i], j * lanes, lanes) for i in range(rows) for j in range(vectors)]

        start = k.if_(k["first"] != 0, lambda: [zero + 0.0] * (rows * vectors), kept)
        acc = k.for_(0, k["depth"], 1, start, step, unroll=4)
        for n, value in enumerate(acc):
            k.store(c[n // vectors], n % vectors * lanes, value)

    k.for_(0, k["tiles"], 1, [], tile)
    ctx.functions[key] = k.func
    return k.func


def _matrix_product_function(ctx: LowerContext, rows: int, vectors: int) -> KFunc:
    """The same by matrix registers: `depth` is a multiple of STEP."""
    key = ("attention_matrix_product", rows, vectors)
    if key in ctx.functions:
        return ctx.functions[key]
    width, heights = vectors * LANES, halves(rows)
    numbers = ("a_pitch", "c_pitch", "depth", "first", "tiles")
    pointers = [("a", PtrType(BF16)), ("b", PtrType(U16)), ("c", F32PTR)]
    k = Builder(f"attention_matrix_product{rows}x{width}", [*pointers, *((n, INDEX) for n in numbers)], inline="never")
    sums = register_sums(heights, vectors)
    matrices.shape(k, register_shapes(heights, vectors, STEP))

    def tile(number: KValue, _: list[KValue]) -> None:
        c = k.gep(k["c"], number * rows * k["c_pitch"])
        each = [(register, at * k["c_pitch"] + column) for register, at, column in sums]
        for register, place in each:
            k.if_(k["first"] != 0, partial(matrices.zero, k, register),
                  partial(matrices.load, k, register, c, place, k["c_pitch"]))  # fmt: skip

        def step(s: KValue, _: list[KValue]) -> None:
            for j in range(vectors):
                matrices.load(k, FIRST_B + j, k["b"], s * (STEP * PAIR * width) + j * LANES * PAIR, width * PAIR)
            for i in range(len(heights)):
                row = number * rows + sum(heights[:i])
                matrices.load(k, FIRST_A + i, k["a"], row * k["a_pitch"] + s * (STEP * PAIR), k["a_pitch"])
                for j in range(vectors):
                    matrices.dot(k, MATRICES.matrices, i * vectors + j, FIRST_A + i, FIRST_B + j)

        k.for_(0, k.udiv(k["depth"], STEP), 1, [], step)
        for register, place in each:
            matrices.store(k, register, c, place, k["c_pitch"])

    k.for_(0, k["tiles"], 1, [], tile)
    matrices.release(k)
    ctx.functions[key] = k.func
    return k.func


def pack_function(ctx: LowerContext, row_step: object, column_step: object, steps: int = 1) -> KFunc:
    """A function that packs rows × columns of bf16 as one panel of pairs: (src, dst, rows, columns, their two steps,
    width). Rows are steps of k; columns from `columns` on, and rows up to a multiple of `steps` pairs, are zeros.

    Args:
        row_step, column_step: the steps, where they are known: a step of 1 is read in vectors.
    """
    mode = "columns" if column_step == 1 else "rows" if row_step == 1 else "any"
    key = ("attention_pack", mode, ctx.lanes, steps)
    if key not in ctx.functions:
        numbers = ("rows", "columns", "row_step", "column_step", "width")
        pointers = [("src", PtrType(BF16)), ("dst", PtrType(U16))]
        k = Builder(f"attention_pack_{mode}", [*pointers, *((n, INDEX) for n in numbers)], inline="never")
        count = k.udiv(k["rows"] + (PAIR * steps - 1), PAIR * steps) * steps
        {"columns": _from_columns, "rows": _from_rows, "any": _from_any}[mode](k, ctx.lanes, count)
        ctx.functions[key] = k.func
    return ctx.functions[key]


def _from_columns(k: Builder, lanes: int, steps: KValue) -> None:
    """Columns lie side by side: two rows are merged."""
    order = [lane + half for lane in range(lanes) for half in (0, lanes)]

    def pair(t: KValue, _: list[KValue]) -> None:
        first = t * PAIR
        sources = [k.gep(k["src"], (first + i) * k["row_step"]) for i in range(PAIR)]

        def vector(c: KValue, _: list[KValue]) -> None:
            left = k["columns"] - c
            counts = [k.select(first + i < k["rows"], left, k.index(0)) for i in range(PAIR)]
            rows = [k.load(source, c, lanes, k.tail_mask(n, lanes)) for source, n in zip(sources, counts, strict=True)]
            low, high = (k.bitcast(row, U16) for row in rows)
            k.store(k["dst"], (t * k["width"] + c) * PAIR, k.shuffle(low, high, order))

        k.for_(0, k["width"], lanes, [], vector)

    k.for_(0, steps, 1, [], pair)


def _from_rows(k: Builder, lanes: int, steps: KValue) -> None:
    """A column's rows lie side by side, so that its pairs do: squares of pairs are turned."""

    def square(t: KValue, c: KValue) -> None:
        left = k["rows"] - t * PAIR
        columns = []
        for j in range(lanes):
            count = k.select((c + j < k["columns"]) & (left > 0), left, k.index(0))
            at = t * PAIR + (c + j) * k["column_step"]
            columns.append(k.bitcast(k.load(k["src"], at, PAIR * lanes, k.tail_mask(count, PAIR * lanes)), U32))
        for u, row in enumerate(transpose_square(k, columns)):
            place = ((t + u) * k["width"] + c) * PAIR
            k.if_(t + u < steps, lambda place=place, row=row: k.store(k["dst"], place, k.bitcast(row, U16)))  # type: ignore[misc]

    k.for_(0, steps, lanes, [], lambda t, _: k.for_(0, k["width"], lanes, [], lambda c, _: square(t, c)) and None)


def _from_any(k: Builder, lanes: int, steps: KValue) -> None:
    """One element at a time."""

    def number(row: KValue, c: KValue) -> list[KValue]:
        return [k.bitcast(k.load(k["src"], row * k["row_step"] + c * k["column_step"]), U16)]

    def element(t: KValue, c: KValue) -> None:
        for i in range(PAIR):
            row = t * PAIR + i
            found = k.if_((row < k["rows"]) & (c < k["columns"]), partial(number, row, c), lambda: [k.const(0, U16)])
            k.store(k["dst"], (t * k["width"] + c) * PAIR + i, found[0])

    k.for_(0, steps, 1, [], lambda t, _: k.for_(0, k["width"], 1, [], lambda c, _: element(t, c)) and None)
