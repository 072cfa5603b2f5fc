"""MelWeightMatrix: triangles over the bins of a spectrum, evenly spaced by how high they sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any as PyAny

import numpy as np

from ..types import BOOL, F32, F64, I64, NARROW, DType, Type, prod
from .base import Attr, Composite, Float, In, Index, InferContext, op

MEL, HERTZ = 2595.0, 700.0  # mel = 2595 · log10(1 + hertz / 700)
OPERANDS = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
NOTHING = np.zeros(0, np.int64)  # the shape of a scalar


@op(since=17)
class MelWeightMatrix(Composite):
    """[dft_length // 2 + 1, num_mel_bins]: in column i a triangle from edge i to edge i + 2, which is 1 at edge i + 1,
    edges being num_mel_bins + 2 frequencies from the lower one on in equal steps of mel, each rounded down
    to a bin of the spectrum.

    The steps are of (upper - lower) / (num_mel_bins + 2), as in onnx.reference and ONNX Runtime, so that the upper
    frequency is not reached. Computed in f64; what falls outside of the spectrum is left out.
    """

    num_mel_bins: In[Index]
    dft_length: In[Index]
    sample_rate: In[Index]
    lower_edge_hertz: In[Float]
    upper_edge_hertz: In[Float]
    output_datatype: Attr[DType] = F32

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        for i, name in enumerate(OPERANDS):
            if prod(ctx.shape(i)) != 1:
                ctx.fail(f"{name} must be one number", found=ctx.types[i])
        check_datatype(ctx.fail, self.output_datatype)
        for i in (0, 1):
            size = ctx.dims(i, OPERANDS[i])[0]
            if isinstance(size, int) and size < i:
                ctx.fail(f"impossible {OPERANDS[i]}", expected=f"{i} or more", found=size)
        return super().infer(ctx)

    def expand(self, g: PyAny, *operands: PyAny) -> PyAny:
        zero, one = (g.const(np.array(i, np.int64)) for i in (0, 1))
        return mel_weights(g, operands, self.output_datatype, lambda n: g.Range(zero, n, one))


def check_datatype(fail: Callable[..., PyAny], dtype: DType) -> None:
    """Lets `fail` raise for an element type that ONNX does not allow here."""
    if dtype in NARROW or dtype == BOOL or not (dtype.is_float or dtype.is_int):
        fail("output_datatype must be a type of numbers", found=dtype)


def mel_weights(g: PyAny, operands: Sequence[PyAny], dtype: DType, count: Callable[[PyAny], PyAny]) -> PyAny:
    """The matrix. `count`: from a scalar n, i64, to 0, 1, …, n - 1."""
    bins, length, rate, lower, upper = (g.Reshape(v, NOTHING) for v in operands)
    bins, length = g.Cast(bins, to=I64), g.Cast(length, to=I64)

    def real(x: PyAny) -> PyAny:
        return g.Cast(x, to=F64)

    def number(x: float) -> PyAny:
        return g.const(x, F64)

    def mel(hertz: PyAny) -> PyAny:
        return g.Mul(g.Log(g.Add(g.Div(real(hertz), number(HERTZ)), number(1.0))), number(MEL / math.log(10)))

    two = g.const(np.array(2, np.int64))
    edges = g.Add(bins, two)
    low = mel(lower)
    step = g.Div(g.Sub(mel(upper), low), real(edges))
    mels = g.Add(g.Mul(real(count(edges)), step), low)
    hertz = g.Mul(g.Sub(g.Exp(g.Mul(mels, number(math.log(10) / MEL))), number(1.0)), number(HERTZ))
    at = g.Floor(g.Div(g.Mul(g.Add(real(length), number(1.0)), hertz), real(rate)))
    spectrum = g.Add(g.Div(length, two), g.const(np.array(1, np.int64)))
    rows = g.Unsqueeze(real(count(spectrum)), np.array([1], np.int64))
    far = np.iinfo(np.int64).max
    begin, centre, end = (g.Slice(at, np.array([i]), np.array([i - 2 if i < 2 else far]), np.array([0]))
                          for i in range(3))  # fmt: skip
    one, zero = number(1.0), number(0.0)
    rising = g.Div(g.Sub(rows, begin), g.Max(g.Sub(centre, begin), one))
    falling = g.Div(g.Sub(end, rows), g.Max(g.Sub(end, centre), one))
    y = g.Where(g.And(g.LessOrEqual(begin, rows), g.Less(rows, centre)), rising, zero)
    y = g.Where(g.And(g.Less(centre, rows), g.Less(rows, end)), falling, y)
    top = g.And(g.Equal(rows, centre), g.Or(g.LessOrEqual(begin, centre), g.Less(centre, end)))
    return g.Cast(g.Where(top, one, y), to=dtype)
