"""Products of constant B by Strassen's algorithm: which, and where its tiles find the operands of MatMul and Gemm."""

from __future__ import annotations

from dataclasses import replace

from ....ir.ops.contraction import IntegralMatMul
from ....ir.types import Dim, SymDim, TensorType, prod
from ....kernel_ir.builder import F32, F32PTR, Builder
from ....kernel_ir.loops import PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand
from ..tail import tail_of
from .blocking import LEAST_SEGMENT, Product, static
from .direct import (
    MatMulEmitter,
    ProductAlgorithm,
    ProductLayer,
    addend_of,
    bias_vector,
    blocks,
    constant_matrix,
    has_pairs,
    is_rounded,
    is_tiled,
)
from .gemm import Operands
from .shapes import Matrices, Rows, is_packed, plan_rows
from .strassen import counts
from .strassen import lower as strassen


class HalvesAlgorithm(ProductAlgorithm):
    """Strassen's algorithm, where its sums take less than they save."""

    name = "strassen"
    max_share = counts.MAX_SHARE
    measured_share = strassen.MEASURED_SHARE

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        fusion, m = layer.fusion, layer.matrices
        if not is_tiled(fusion, m) or is_rounded(ctx, fusion, m) or has_pairs(ctx, fusion, m):
            return False
        if not _has_plain_rows(m) or isinstance(fusion.root.op, IntegralMatMul):
            return False
        return strassen.serves(ctx, item_blocks(ctx, fusion, m))

    def cost(self, ctx: LowerContext, layer: ProductLayer) -> float:
        return strassen.expected_share(ctx, item_blocks(ctx, layer.fusion, layer.matrices))

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        own = item_blocks(ctx, layer.fusion, layer.matrices)
        return lower_halves(ctx, layer.fusion, layer.matrices, strassen.plan_halves(ctx, own))


def item_blocks(ctx: LowerContext, fusion: Fusion, m: Matrices) -> Product:
    """How the direct product is blocked, with the rows of a batch's items apart."""
    y = fusion.result.tensor
    return replace(blocks(ctx, fusion, m), segment=item_rows(y, plan_rows(y, m)))


def item_rows(y: TensorType, rows: Rows) -> int:
    """Rows of a product that belong to one item of a batch, one below the other; 0: unknown, or each is an item.

    The batch is the first axis of several, or the symbol that the number of rows is a multiple of.
    """
    if y.rank > 2 and list(rows.axes) == sorted(rows.axes):
        own: Dim = prod(y.dims[a] for a in rows.axes if a > 0)
    elif y.rank == 2 and isinstance(y.dims[0], SymDim):
        own = y.dims[0].factor
    else:
        own = 0
    return own if isinstance(own, int) and own >= LEAST_SEGMENT else 0


def _has_plain_rows(m: Matrices) -> bool:
    """Whether B is packed at compile time and A's rows are read where they are."""
    return is_packed(m) and m.a_k == 1 and m.a.tensor.dtype == F32


def lower_halves(ctx: LowerContext, fusion: Fusion, m: Matrices, p: Product) -> KernelCall:
    """The kernel call of a product of constant B by Strassen's algorithm."""
    y = fusion.result.tensor
    rows, columns, matrix = plan_rows(y, m), static(y.dims[y.axis_order[-1]]), constant_matrix(m)
    assert matrix is not None
    addend = addend_of(m, columns)
    product = strassen.Strassen(ctx, p, matrix, bias_vector(m, columns))
    direct: list[tuple[str, PtrType, Operand]] = [("a", F32PTR, m.a)]
    if addend is not None:
        assert m.c is not None
        direct.append(("addend", PtrType(m.c.tensor.dtype), m.c))

    def operands_of(k: Builder) -> Operands:
        return MatMulEmitter(k, ctx, m, rows, y, p, False, True, True).operands(columns)

    return product.lower(ctx, fusion, tail_of(fusion, ctx.symbols, addend, m.alpha), direct, operands_of)
