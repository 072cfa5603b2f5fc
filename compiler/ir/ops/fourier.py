"""DFT and STFT: sums of products by tables of sines and cosines, which matrix products compute.

A short transform is one product, [signal] × [n·c, m·2]. A long one of n = p·q samples is q transforms of length p, a
turn of each result and p transforms of length q (Cooley and Tukey, "An algorithm for the machine calculation of complex
Fourier series", 1965); where n has a large prime factor, a convolution of a power of two (Bluestein, "A linear
filtering approach to the computation of discrete Fourier transform", 1970). Tables are computed in f64 from whole
numbers. Of a million random samples in f32 the results were within 8 · 2⁻²⁴ of the largest one (NumPy in f64 beside).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import SymDim, Type
from .base import Attr, Composite, Float, Float2, In, Index, InferContext, Int64, Opt, op
from .casting import as_float, cast_to

DIRECT = 256  # samples of a transform that is one product: its table is 1 MiB at most
MOST_PRIME = 1024  # a prime factor beyond which a transform becomes a convolution
MOST = 1 << 22  # samples


def turns(whole: np.ndarray, n: int, sign: int) -> np.ndarray:
    """exp(sign · 2πi · whole / n) of whole numbers, as [..., 2]."""
    angle = 2 * np.pi * (whole % n) / n
    return np.stack([np.cos(angle), sign * np.sin(angle)], axis=-1)


def table(n: int, channels: int, outputs: int, sign: int) -> np.ndarray:
    """[n · channels, outputs · 2] that transforms a signal of real or complex samples."""
    re, im = np.moveaxis(turns(np.outer(np.arange(n, dtype=np.int64), np.arange(outputs)), n, sign), -1, 0)
    rows = [np.stack([re, im], -1), np.stack([-im, re], -1)][:channels]
    return np.stack(rows, axis=1).reshape(n * channels, outputs * 2)


def best_factor(n: int) -> int:
    """The divisor of n that is nearest to its root from below."""
    return max(d for d in range(1, int(n**0.5) + 1) if n % d == 0)


class Transform:
    """Transforms of [..., n, channels] tensors, f32 or f64, to [..., m, 2]; leading sizes may be symbols."""

    def __init__(self, g: PyAny, sign: int) -> None:
        self.g, self.sign = g, sign

    def along_last(self, x: PyAny, n: int, outputs: int) -> PyAny:
        """The first `outputs` results for n samples along the last axis but one."""
        if n <= DIRECT:
            return self._direct(x, n, outputs)
        p = best_factor(n)
        if n // p > MOST_PRIME:
            y = self._convolved(self._complex(x), n)
        elif p == 1:
            return self._direct(x, n, outputs)
        else:
            y = self._halved(x, p, n // p)
        return y if outputs == n else self.g.Slice(y, [0], [outputs], [-2])

    def _direct(self, x: PyAny, n: int, outputs: int) -> PyAny:
        g, lead, channels = self.g, [0] * (x.tensor.rank - 2), x.tensor.dims[-1]
        lines = g.Reshape(x, np.array([*lead, n * channels], np.int64))
        y = g.MatMul(lines, g.const(table(n, channels, outputs, self.sign), x.tensor.dtype))
        return g.Reshape(y, np.array([*lead, outputs, 2], np.int64))

    def _halved(self, x: PyAny, p: int, q: int) -> PyAny:
        """Sample q·i + j is at [i, j]; result k + p·l at [l, k]."""
        g, rank, channels = self.g, x.tensor.rank, x.tensor.dims[-1]
        lead = list(range(rank - 2))
        grid = g.Reshape(x, np.array([*[0] * len(lead), p, q, channels], np.int64))
        columns = g.Transpose(grid, perm=[*lead, rank - 1, rank - 2, rank])  # [..., j, i]
        once = self.along_last(columns, p, p)  # [..., j, k]
        turned = self.turn(once, turns(np.outer(np.arange(q, dtype=np.int64), np.arange(p)), p * q, self.sign))
        rows = g.Transpose(turned, perm=[*lead, rank - 1, rank - 2, rank])  # [..., k, j]
        twice = self.along_last(rows, q, q)  # [..., k, l]
        y = g.Transpose(twice, perm=[*lead, rank - 1, rank - 2, rank])
        return g.Reshape(y, np.array([*[0] * len(lead), p * q, 2], np.int64))

    def _convolved(self, x: PyAny, n: int) -> PyAny:
        """2·k·m = k² + m² - (k - m)²: a chirp before, one behind, and a convolution with one between."""
        g, size = self.g, 1 << (2 * n - 1).bit_length()
        k = np.arange(n, dtype=np.int64)
        chirp = turns(k * k, 2 * n, self.sign)
        other = np.zeros((size, 2))
        other[:n] = turns(k * k, 2 * n, -self.sign)
        other[size - n + 1 :] = other[n - 1 : 0 : -1]
        spectrum = np.fft.fft(other[:, 0] + 1j * other[:, 1])
        there, back = Transform(g, -1), Transform(g, 1)
        padded = resized(g, self.turn(x, chirp), n, size)
        product = self.turn(there.along_last(padded, size, size), np.stack([spectrum.real, spectrum.imag], -1) / size)
        return self.turn(g.Slice(back.along_last(product, size, size), [0], [n], [-2]), chirp)

    def turn(self, x: PyAny, factors: np.ndarray) -> PyAny:
        """Complex products of [..., 2] by constants of its last axes."""
        g, dtype = self.g, x.tensor.dtype
        re, im = (g.const(factors[..., i : i + 1], dtype) for i in (0, 1))
        a, b = g.Slice(x, [0], [1], [-1]), g.Slice(x, [1], [2], [-1])
        return g.Concat(g.Sub(g.Mul(a, re), g.Mul(b, im)), g.Add(g.Mul(a, im), g.Mul(b, re)), axis=-1)

    def _complex(self, x: PyAny) -> PyAny:
        return x if x.tensor.dims[-1] == 2 else resized(self.g, x, 1, 2, axis=-1)


def resized(g: PyAny, x: PyAny, old: int, new: int, axis: int = -2) -> PyAny:
    """With `new` elements along an axis that has `old`: the first ones, or zeros behind them."""
    if new <= old:
        return x if new == old else g.Slice(x, [0], [new], [axis])
    widths = np.zeros((2, x.tensor.rank), np.int64)
    widths[1, axis] = new - old
    return g.Pad(x, widths.ravel())


def check_samples(ctx: InferContext, inverse: int, onesided: int) -> None:
    """Fails unless operand 0 is what a DFT takes."""
    if ctx.rank(0) < 2 or ctx.shape(0)[-1] not in (1, 2):
        ctx.fail("x must have a signal axis, and 1 or 2 numbers a sample last", found=ctx.types[0])
    wanted = 2 if inverse else 1
    if onesided and ctx.shape(0)[-1] != wanted:
        ctx.fail("one-sided transforms are of real numbers, their inverses of complex ones",
                 expected=f"[..., {wanted}]", found=ctx.types[0])  # fmt: skip


def check_frames(ctx: InferContext, onesided: int) -> None:
    """Fails unless the operands are an STFT's."""
    if ctx.rank(0) != 3 or ctx.shape(0)[-1] not in (1, 2):
        ctx.fail("the signal must be [N, samples, 1 or 2]", found=ctx.types[0])
    if not ctx.has(2) and not ctx.has(3):
        ctx.fail("a window or a frame_length is needed")
    if onesided and ctx.shape(0)[-1] == 2:
        ctx.fail("one-sided results are of real signals", expected="[N, samples, 1]", found=ctx.types[0])


