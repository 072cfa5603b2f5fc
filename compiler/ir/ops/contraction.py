"""MatMul, Gemm, Conv, ConvTranspose and exact ones of whole numbers: shapes, geometry. Kernels are keyed by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ....errors import InvalidModel
from ..types import Dim, TensorType, exact_max, floor_div, prod
from . import layout_policies, row_rules
from .backward import Backward
from .base import Attr, Contraction, Float, In, InferContext, Ints, Numeric, Operator, Opt, Rows, Shapes, Work, op
from .conv_gradients import input_gradient, transposed_gradients, weight_gradient
from .geometry import WindowGeometry, per_axis, require_windows, window_geometry

FIRST, LAST, BEFORE_LAST = (np.array([axis], np.int64) for axis in (0, -1, -2))


def swapped(g: PyAny, matrices: PyAny) -> PyAny:
    """Each matrix of a stack transposed."""
    rank = len(matrices.tensor.dims)
    return g.Transpose(matrices, perm=[*range(rank - 2), rank - 1, rank - 2])


def as_matrix(g: PyAny, stack: PyAny) -> PyAny:
    """The rows of all matrices of a stack, below one another."""
    *rows, last = stack.tensor.dims
    if len(rows) == 1:
        return stack
    if isinstance(last, int):
        count = prod(rows)
        return g.Reshape(stack, np.array([count if isinstance(count, int) else -1, last], np.int64), allowzero=1)
    return g.Reshape(stack, g.Concat(np.array([-1], np.int64), g.Shape(stack, start=-1), axis=0))


@op(since=13)
class MatMul(Contraction):
    """numpy.matmul: matrices in the last two axes, the others broadcast; a vector is a row or a column."""

    a: In[Numeric]
    b: In[Numeric]
    layout_policy = layout_policies.KeepsColumns()

    def infer(self, ctx: InferContext) -> list[TensorType]:
        a, b = ctx.shape(0), ctx.shape(1)
        if not a or not b:
            ctx.fail("a scalar cannot be multiplied as a matrix", found=f"{ctx.types[0]} and {ctx.types[1]}")
        shown = f"{ctx.types[0]} times {ctx.types[1]}"
        ctx.equal(a[-1], b[-2] if len(b) > 1 else b[0], f"inner dimensions of {shown} differ")
        batch = ctx.broadcast(a[:-2], b[:-2])
        rows = a[-2:-1]
        columns = b[-1:] if len(b) > 1 else ()
        return [ctx.tensor(0).with_shape((*batch, *rows, *columns))]

    def row_axis(self, rows: Rows) -> int:
        ranks, axes = (rows.ctx.rank(0), rows.ctx.rank(1)), set()
        for i, contracted in enumerate((ranks[0] - 1, max(ranks[1] - 2, 0))):
            row = rows.given[i]
            if row is None:
                continue
            if row == contracted or (i == 1 and row == ranks[1] - 1):
                raise rows.interact("contracts over the rows, or has them as columns")
            axes.add(row if ranks[1 - i] == 1 else row + rows.result.rank - ranks[i])
        if len(axes) != 1:
            raise rows.interact("rows lie on different axes")
        return axes.pop()

    def work(self, shapes: Shapes) -> Work:
        return Work("matmul", 2 * shapes.y_elements * shapes.operand(0)[-1])

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """dA = dY Bᵀ, dB = Aᵀ dY, summed over broadcast axes: a shared B takes the rows of all items as one product."""
        g, (a, b), dy = back.g, back.inputs, back.dy
        ranks = [len(back.ctx.shape(i)) for i in (0, 1)]
        if ranks[0] == 1:  # a row, with an axis of its own for the time being
            a, dy = g.Unsqueeze(a, FIRST), g.Unsqueeze(dy, FIRST if ranks[1] == 1 else BEFORE_LAST)
        if ranks[1] == 1:
            b, dy = g.Unsqueeze(b, LAST), g.Unsqueeze(dy, LAST)
        da = g.MatMul(dy, swapped(g, b)) if 0 in back.wanted else None
        db = None
        if 1 in back.wanted and ranks[1] <= 2 < len(dy.tensor.dims):
            db = g.MatMul(swapped(g, as_matrix(g, a)), as_matrix(g, dy))
        elif 1 in back.wanted:
            db = g.MatMul(swapped(g, a), dy)
        if ranks[0] == 1 and da is not None:
            da = g.Squeeze(da, BEFORE_LAST)
        if ranks[1] == 1 and db is not None:
            db = g.Squeeze(db, LAST)
        return [None if d is None else back.reduced_to(d, i) for i, d in enumerate((da, db))]


@op(since=13)
class Gemm(Contraction):
    """alpha * A' B' + beta * C for matrices, A' and B' transposed on demand, C broadcast to the result."""

    a: In[Numeric]
    b: In[Numeric]
    c: Opt[Numeric]
    alpha: Attr[float] = 1.0
    beta: Attr[float] = 1.0
    transA: Attr[int] = 0
    transB: Attr[int] = 0
    layout_policy = layout_policies.PLAIN
    zeros_by_default = (2,)

    def infer(self, ctx: InferContext) -> list[TensorType]:
        a, b = ctx.shape(0), ctx.shape(1)
        if len(a) != 2 or len(b) != 2:
            ctx.fail("A and B must be matrices", found=f"{ctx.types[0]} and {ctx.types[1]}")
        m, k = a[::-1] if self.transA else a
        k_b, n = b[::-1] if self.transB else b
        ctx.equal(k, k_b, f"inner dimensions of {ctx.types[0]} times {ctx.types[1]} differ")
        if ctx.has(2):
            c = ctx.shape(2)
            if len(c) > 2:
                ctx.fail("C does not broadcast to the result", expected="rank 2 at most", found=ctx.types[2])
            for dim, of_result in zip(reversed(c), (n, m), strict=False):
                if dim != 1:
                    ctx.equal(of_result, dim, "C does not broadcast to the result")
        return [ctx.tensor(0).with_shape((m, n))]

    def row_axis(self, rows: Rows) -> int:
        a, b, *c = rows.given
        if a != (1 if self.transA else 0) or b is not None:
            raise rows.interact("contracts over the rows")
        if c and c[0] is not None and c[0] != rows.ctx.rank(2) - 2:
            raise rows.interact("rows of the addend lie elsewhere")
        return 0

    def work(self, shapes: Shapes) -> Work:
        return Work("matmul", 2 * shapes.y_elements * shapes.operand(0)[0 if self.transA else -1])

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """As a product's, times alpha; the addend's times beta."""
        g, (a, b, *_), dy = back.g, back.inputs, back.dy
        scaled = dy if self.alpha == 1 else g.Mul(dy, self.alpha)
        ta, tb = bool(self.transA), bool(self.transB)
        da = db = dc = None
        if 0 in back.wanted:
            left, right = (b, scaled) if ta else (scaled, b)
            da = g.Gemm(left, right, transA=int(ta and tb), transB=int(ta or not tb))
        if 1 in back.wanted:
            left, right = (scaled, a) if tb else (a, scaled)
            db = g.Gemm(left, right, transA=int(tb or not ta), transB=int(tb and ta))
        if 2 in back.wanted:
            dc = back.reduced_to(dy if self.beta == 1 else g.Mul(dy, self.beta), 2)
        return [da, db, dc][: len(back.inputs)]


class Convolution(Operator):
    """The attributes of every convolution, plain, transposed or of 8-bit integers."""

    auto_pad: Attr[str] = "NOTSET"
    dilations: Attr[Ints | None] = None
    group: Attr[int] = 1
    kernel_shape: Attr[Ints | None] = None
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None

    def kernel(self, w: TensorType) -> tuple[int, ...]:
        """The spatial sizes of the weights. Raises InvalidModel where they are unknown or `kernel_shape` differs."""
        if not w.is_static:
            raise InvalidModel("the kernel's shape must be known at compile time", found=w)
        kernel = w.static_shape[2:]
        if self.kernel_shape is not None and self.kernel_shape != kernel:
            raise InvalidModel("kernel_shape contradicts the weights", expected=kernel, found=self.kernel_shape)
        return kernel


@op(since=11)
class Conv(Convolution, Contraction):
    """Cross-correlation of x [N, C, spatial...] with w [M, C/group, kernel...], plus b [M]."""

    x: In[Float]
    w: In[Float]
    b: Opt[Float]
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.ChannelsLast()
    zeros_by_default = (2,)

    def geometry(self, x: TensorType, w: TensorType) -> WindowGeometry:
        """The window with all defaults and auto_pad resolved. Raises InvalidModel."""
        return window_geometry(
            x.dims[2:],
            self.kernel(w),
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            auto_pad=self.auto_pad,
        )

    def infer(self, ctx: InferContext) -> list[TensorType]:
        x, w = ctx.shape(0), ctx.shape(1)
        if len(x) < 3 or len(x) != len(w):
            ctx.fail("x and w must have the same rank >= 3", found=f"{ctx.types[0]} and {ctx.types[1]}")
        if self.group < 1:
            ctx.fail("group must be positive", found=self.group)
        ctx.equal(w[1] * self.group, x[1], "channels of x must be the weights' times group")
        if w[0] % self.group != 0:
            ctx.fail("output channels must be a multiple of group", expected=self.group, found=w[0])
        if ctx.has(2):
            if ctx.rank(2) != 1:
                ctx.fail("b must be a vector", found=ctx.types[2])
            ctx.equal(w[0], ctx.shape(2)[0], "b must have one element per output channel")
        geometry = self.geometry(ctx.tensor(0), ctx.tensor(1))
        require_windows(ctx, geometry, self.auto_pad)
        return [ctx.tensor(0).with_shape((x[0], w[0], *geometry.output))]

    def work(self, shapes: Shapes) -> Work:
        return Work("conv", 2 * shapes.y_elements * math.prod(shapes.operand(1)[1:]))

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """See conv_gradients.py."""
        geometry = self.geometry(back.ctx.tensor(0), back.ctx.tensor(1))
        dx = dw = db = None
        if 0 in back.wanted:
            dx = input_gradient(back, back.inputs[0], back.inputs[1], back.dy, geometry, self.group)
        if 1 in back.wanted:
            dw = weight_gradient(back, back.inputs[0], back.dy, geometry, self.group)
        if 2 in back.wanted:
            db = _bias_gradient(back)
        return [dx, dw, db][: len(back.inputs)]


@op(since=11)
class ConvTranspose(Convolution, Contraction):
    """The gradient of Conv with respect to its input: x [N, C, spatial...], w [C, M/group, kernel...], plus b [M]."""

    x: In[Float]
    w: In[Float]
    b: Opt[Float]
    output_padding: Attr[Ints | None] = None
    output_shape: Attr[Ints | None] = None
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.ChannelsLast(reads_few=False)
    zeros_by_default = (2,)

    def geometry(self, x: TensorType, w: TensorType) -> WindowGeometry:
        """The window of the convolution whose gradient this is: `input` is x's size, `output` the result's.

        Raises InvalidModel.
        """
        kernel = self.kernel(w)
        rank = len(kernel)
        strides = per_axis(self.strides, rank, 1, "strides")
        dilations = per_axis(self.dilations, rank, 1, "dilations")
        extra = per_axis(self.output_padding, rank, 0, "output_padding", 0)
        whole = [s * (n - 1) + e + (k - 1) * d + 1
                 for n, k, s, d, e in zip(x.dims[2:], kernel, strides, dilations, extra, strict=True)]
        if self.auto_pad not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
            expected = "NOTSET, VALID, SAME_UPPER or SAME_LOWER"
            raise InvalidModel("unknown auto_pad", expected=expected, found=self.auto_pad)
        output: tuple[Dim, ...] | None = None
        if self.output_shape is not None:
            output = tuple(self.output_shape[-rank:])
            if len(output) != rank:
                raise InvalidModel("malformed output_shape", expected=f"{rank} integers", found=list(output))
        elif self.auto_pad.startswith("SAME"):
            output = tuple(n * s for n, s in zip(x.dims[2:], strides, strict=True))
        if output is None:
            given = self.pads if self.pads is not None and self.auto_pad in ("NOTSET", "") else (0,) * (2 * rank)
            if len(given) != 2 * rank:
                raise InvalidModel("malformed pads", expected=f"{2 * rank} integers", found=list(given))
            begin, end = tuple(given[:rank]), tuple(given[rank:])
            output = tuple(n - b - e for n, b, e in zip(whole, begin, end, strict=True))
            return WindowGeometry(kernel, strides, dilations, begin, end, tuple(x.dims[2:]), output)
        totals = [n - o for n, o in zip(whole, output, strict=True)]
        low = [floor_div(t if self.auto_pad == "SAME_UPPER" else t + 1, 2) for t in totals]
        if not self.auto_pad.startswith("SAME"):  # else a negative total adds margins, halved as any other
            low = [exact_max(p, 0) for p in low]
        high = [t - p for t, p in zip(totals, low, strict=True)]
        return WindowGeometry(kernel, strides, dilations, tuple(low), tuple(high), tuple(x.dims[2:]), output)

    def infer(self, ctx: InferContext) -> list[TensorType]:
        x, w = ctx.shape(0), ctx.shape(1)
        if len(x) < 3 or len(x) != len(w):
            ctx.fail("x and w must have the same rank >= 3", found=f"{ctx.types[0]} and {ctx.types[1]}")
        if self.group < 1:
            ctx.fail("group must be positive", found=self.group)
        ctx.equal(w[0], x[1], "x and w must have the same number of channels")
        if isinstance(w[0], int) and w[0] % self.group != 0:
            ctx.fail("input channels must be a multiple of group", expected=self.group, found=w[0])
        channels = w[1] * self.group
        if ctx.has(2):
            if ctx.rank(2) != 1:
                ctx.fail("b must be a vector", found=ctx.types[2])
            ctx.equal(channels, ctx.shape(2)[0], "b must have one element per output channel")
        geometry = self.geometry(ctx.tensor(0), ctx.tensor(1))
        if any(isinstance(n, int) and n < 1 for n in geometry.output):
            ctx.fail("the result would be empty", found=list(geometry.output))
        return [ctx.tensor(0).with_shape((x[0], channels, *geometry.output))]

    def work(self, shapes: Shapes) -> Work:
        return Work("conv-transpose", 2 * shapes.x_elements * math.prod(shapes.operand(1)[1:]))

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """See conv_gradients.py."""
        dx, dw = transposed_gradients(back, self.geometry(back.ctx.tensor(0), back.ctx.tensor(1)), self.group)
        return [dx, dw, _bias_gradient(back) if 2 in back.wanted else None][: len(back.inputs)]


def _bias_gradient(back: Backward) -> PyAny:
    """The sum over items and places."""
    return back.g.ReduceSum(back.dy, np.array([0, *range(2, back.ctx.rank(0))], np.int64), keepdims=0)


@op(domain="parax")
class IntegralConv(Conv):
    """A convolution of whole numbers, exact: no algorithm may be used that rounds on the way (Winograd), and no scale
    may be folded into an operand."""


@op(domain="parax")
class IntegralMatMul(MatMul):
    """A product of matrices of whole numbers, exact: no algorithm may be used that rounds on the way (Strassen), and
    no scale may be folded into an operand."""
