"""Products of quantised tensors.

Those by constant weights are of i16 by i8 or i16, with sums in i32 (`widening.py`). Others run in f32 and are exact:
whole numbers below 2^24 have no rounding error in any order of summation. Where the bound on a sum is higher, the
contracted axis is cut into pieces whose sums are added as i32, or they run in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, I8, I16, I32, I64, U8, SymDim, TensorType
from .base import Composite, Float, In, InferContext, Opt, TypeGroup, op
from .casting import as_float
from .contraction import Convolution
from .quantization import is_zero

EXACT = 2**24
FEWEST_CHANNELS = 8  # of a pixel, for a convolution of pairs: shorter runs of them are gathered first


class ByteA(TypeGroup):
    """8-bit integers."""

    dtypes = frozenset({U8, I8})


class ByteB(ByteA):
    """A second type variable over them."""


class ByteC(ByteA):
    """A third one."""


def magnitude(v: PyAny, zero_point: PyAny) -> int:
    """The largest |v - zero_point| that can occur."""
    low, high = (0, 255) if v.type.dtype == U8 else (-128, 127)
    if v.data is not None:
        low, high = int(v.data.min(initial=0)), int(v.data.max(initial=0))
    if zero_point is None:
        zeros = [0]
    elif zero_point.data is not None:
        zeros = [int(zero_point.data.min()), int(zero_point.data.max())]
    else:
        zeros = [0, 255] if zero_point.type.dtype == U8 else [-128, 127]
    return max(abs(bound - zero) for bound in (low, high) for zero in zeros)


def heaviest(weights: np.ndarray, axis: int = 0) -> int:
    """The largest Σ|w| of an index of an axis: by how much sums exceed the largest number that is multiplied."""
    others = tuple(a for a in range(weights.ndim) if a != axis)
    return int(np.abs(weights.astype(np.int64)).sum(axis=others).max(initial=0))


def centred(g: PyAny, v: PyAny, zero_point: PyAny) -> PyAny:
    """v - zero_point in f32; the zero point broadcasts already."""
    y = g.Cast(v, to=F32)
    return y if is_zero(zero_point) else g.Sub(y, g.Cast(zero_point, to=F32))


def exact_sum(g: PyAny, length: int, least: int, product: Callable[[int, int], PyAny]) -> tuple[PyAny, bool]:
    """Sum of products over a contracted axis, exact. Returns the sum and whether it is i32 (else f32).

    Args:
        length: of the axis. least: how many of its indices may be summed in f32 at a time.
        product: (first, last) → the f32 sum over a part of the axis.
    """
    if length <= least:
        return product(0, length), False
    total = None
    for first in range(0, length, least):
        part = g.Cast(product(first, min(first + least, length)), to=I32)
        total = part if total is None else g.Add(total, part)
    return total, True


def wrapped(g: PyAny, total: PyAny) -> PyAny:
    """Whole numbers in f64 as i32, modulo 2^32 as sums of i32 are: a cast alone would saturate."""
    return g.Cast(g.Cast(total, to=I64), to=I32)


def _part(g: PyAny, v: PyAny, axis: int, first: int, last: int) -> PyAny:
    return v if (first, last) == (0, v.tensor.dims[axis]) else g.Slice(v, [first], [last], [axis])


def shortened(g: PyAny, v: PyAny, zero_point: PyAny) -> PyAny:
    """v - zero_point in i16; the zero point broadcasts already."""
    y = g.Cast(v, to=I16)
    return y if is_zero(zero_point) else g.Sub(y, g.Cast(zero_point, to=I16))


def narrowed(w: PyAny, zero_point: PyAny) -> np.ndarray | None:
    """Constant weights less their zero points in i8, or i16 where they need it; None: they are computed.

    The zero point broadcasts already.
    """
    if w.data is None or (zero_point is not None and zero_point.data is None):
        return None
    centred = w.data.astype(np.int16)
    if zero_point is not None:
        centred = centred - zero_point.data.astype(np.int16)
    fits = centred.size == 0 or (centred.min() >= -128 and centred.max() <= 127)
    return centred.astype(np.int8) if fits else centred


def takes_pairs(group: int, w: TensorType) -> bool:
    """Whether the channels of a pixel of a convolution are whole pairs, and enough of them."""
    channels = w.static_shape[1] if w.is_static else 0
    return group == 1 and channels % 2 == 0 and channels >= FEWEST_CHANNELS


def is_depthwise(group: int, w: TensorType) -> bool:
    """Whether each channel has one filter of its own, along one or two axes."""
    return group > 1 and w.is_static and w.static_shape[:2] == (group, 1) and w.rank <= 4


def takes_whole(group: int, w: TensorType) -> bool:
    """Whether a kernel of whole numbers serves a convolution."""
    return takes_pairs(group, w) or is_depthwise(group, w)


def takes_quads(group: int, w: TensorType) -> bool:
    """The same of whole quads."""
    return takes_pairs(group, w) and w.static_shape[1] % 4 == 0


def takes_columns(op: Convolution, w: TensorType) -> bool:
    """Whether neighbouring columns of a filter of few channels make pairs, where those are none."""
    few = op.group == 1 and w.is_static and w.rank > 3 and w.static_shape[1] < FEWEST_CHANNELS
    return few and w.static_shape[-1] > 1 and (op.dilations or (1,))[-1] == 1


def takes_lines(op: Convolution, w: TensorType) -> bool:
    """Whether all that a line of a filter reads is one run of whole quads, of few channels though a pixel has them."""
    if op.group > 1 or not w.is_static or w.rank < 3 or op.auto_pad != "NOTSET":
        return False
    rank, channels = w.rank - 2, w.static_shape[1]
    pads, dilations = op.pads or (0,) * (2 * rank), op.dilations or (1,)
    beside = pads[rank - 1] == pads[-1] == 0 and dilations[-1] == 1
    return beside and channels % 4 == 0 and channels * w.static_shape[-1] >= FEWEST_CHANNELS


def integer_matmul(g: PyAny, a: PyAny, b: PyAny, a_zero: PyAny, b_zero: PyAny) -> tuple[PyAny, bool]:
    """(a - a_zero) @ (b - b_zero) as `exact_sum` gives it."""
    by_row = a_zero is not None and a_zero.tensor.rank == 1 and a_zero.tensor.dims != (1,)
    row_zero = g.Unsqueeze(a_zero, [1]) if by_row else a_zero
    weights = narrowed(b, b_zero) if b.tensor.rank == 2 else None
    if weights is not None and weights.size:
        return g.WideningMatMul(shortened(g, a, row_zero), g.const(weights)), True
    fa, fb = centred(g, a, row_zero), centred(g, b, b_zero)
    length = a.tensor.dims[-1]
    if isinstance(length, SymDim):
        return wrapped(g, g.IntegralMatMul(g.Cast(fa, to=F64), g.Cast(fb, to=F64))), True
    least = max(1, EXACT // max(1, magnitude(a, a_zero) * magnitude(b, b_zero)))
    rows = max(0, b.tensor.rank - 2)

    def product_of(first: int, last: int) -> PyAny:
        return g.IntegralMatMul(_part(g, fa, a.tensor.rank - 1, first, last), _part(g, fb, rows, first, last))

    return exact_sum(g, length, least, product_of)


@op(since=10)
class MatMulInteger(Composite):
    """(A - a_zero_point) @ (B - b_zero_point) in i32."""

    a: In[ByteA]
    b: In[ByteB]
    a_zero_point: Opt[ByteA]
    b_zero_point: Opt[ByteB]

    def expand(self, g: PyAny, a: PyAny, b: PyAny, a_zero: PyAny = None, b_zero: PyAny = None) -> PyAny:
        total, whole = integer_matmul(g, a, b, a_zero, b_zero)
        return total if whole else g.Cast(total, to=I32)


@op(since=21)
class QLinearMatMul(Composite):
    """A product of quantised matrices, quantised: round(sum * (a_scale * b_scale / y_scale)) + y_zero_point."""

    a: In[ByteA]
    a_scale: In[Float]
    a_zero_point: In[ByteA]
    b: In[ByteB]
    b_scale: In[Float]
    b_zero_point: In[ByteB]
    y_scale: In[Float]
    y_zero_point: In[ByteC]

    def expand(self, g: PyAny, a: PyAny, a_scale: PyAny, a_zero: PyAny, b: PyAny, b_scale: PyAny, b_zero: PyAny,
               y_scale: PyAny, y_zero: PyAny) -> PyAny:
        total, whole = integer_matmul(g, a, b, a_zero, b_zero)
        numbers = [as_float(g, s) for s in (a_scale, b_scale, y_scale)]
        numbers = [g.Reshape(s, np.zeros(0, np.int64)) if s.tensor.dims == (1,) else s for s in (*numbers, y_zero)]
        by_row, by_column, result, y_zero = numbers
        if by_row.tensor.rank == 1 and b.tensor.rank > 1:
            by_row = g.Unsqueeze(by_row, [1])
        factor = g.Div(g.Mul(by_row, by_column), result)
        scaled = g.Mul(g.Cast(total, to=F32) if whole else total, factor)
        return g.RoundTo(scaled, y_zero, to=y_zero.type.dtype)


def _heaviest_bias(bias: PyAny) -> int:
    """A bound on |bias|."""
    if bias is None:
        return 0
    return int(np.abs(bias.data.astype(np.int64)).max(initial=0)) if bias.data is not None else EXACT + 1


class Convolved(Convolution, Composite):
    """Convolutions of 8-bit integers."""

    def convolve(self, g: PyAny, x: PyAny, w: PyAny, x_zero: PyAny, w_zero: PyAny,
                 bias: PyAny = None) -> tuple[PyAny, bool]:
        """The sums, as `exact_sum` gives them, with the i32 bias added."""
        attributes = self.attributes()
        rank = w.tensor.rank
        wide = w_zero
        if w_zero is not None and w_zero.tensor.rank == 1 and w_zero.tensor.dims != (1,):
            wide = g.Reshape(w_zero, [-1] + [1] * (rank - 1))
        weights = w.tensor.static_shape
        narrow = narrowed(w, wide) if takes_pairs(self.group, w.tensor) else None
        if narrow is not None and narrow.size:
            start = bias if bias is not None and bias.data is not None else None
            total = g.WideningConv(shortened(g, x, x_zero), g.const(narrow), start, **attributes)
            return total if bias is start else g.Add(total, g.Reshape(bias, [-1] + [1] * (rank - 2))), True
        fx, fw = centred(g, x, x_zero), centred(g, w, wide)
        if self._heaviest(w, w_zero) * magnitude(x, x_zero) + _heaviest_bias(bias) <= EXACT:
            return g.IntegralConv(fx, fw, None if bias is None else g.Cast(bias, to=F32), **attributes), False
        least = EXACT // max(1, magnitude(x, x_zero) * magnitude(w, w_zero) * int(np.prod(weights[2:])))

        def part(first: int, last: int) -> PyAny:
            return g.IntegralConv(self._channels(g, fx, weights[1], first, last), _part(g, fw, 1, first, last),
                                  **attributes)

        if least:
            total, whole = exact_sum(g, weights[1], least, part)
        else:  # one channel's taps alone may exceed what f32 holds
            total, whole = wrapped(g, g.IntegralConv(g.Cast(fx, to=F64), g.Cast(fw, to=F64), **attributes)), True
        if bias is None:
            return total, whole
        total = total if whole else g.Cast(total, to=I32)
        return g.Add(total, g.Reshape(bias, [-1] + [1] * (rank - 2))), True

    def _channels(self, g: PyAny, x: PyAny, per_group: int, first: int, last: int) -> PyAny:
        """Input channels [first, last) of every group."""
        if (first, last) == (0, per_group):
            return x
        if self.group == 1:
            return g.Slice(x, [first], [last], [1])
        channels = np.arange(self.group)[:, None] * per_group + np.arange(first, last)
        return g.Gather(x, channels.reshape(-1), axis=1)

    @staticmethod
    def _heaviest(w: PyAny, w_zero: PyAny) -> int:
        """A bound on the sum of |w - w_zero| over the weights of one output channel."""
        shape = w.tensor.static_shape
        known = w.data is not None and (w_zero is None or w_zero.data is not None)
        if not known:
            return magnitude(w, w_zero) * int(np.prod(shape[1:], dtype=np.int64))
        flat = w.data.reshape(shape[0], -1).astype(np.int64)
        flat = flat if w_zero is None else flat - w_zero.data.astype(np.int64).reshape(-1, 1)
        return heaviest(flat)

    def check(self, ctx: InferContext, w: int) -> None:
        """Fails unless the weights' shape is known."""
        if not ctx.tensor(w).is_static:
            ctx.fail("the kernel's shape must be known at compile time", found=ctx.types[w])


