"""MatMul, Gemm and Conv: shapes and geometry. Their kernels are keyed by class in the backend."""

from __future__ import annotations

from ....errors import InvalidModel
from ..types import TensorType
from .base import Attr, Contraction, Float, In, InferContext, Ints, Numeric, Opt, op
from .geometry import WindowGeometry, window_geometry


@op(since=13)
class MatMul(Contraction):
    """numpy.matmul: matrices in the last two axes, the others broadcast; a vector is a row or a column."""

    a: In[Numeric]
    b: In[Numeric]

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


@op(since=11)
class Conv(Contraction):
    """Cross-correlation of x [N, C, spatial...] with w [M, C/group, kernel...], plus b [M]."""

    x: In[Float]
    w: In[Float]
    b: Opt[Float]
    auto_pad: Attr[str] = "NOTSET"
    dilations: Attr[Ints | None] = None
    group: Attr[int] = 1
    kernel_shape: Attr[Ints | None] = None
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None

    def geometry(self, x: TensorType, w: TensorType) -> WindowGeometry:
        """The window with all defaults and auto_pad resolved. Raises InvalidModel."""
        kernel = w.static_shape[2:] if w.is_static else ()
        if not w.is_static:
            raise InvalidModel("the kernel's shape must be known at compile time", found=w)
        if self.kernel_shape is not None and self.kernel_shape != kernel:
            raise InvalidModel("kernel_shape contradicts the weights", expected=kernel, found=self.kernel_shape)
        return window_geometry(
            x.dims[2:],
            kernel,
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
        return [ctx.tensor(0).with_shape((x[0], w[0], *geometry.output))]
