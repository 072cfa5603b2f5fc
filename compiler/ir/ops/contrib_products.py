"""ONNX Runtime's products of matrices that are transposed and scaled, or activated.

Source: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import BF16, F16, F32, Type
from .base import Attr, Composite, Float, In, InferContext, Opt, TypeGroup, op
from .casting import as_float, cast_to
from .contraction import swapped
from .contrib_activation import check_last


class ScaledProduct(Composite):
    """alpha · A' B': stacks of matrices, each transposed on demand; a vector is never transposed."""

    a: In[Float]
    b: In[Float]
    alpha: Attr[float] = 1.0
    transA: Attr[int] = 0
    transB: Attr[int] = 0

    def moved_last(self) -> tuple[bool, bool]:
        """Of A and B, whether the rows are its first axis, before those of the stack."""
        return False, False

    def expand(self, g: PyAny, a: PyAny, b: PyAny) -> PyAny:
        dtype, moved = a.type.dtype, self.moved_last()
        if self.alpha != 1:
            a, b = as_float(g, a), as_float(g, b)
        a, b = (_arranged(g, v, *how) for v, how in zip((a, b), zip(moved, (self.transA, self.transB)), strict=True))
        y = g.MatMul(a, b)
        return y if self.alpha == 1 else cast_to(g, g.Mul(y, self.alpha), dtype)


def _arranged(g: PyAny, v: PyAny, moved: bool, transposed: int) -> PyAny:
    """[M, batch, K] as [batch, M, K] where `moved`; then each matrix transposed on demand."""
    rank = v.tensor.rank
    if rank < 2:
        return v
    if moved and rank > 2:
        v = g.Transpose(v, perm=[*range(1, rank - 1), 0, rank - 1])
    return swapped(g, v) if transposed else v


@op(domain="com.microsoft")
class FusedMatMul(ScaledProduct):
    """alpha · A' B'. With transBatchA, A is [M, batch, K], or [K, batch, M] with transA; likewise B."""

    transBatchA: Attr[int] = 0
    transBatchB: Attr[int] = 0

    def moved_last(self) -> tuple[bool, bool]:
        return bool(self.transBatchA), bool(self.transBatchB)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        for i, moved in enumerate(self.moved_last()):
            if moved and ctx.rank(i) < 3:
                ctx.fail("a matrix has no batch to transpose", expected="rank 3 or more", found=ctx.types[i])
        return super().infer(ctx)


@op(domain="com.microsoft")
class TransposeMatMul(ScaledProduct):
    """FusedMatMul by its former name, without transposed batches."""


class ShortFloat(TypeGroup):
    """What is no longer than f32."""

    dtypes = frozenset({F32, F16, BF16})


@op(domain="com.microsoft")
class GemmFastGelu(Composite):
    """Gelu of x w + bias, by tanh of a cubic; x and w are stacks of matrices, the bias is a vector of w's columns."""

    x: In[ShortFloat]
    w: In[ShortFloat]
    bias: Opt[ShortFloat]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.has(2):
            if ctx.rank(1) < 2:
                ctx.fail("a bias needs a matrix of columns", expected="w of rank 2 or more", found=ctx.types[1])
            check_last(ctx, 2, ctx.shape(1)[-1], "the bias")
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, w: PyAny, bias: PyAny = None) -> PyAny:
        y = g.MatMul(as_float(g, x), as_float(g, w))
        y = y if bias is None else g.Add(y, as_float(g, bias))
        return cast_to(g, g.Gelu(y, approximate="tanh"), x.type.dtype)
