"""Products of constant B by Strassen's algorithm: which, and the kernel that has the direct product beside it."""

from __future__ import annotations

from ....ir.ops.contraction import IntegralMatMul
from ....ir.types import exact_max
from ....kernel_ir.builder import F32
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch
from .direct import (
    DirectProduct,
    ProductAlgorithm,
    ProductLayer,
    blocks,
    constant_matrix,
    has_pairs,
    is_rounded,
    is_tiled,
)
from .shapes import Matrices, is_packed, plan_rows
from .strassen import counts
from .strassen import lower as strassen
from .strassen.items import Items, items_of

MEASURED_SHARE = 1.05  # of the direct product's time, up to which measurements may find it faster


class HalvesAlgorithm(ProductAlgorithm):
    """Strassen's algorithm, where its sums take less than they save."""

    name = "strassen"
    max_share = counts.MAX_SHARE
    measured_share = MEASURED_SHARE

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        fusion, m = layer.fusion, layer.matrices
        if not is_tiled(fusion, m) or is_rounded(ctx, fusion, m) or has_pairs(ctx, fusion, m):
            return False
        if not _has_plain_rows(m) or isinstance(fusion.root.op, IntegralMatMul):
            return False
        return strassen.serves(ctx, blocks(ctx, fusion, m), _items(fusion, m))

    def cost(self, ctx: LowerContext, layer: ProductLayer) -> float:
        items = _items(layer.fusion, layer.matrices)
        assert items is not None
        return strassen.expected_share(ctx, blocks(ctx, layer.fusion, layer.matrices), items)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_halves(ctx, layer.fusion, layer.matrices)


def _items(fusion: Fusion, m: Matrices) -> Items | None:
    y = fusion.result.tensor
    return items_of(y, plan_rows(y, m))


def _has_plain_rows(m: Matrices) -> bool:
    """Whether B is packed at compile time and A's rows are read where they are."""
    return is_packed(m) and m.a_k == 1 and m.a.tensor.dtype == F32


def lower_halves(ctx: LowerContext, fusion: Fusion, m: Matrices) -> KernelCall:
    """The kernel call of a product of constant B by Strassen's algorithm; of items with few rows, the direct one."""
    product, items, matrix = DirectProduct(ctx, fusion, m), _items(fusion, m), constant_matrix(m)
    assert items is not None and matrix is not None
    halves, long = strassen.Strassen(ctx, product.p, items, matrix), items.are_long
    table = Scratch(8 * exact_max(product.p.table_entries, halves.table_entries))
    operands = [(n, t, table if n == "table" else o) for n, t, o in product.operands] + halves.operands
    operands.sort(key=lambda o: o[0] in ('partial', 'apack'))

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())

        def by_halves() -> None:
            halves.emit(k, ctx, product.tail, product.places(k, halves.p).operands(product.columns))

        if long == 1:
            by_halves()
        else:
            k.if_(k.index(long) != 0, by_halves, lambda: product.emit(k))
        return k.func

    func = ctx.function("strassen", fusion.node, build, product.biased)
    work = halves.work * long + product.p.work * (1 - long)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), work)
