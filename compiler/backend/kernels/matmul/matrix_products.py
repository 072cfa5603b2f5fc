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
from .matrix_loops import MatrixEmitter, copied_inputs
from .matrix_loops import Rows as SourceRows
from .matrix_tile import LANES
from .pack import packed_panels, pad_vector
from .shapes import Matrices, plan_rows

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
    rows, emitter = plan_rows(y, m), emitter_of(ctx.target, input_type).for_depth(depth)
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
        ("copy", PtrType(emitter.element), Scratch(copied_elements(p) * emitter.element.nbytes)),
        ("b", PtrType(emitter.b_element), packed_panels(ctx, matrix[None], p.kinds, LANES, emitter=emitter)),
    ]
    if addend is not None:
        assert m.c is not None
        operands.append(("addend", PtrType(m.c.tensor.dtype), m.c))

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        places = MatMulEmitter(k, ctx, m, rows, y, p, False, True, vector is not None)
        own = replace(places.operands(columns), a=k["copy"], zero=k["copy"])
        MatrixEmitter(k, ctx, p, tail, own, source=SourceRows(k["a"], depth, m.a_k)).emit()
        return k.func

    func = ctx.function("matmul", fusion.node, build, vector is None, input_type)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work)