@op(since=10)
class ConvInteger(Convolved):
    """Conv of x - x_zero_point with w - w_zero_point in i32; the margin is the zero point."""

    x: In[ByteA]
    w: In[ByteB]
    x_zero_point: Opt[ByteA]
    w_zero_point: Opt[ByteB]

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        self.check(ctx, 1)
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, w: PyAny, x_zero: PyAny = None, w_zero: PyAny = None) -> PyAny:
        total, whole = self.convolve(g, x, w, x_zero, w_zero)
        return total if whole else g.Cast(total, to=I32)


class BiasI32(TypeGroup):
    """The bias of a quantised convolution."""

    dtypes = frozenset({I32})


@op(since=10)
class QLinearConv(Convolved):
    """A convolution of quantised tensors, quantised: round(sum * (x_scale * w_scale / y_scale)) + y_zero_point."""

    x: In[ByteA]
    x_scale: In[Float]
    x_zero_point: In[ByteA]
    w: In[ByteB]
    w_scale: In[Float]
    w_zero_point: In[ByteB]
    y_scale: In[Float]
    y_zero_point: In[ByteC]
    b: Opt[BiasI32]

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        self.check(ctx, 3)
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, x_scale: PyAny, x_zero: PyAny, w: PyAny, w_scale: PyAny, w_zero: PyAny,
               y_scale: PyAny, y_zero: PyAny, bias: PyAny = None) -> PyAny:
        total, whole = self.convolve(g, x, w, x_zero, w_zero, bias)
        factor = g.Div(g.Mul(x_scale, w_scale), y_scale)
        if factor.tensor.rank == 1 and factor.tensor.dims != (1,):
            factor = g.Reshape(factor, [-1] + [1] * (w.tensor.rank - 2))
        scaled = g.Mul(g.Cast(total, to=F32) if whole else total, factor)
        return g.RoundTo(scaled, y_zero, to=y_zero.type.dtype)

