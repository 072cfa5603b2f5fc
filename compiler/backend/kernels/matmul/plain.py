"""MatMul and Gemm of any element type and layout, vectorised over the result's innermost axis."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.types import Dim, DType, TensorType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion, register_dtype
from ...lowering import KernelCall, LowerContext, Operand, unsupported
from ..plain import Term, emit_plain, strided_load
from .direct import ProductAlgorithm, ProductLayer, is_tiled
from .shapes import Matrices


class PlainAlgorithm(ProductAlgorithm):
    """What no register tile serves."""

    name = "plain"

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        return not is_tiled(layer.fusion, layer.matrices)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_plain_matmul(ctx, layer.fusion, layer.matrices)


def lower_plain_matmul(ctx: LowerContext, fusion: Fusion, m: Matrices) -> KernelCall:
    """Any element type and layout; integers wrap as NumPy's."""
    y = fusion.result.tensor
    dtype = register_dtype(y.dtype)
    if (m.alpha != 1 or (m.beta != 1 and m.c is not None)) and not y.dtype.is_float:
        raise unsupported(fusion.root, "alpha and beta on integers")
    operands: list[tuple[str, PtrType, Operand]] = [
        ("x", PtrType(m.a.tensor.dtype), m.a),
        ("w", PtrType(m.b.tensor.dtype), m.b),
    ]
    if m.c is not None:
        operands.append(("c", PtrType(m.c.tensor.dtype), m.c))
    emitter = PlainMatMul(m, y, dtype)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        emitter.emit(k, fusion, ctx.lanes)
        return k.func

    work = prod(y.dims[a] for a in y.axis_order[:-1])
    return KernelCall(
        ctx.function("plain_matmul", fusion.node, build), (*(o for _, _, o in operands), *fusion.operands()), work
    )


class PlainMatMul:
    """Addresses of one product."""

    def __init__(self, m: Matrices, y: TensorType, dtype: DType) -> None:
        self.m, self.y, self.dtype = m, y, dtype
        self.inner = y.axis_order[-1] if y.rank else None

    def emit(self, k: Builder, fusion: Fusion, lanes: int) -> None:
        """The whole kernel."""
        m = self.m

        def term(index: list[KValue], column: KValue, inside: list[KValue]) -> Term:
            a_at = self.at(k, m.a_strides, index, column) + inside[0] * k.index(m.a_k)
            b_at = self.at(k, m.b_strides, index, column) + inside[0] * k.index(m.b_k)
            return Term(a_at, b_at, self.step(m.a_strides), self.step(m.b_strides))

        def start(index: list[KValue], column: KValue, n: int, mask: KValue | None) -> KValue:
            return k.const(0, self.dtype)

        def finish(total: KValue, index: list[KValue], column: KValue, n: int, mask: KValue | None) -> KValue:
            total = total if m.alpha == 1 else total * m.alpha
            return total if m.c is None or m.beta == 0 else total + self.addend(k, m.c.tensor, index, column, n, mask)

        emit_plain(k, fusion, self.dtype, lanes, [m.depth], term, start, finish)

    def addend(self, k: Builder, t: TensorType, index: list[KValue], column: KValue, lanes: int,
               mask: KValue | None) -> KValue:  # fmt: skip
        """beta · C, of type t."""
        beta, y = self.m.beta, self.y
        lead = y.rank - t.rank
        strides = [0 if a < lead or t.dims[a - lead] == 1 else t.strides[a - lead] for a in range(y.rank)]
        at, step = self.at(k, strides, index, column), self.step(strides)
        value = k.cast(strided_load(k, k["c"], at, step, lanes, mask), self.dtype)
        return value if beta == 1 else value * beta

    def at(self, k: Builder, strides: Sequence[Dim], index: Sequence[KValue], column: KValue) -> KValue:
        """The offset of an element of the result's index in an operand."""
        total = k.index(0)
        for a, s in enumerate(strides):
            if s != 0:
                total = total + (column if a == self.inner else index[a]) * k.index(s)
        return total

    def step(self, strides: Sequence[Dim]) -> Dim:
        """Elements between neighbouring columns."""
        return strides[self.inner] if self.inner is not None else 0
