"""Square matrices: Det and ONNX Runtime's Inverse, by a factorisation into triangles with partial pivoting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import I64, Dim, TensorType, Type
from . import layout_policies
from .backward import Backward
from .base import Composite, Float, In, InferContext, Int64, Operator, Out, Rows, op
from .casting import as_float, cast_to
from .work_rules import Shapes, Work


def square(ctx: InferContext) -> tuple[Dim, ...]:
    """The shape [..., n, n] of operand 0."""
    shape = ctx.shape(0)
    if len(shape) < 2:
        ctx.fail("x must be matrices", expected="[..., n, n]", found=ctx.types[0])
    n = ctx.equal(shape[-2], shape[-1], "matrices must be square")
    return (*shape[:-2], n, n)


def _matrix_rows(rows: Rows) -> int | None:
    a = rows.first("rows in another operand than the first")
    if a >= rows.ctx.rank(0) - 2:
        raise rows.interact("every row of a matrix counts for all of the result")
    return a


def inverse_of(g: PyAny, x: PyAny) -> PyAny:
    """The inverses of matrices [..., n, n]; where there are none, infinities or NaN."""
    lu, pivots, _ = g.LU(as_float(g, x))
    return cast_to(g, g.InvertLU(lu, pivots), x.type.dtype)


@op(domain="parax")
class LU(Operator):
    """P·x = L·U of matrices [..., n, n], f32 or f64, in one: U from the diagonal on, L below, whose diagonal is 1.

    pivots: [..., n], the row that was exchanged with row i in step i, the one with the greatest element in column i;
    det: [...], the determinant. A column without any but 0 is left out of the elimination. (Golub and Van Loan, "Matrix
    Computations", 4th ed., algorithm 3.4.1.)
    """

    x: In[Float]
    lu: Out
    pivots: Out
    det: Out
    layout_policy = layout_policies.PLAIN
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        shape, x = square(ctx), ctx.tensor(0)
        return [x.with_shape(shape), TensorType(I64, shape[:-1]), TensorType(x.dtype, shape[:-2])]

    def row_axis(self, rows: Rows) -> int | None:
        return _matrix_rows(rows)

    def work(self, shapes: Shapes) -> Work:
        return Work("norm", shapes.x_elements * shapes.operand(0)[-1] * 2 // 3)


@op(domain="parax")
class InvertLU(Operator):
    """The inverses of what LU has factorised: U⁻¹·L⁻¹·P."""

    lu: In[Float]
    pivots: In[Int64]
    layout_policy = layout_policies.PLAIN
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        shape = square(ctx)
        if ctx.shape(1) != shape[:-1]:
            ctx.fail("every row needs a pivot", expected=TensorType(I64, shape[:-1]), found=ctx.types[1])
        return [ctx.tensor(0).with_shape(shape)]

    def row_axis(self, rows: Rows) -> int | None:
        if rows.given[0] is None or rows.given[0] != rows.given[1] or rows.given[0] >= rows.ctx.rank(0) - 2:
            raise rows.interact("rows are not whole matrices")
        return rows.given[0]

    def work(self, shapes: Shapes) -> Work:
        return Work("norm", shapes.x_elements * shapes.operand(0)[-1] * 2)


@op(since=11)
class Det(Composite):
    """The determinants of matrices [..., n, n]; 1 of those of no element."""

    x: In[Float]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        square(ctx)
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        return cast_to(g, g.LU(as_float(g, x))[2], x.type.dtype)

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """det(x) · x⁻ᵀ (Jacobi): NaN or infinite where x has no inverse."""
        g, x = back.g, back.inputs[0]
        rank = back.ctx.rank(0)
        scale = g.Unsqueeze(g.Mul(back.dy, back.outputs[0]), np.array([-2, -1], np.int64))
        return [g.Mul(scale, _transposed(g, inverse_of(g, x), rank))]


@op(domain="com.microsoft")
class Inverse(Composite):
    """The inverses of matrices [..., n, n]; infinities or NaN of those that have none."""

    x: In[Float]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        square(ctx)
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        return inverse_of(g, x)

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """-x⁻ᵀ · dy · x⁻ᵀ."""
        g = back.g
        turned = _transposed(g, back.outputs[0], back.ctx.rank(0))
        return [g.Neg(g.MatMul(g.MatMul(turned, back.dy), turned))]


def _transposed(g: PyAny, x: PyAny, rank: int) -> PyAny:
    return g.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])
