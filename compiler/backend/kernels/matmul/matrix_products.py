"""MatMul and Gemm by matrix registers: the operands of their kernel, and how the product is blocked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....ir.types import Dim, DType, ceil_div, prod
from ....kernel_ir.builder import I64PTR
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand, Scratch
from ...microkernels.emitter import Emitter
from ...microkernels.table import emitter_of
from ..tail import tail_of
from .blocking import Product, padded_columns, plan_product, static
from .direct import MatMulEmitter, addend_of, bias_vector, constant_matrix, lower_direct
from .matrix_loops import MatrixEmitter, PlacedEmitter, copied_inputs
from .matrix_loops import Rows as SourceRows
from .matrix_tile import LANES
from .pack import packed_panels, pad_vector
from .shapes import Matrices, plan_rows
from .shapes import Rows as ProductRows

SHALLOW, WIDER = 64, 2  # inputs; columns for each
MORE_STEPS = 1.25  # than a copy has
WHOLE = 1 << 60  # steps of a block of k: sums stay in the registers


def plan_matrices(
    ctx: LowerContext, outer: Dim, rows: Dim, columns: Dim, taps: int, depth: int, input_type: DType, emitter: Emitter,
    segment: int = 0,
) -> Product:  # fmt: skip
    """How a product is blocked whose steps are an emitter's, of matrix registers; `depth`: inputs of each tap."""
    steps = ceil_div(depth, emitter.k_step)
    # planned by steps of four bytes, as all others are
    p = plan_product(ctx, outer, rows, columns, taps, steps * emitter.width, lanes=LANES, segment=segment,
                     input_type=input_type, emitter=emitter)  # fmt: skip
    return replace(p, kc=steps, k_block=WHOLE)


def placed_steps(emitter: Emitter, inputs: int, columns: int) -> Emitter | None:
    """The steps of a product whose rows of A are read where they are; None: a copy is faster, or there are none.

    A copy pays where many panels read it. One core of an Emerald Rapids, in turn, medians of 40 (2026-11-29), times of
    1 × 1 convolutions by that with copies: 112² × 16 → 96 0.86, 56² × 144 → 24 0.65, 56² × 64 → 64 0.80, 56² × 256 → 64
    0.77, 14² × 576 → 96 0.70, 14² × 1024 → 256 0.79, 7² × 2048 → 512 0.93; 28² × 128 → 512 1.03, 14² × 256 → 1024 1.05.
    """
    steps = emitter.dividing(inputs)
    if steps is None or (inputs > SHALLOW and columns > WIDER * inputs):
        return None
    return steps if inputs <= MORE_STEPS * ceil_div(inputs, emitter.k_step) * steps.k_step else None


def copied_elements(p: Product) -> Dim:
    """Room for the copy of a block of rows."""
    return p.row_block * (p.taps * static(p.kc) * copied_inputs(p.emitter))


def lower_tiles(ctx: LowerContext, fusion: Fusion, m: Matrices, input_type: DType) -> KernelCall:
    """The kernel call of a product by a constant matrix, by whatever tiles the target has for an element type."""
    lower = lower_matrices if emitter_of(ctx.target, input_type).matrices else lower_direct
    return lower(ctx, fusion, m, input_type)


def lower_matrices(ctx: LowerContext, fusion: Fusion, m: Matrices, input_type: DType) -> KernelCall:
    """The kernel call of a product by a constant matrix; A's rows may be anywhere, of any step from input to input."""
    y = fusion.result.tensor
    columns, depth, matrix = y.dims[y.axis_order[-1]], static(m.depth), constant_matrix(m)
    assert matrix is not None
    rows, emitter = plan_rows(y, m), emitter_of(ctx.target, input_type)
    placed = _placed(m, rows, columns, emitter)
    emitter = placed or emitter.for_depth(depth)
    p = plan_matrices(ctx, prod(y.dims[a] for a in rows.outer), prod(y.dims[a] for a in rows.axes), columns, 1, depth,
                      input_type, emitter)  # fmt: skip
    vector, addend = bias_vector(m, columns), addend_of(m, columns)
    n_bias = 2 * LANES if vector is None else max(padded_columns(vector.size, LANES), 2 * LANES)
    bias = ctx.weights.add(pad_vector(np.zeros(0) if vector is None else vector, n_bias))
    tail = tail_of(fusion, ctx.symbols, addend, m.alpha)
    operands: list[tuple[str, PtrType, Operand]] = [
        ("a", PtrType(m.a.tensor.dtype), m.a),
        ("bias", PtrType(emitter.sums), bias),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", PtrType(emitter.sums), Scratch(64)),
        ("copy", PtrType(emitter.element), Scratch(64 if placed else copied_elements(p) * emitter.element.nbytes)),
        ("b", PtrType(emitter.b_element), packed_panels(ctx, matrix[None], p.kinds, LANES, emitter=emitter)),
        ("koff", I64PTR, ctx.weights.add(np.zeros(1, np.int64))),
    ]
    if addend is not None:
        assert m.c is not None
        operands.append(("addend", PtrType(m.c.tensor.dtype), m.c))

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        places = MatMulEmitter(k, ctx, m, rows, y, p, False, True, vector is not None)
        if placed is not None:
            own = replace(places.operands(columns), koff=k["koff"])
            PlacedEmitter(k, ctx, p, tail, own, row_pitch=static(rows.a_runs[0][1])).emit()
            return k.func
        own = replace(places.operands(columns), a=k["copy"], zero=k["copy"])
        MatrixEmitter(k, ctx, p, tail, own, source=SourceRows(k["a"], depth, m.a_k)).emit()
        return k.func

    func = ctx.function("matmul", fusion.node, build, vector is None, input_type)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work)


def _placed(m: Matrices, rows: ProductRows, columns: Dim, emitter: Emitter) -> Emitter | None:
    """The steps of a product whose rows of A are read where they are."""
    spaced = len(rows.a_runs) == 1 and isinstance(rows.a_runs[0][1], int) and rows.a_runs[0][1] > 0 and m.a_k == 1
    if not spaced or m.a.tensor.dtype != emitter.element or not isinstance(columns, int):
        return None
    return placed_steps(emitter, static(m.depth), columns)