def known_number(ctx: InferContext, i: int, what: str) -> int:
    """The one number that operand i is."""
    known = ctx.known(i)
    if known is not None and known.size != 1:
        ctx.fail(f"{what} must be one number", found=ctx.types[i])
    number = None if known is None else known.reshape(-1)[0]
    if number is None or isinstance(number, SymDim):
        ctx.unsupported(f"{what} must be known at compile time", found=number)
    return int(number)


def number_of(v: PyAny) -> int:
    """The one number that an operand is, which `known_number` let pass."""
    return int(v.known.reshape(-1)[0])


@op(since=20)
class DFT(Composite):
    """The discrete Fourier transform along an axis of [..., 1 or 2], of a known length.

    Forward, one-sided: of real samples, to n // 2 + 1 results; inverse, one-sided: from so many to n real samples.
    """

    x: In[Float]
    dft_length: Opt[Index]
    axis: Opt[Int64]
    inverse: Attr[int] = 0
    onesided: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_samples(ctx, self.inverse, self.onesided)
        axis = ctx.axis(known_number(ctx, 2, "axis") if ctx.has(2) else -2, ctx.rank(0))
        if axis == ctx.rank(0) - 1:
            ctx.fail("the last axis holds the parts of a complex number", expected="another axis", found=axis)
        samples = ctx.shape(0)[axis]
        if not isinstance(samples, int):
            ctx.unsupported("the length of the signal must be known at compile time", found=ctx.types[0])
        length = known_number(ctx, 1, "dft_length") if ctx.has(1) else self._default(samples)
        if not 1 <= length <= MOST:
            ctx.fail("impossible length of a transform", expected=f"1 to {MOST}", found=length)
        return super().infer(ctx)

    def _default(self, samples: int) -> int:
        return 2 * (samples - 1) if self.onesided and self.inverse else samples

    def expand(self, g: PyAny, x: PyAny, dft_length: PyAny = None, axis: PyAny = None) -> PyAny:
        rank = x.tensor.rank
        at = (-2 if axis is None else number_of(axis)) % rank
        samples = x.tensor.dims[at]
        n = self._default(samples) if dft_length is None else number_of(dft_length)
        perm = list(range(rank))
        perm[at], perm[-2] = perm[-2], perm[at]
        lines = g.Transpose(as_float(g, x), perm=perm)
        if self.inverse:
            y = inverse(g, lines, samples, n, one_sided=bool(self.onesided))
        else:
            y = Transform(g, -1).along_last(resized(g, lines, samples, n), n, n // 2 + 1 if self.onesided else n)
        return cast_to(g, g.Transpose(y, perm=perm), x.type.dtype)


def inverse(g: PyAny, x: PyAny, samples: int, n: int, *, one_sided: bool) -> PyAny:
    """[..., n, 2] of a spectrum; one-sided: [..., n, 1] of its first half, whose other one is conjugate."""
    scale = g.const(np.array(1 / n), x.tensor.dtype)
    if not one_sided:
        return g.Mul(Transform(g, 1).along_last(resized(g, x, samples, n), n, n), scale)
    half = n // 2 + 1
    x = resized(g, x, samples, half)
    mirrored = np.minimum(np.arange(n), n - np.arange(n))
    signs = np.ones((n, 2))
    signs[half:, 1] = -1
    signs[[0, n // 2] if n % 2 == 0 else [0], 1] = 0  # these are real, whatever is there
    full = g.Mul(g.Gather(x, g.const(mirrored.astype(np.int64)), axis=-2), g.const(signs, x.tensor.dtype))
    return g.Mul(g.Slice(Transform(g, 1).along_last(full, n, n), [0], [1], [-1]), scale)


@op(since=17)
class STFT(Composite):
    """DFTs of windows of a signal [N, samples, 1 or 2]: [N, windows, results, 2].

    Of a signal whose length only a run knows, by a window that is known, they are a convolution.
    """

    signal: In[Float]
    frame_step: In[Index]
    window: Opt[Float2]
    frame_length: Opt[Index]
    onesided: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_frames(ctx, self.onesided)
        step = known_number(ctx, 1, "frame_step")
        samples, length = ctx.shape(0)[1], self._length(ctx)
        if not isinstance(samples, int) and ctx.has(2) and ctx.data(2) is None:
            ctx.unsupported("windows that are computed, of a signal whose length is not known at compile time")
        most = samples if isinstance(samples, int) else MOST
        if step < 1 or not 1 <= length <= most:
            ctx.fail("impossible windows", expected=f"a step of 1 or more and a length of 1 to {most}",
                     found=f"{step} and {length}")  # fmt: skip
        return super().infer(ctx)

    def _length(self, ctx: InferContext) -> int:
        if not ctx.has(2):
            return known_number(ctx, 3, "frame_length")
        if ctx.rank(2) != 1:
            ctx.fail("the window must be a vector", found=ctx.types[2])
        length = ctx.shape(2)[0]
        if not isinstance(length, int):
            ctx.unsupported("the length of the window must be known at compile time", found=ctx.types[2])
        if ctx.has(3):
            ctx.equal(known_number(ctx, 3, "frame_length"), length, "the window must have frame_length numbers")
        return length

    def expand(self, g: PyAny, signal: PyAny, frame_step: PyAny, window: PyAny = None,
               frame_length: PyAny = None) -> PyAny:
        step = number_of(frame_step)
        n = window.tensor.dims[0] if window is not None else number_of(frame_length)
        outputs = n // 2 + 1 if self.onesided else n
        x = as_float(g, signal)
        known = isinstance(signal.tensor.dims[1], int)
        y = (_framed if known else _convolved)(g, x, window, step, n, outputs)
        return cast_to(g, y, signal.type.dtype)


def _framed(g: PyAny, x: PyAny, window: PyAny, step: int, n: int, outputs: int) -> PyAny:
    starts = np.arange(0, x.tensor.dims[1] - n + 1, step, dtype=np.int64)
    frames = g.Gather(x, g.const(starts[:, None] + np.arange(n)), axis=1)  # [N, windows, n, c]
    if window is not None:
        frames = g.Mul(frames, g.Unsqueeze(g.Cast(window, to=x.type.dtype), np.array([-1], np.int64)))
    return Transform(g, -1).along_last(frames, n, outputs)


def _convolved(g: PyAny, x: PyAny, window: PyAny, step: int, n: int, outputs: int) -> PyAny:
    """Filters are the columns of the table, times the window."""
    channels = x.tensor.dims[-1]
    filters = table(n, channels, outputs, -1).reshape(n, channels, 2 * outputs)
    if window is not None:
        filters = filters * window.data.astype(np.float64)[:, None, None]
    weights = g.const(np.ascontiguousarray(filters.transpose(2, 1, 0)), x.tensor.dtype)
    y = g.Conv(g.Transpose(x, perm=[0, 2, 1]), weights, strides=[step])
    return g.Reshape(g.Transpose(y, perm=[0, 2, 1]), np.array([0, 0, outputs, 2], np.int64))
