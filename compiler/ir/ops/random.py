"""Random tensors: RandomUniform, RandomNormal, both of another tensor's shape, Bernoulli, Multinomial.

All draw words of `RandomBits`, which follow from a seed and an element's place: the same for any number of cores and
instances. A node with a seed draws the same numbers in every run, one without draws others in each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import BOOL, F32, F64, I32, I64, NARROW, U32, DType, TensorType, Type
from .base import Any, Attr, Composite, Float, Host, In, InferContext, Int64, Ints, Opt, Out, op
from .casting import cast_to
from .dropout import RandomWords, check_one_number, check_position
from .filling import requested_shape

_WORDS = 2.0**32


@op(domain="parax")
class RandomBits(RandomWords):
    """A word of 32 random bits for each element: the one of which RandomMask says whether it is less than a ratio."""

    shape: In[Int64]
    seed: In[Int64]
    position: Opt[Int64]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_one_number(ctx, 1, "seed")
        check_position(ctx, 2)
        return [TensorType(U32, requested_shape(ctx, 0, "shape"))]


@op(domain="parax")
class FreshSeed(Host):
    """A seed that the operating system's source of random numbers gives anew in every run."""

    y: Out
    deterministic = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(I64, ())]


class _Random(Composite):
    """Draws words: `seed` is ONNX's, a float of which every one, -0 included, gives other numbers."""

    seed: Attr[float | None] = None
    deterministic = False

    def source(self, g: PyAny, shape: PyAny) -> _Words:
        """The words of this node, for tensors of that shape (a vector)."""
        if self.seed is None:
            return _Words(g, shape, g.FreshSeed())
        return _Words(g, shape, g.const(np.asarray(np.float32(self.seed).view(np.int32), np.int64)))


class _Words:
    """Tensors of independent random words, one after the other, of one seed."""

    def __init__(self, g: PyAny, shape: PyAny, seed: PyAny) -> None:
        self.g, self.shape, self.seed, self.drawn = g, shape, seed, 0

    def draw(self) -> PyAny:
        """The next tensor, u32."""
        position = self.g.const(np.array([self.drawn, 0], np.int64))
        self.drawn += 1
        return self.g.RandomBits(self.shape, self.seed, position)

    def unit(self, dtype: DType) -> PyAny:
        """Uniform in [0, 1): multiples of 2⁻²⁴ in f32, of 2⁻⁵³ in f64."""
        g = self.g
        if dtype == F32:
            return g.Mul(g.Cast(self._upper(24), to=F32), g.const(2.0**-24, F32))
        high = g.Mul(g.Cast(self._upper(27), to=F64), g.const(2.0**26, F64))
        return g.Mul(g.Add(high, g.Cast(self._upper(26), to=F64)), g.const(2.0**-53, F64))

    def positive(self, dtype: DType) -> PyAny:
        """Uniform in (0, 1], close to 0 in steps of 2⁻³² in f32, of 2⁻⁶⁴ in f64."""
        g = self.g
        words = g.Cast(self.draw(), to=dtype)
        scale = 1 / _WORDS
        if dtype == F64:
            words, scale = g.Add(g.Mul(words, g.const(_WORDS, F64)), g.Cast(self.draw(), to=F64)), scale / _WORDS
        return g.Mul(g.Add(words, g.const(1.0, dtype)), g.const(scale, dtype))

    def normal(self, dtype: DType) -> PyAny:
        """Normal of mean 0 and variance 1 (Box, Muller, "A note on the generation of random normal deviates", 1958)."""
        g = self.g
        radius = g.Sqrt(g.Mul(g.Log(self.positive(dtype)), g.const(-2.0, dtype)))
        return g.Mul(radius, g.Cos(g.Mul(self.unit(dtype), g.const(2 * math.pi, dtype))))

    def _upper(self, bits: int) -> PyAny:
        return self.g.BitShift(self.draw(), self.g.const(32 - bits, U32), direction="RIGHT")


class _RandomFloats(_Random):
    """Floats of the element type `dtype`, of f32 or f64 rounded to it."""

    def result_dtype(self, given: DType | None) -> DType:
        """The element type; `given`: that of the tensor whose shape is taken."""
        return self.dtype or given or F32  # type: ignore[attr-defined]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        dtype = self.result_dtype(ctx.tensor(0).dtype if ctx.n_inputs else None)
        if dtype not in Float.dtypes:
            ctx.fail("dtype must be a float type", expected=Float.text(), found=dtype)
        shape = getattr(self, "shape", ())
        if any(d < 0 for d in shape):
            ctx.fail("negative dimension in shape", found=list(shape))
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny = None) -> PyAny:
        shape = g.const(np.array(self.shape, np.int64)) if x is None else g.Shape(x)  # type: ignore[attr-defined]
        dtype = self.result_dtype(None if x is None else x.type.dtype)
        wide = F64 if dtype == F64 else F32
        return cast_to(g, self.numbers(g, self.source(g, shape), wide), dtype)

    def numbers(self, g: PyAny, source: _Words, dtype: DType) -> PyAny:
        """Random numbers of f32 or f64."""
        raise NotImplementedError


class _Uniform(_RandomFloats):
    """Uniform from `low` to `high`."""

    low: Attr[float] = 0.0
    high: Attr[float] = 1.0

    def numbers(self, g: PyAny, source: _Words, dtype: DType) -> PyAny:
        spread = g.Mul(source.unit(dtype), g.const(self.high - self.low, dtype))
        return g.Add(spread, g.const(self.low, dtype))


class _Normal(_RandomFloats):
    """Normal, of mean `mean` and standard deviation `scale`."""

    mean: Attr[float] = 0.0
    scale: Attr[float] = 1.0

    def numbers(self, g: PyAny, source: _Words, dtype: DType) -> PyAny:
        return g.Add(g.Mul(source.normal(dtype), g.const(self.scale, dtype)), g.const(self.mean, dtype))


@op(since=1)
class RandomUniform(_Uniform):
    """Uniform random numbers from `low` to `high`."""

    shape: Attr[Ints]
    dtype: Attr[DType] = F32


@op(since=1)
class RandomNormal(_Normal):
    """Normal random numbers."""

    shape: Attr[Ints]
    dtype: Attr[DType] = F32


@op(since=1)
class RandomUniformLike(_Uniform):
    """Uniform random numbers, as many as a tensor has, in its element type unless `dtype` is given."""

    input: In[Any]
    dtype: Attr[DType | None] = None


@op(since=1)
class RandomNormalLike(_Normal):
    """Normal random numbers, as many as a tensor has, in its element type unless `dtype` is given."""

    input: In[Any]
    dtype: Attr[DType | None] = None


@op(since=15)
class Bernoulli(_Random):
    """1 with the probability that an element says, else 0; of the element type of these unless `dtype` is given."""

    input: In[Float]
    dtype: Attr[DType | None] = None

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        dtype = self.dtype
        if dtype is not None and (dtype in NARROW or not (dtype.is_float or dtype.is_int or dtype == BOOL)):
            ctx.fail("dtype must be a number's or bool", found=dtype)
        return super().infer(ctx)

    def expand(self, g: PyAny, input: PyAny) -> PyAny:
        words = g.Cast(self.source(g, g.Shape(input)).draw(), to=F64)
        hit = g.Less(words, g.Mul(cast_to(g, input, F64), g.const(_WORDS, F64)))
        return cast_to(g, hit, self.dtype or input.type.dtype)


@op(since=7)
class Multinomial(_Random):
    """Classes drawn by their unnormalised log probabilities: `sample_size` of each row, with replacement.

    The class of a number u in [0, 1) is the first whose share, added to those before it, exceeds u.
    """

    input: In[Float]
    dtype: Attr[DType] = I32
    sample_size: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) != 2:
            ctx.fail("input must be [batch, classes]", found=ctx.types[0])
        if self.dtype not in (I32, I64):
            ctx.fail("dtype must be an index type", expected="i32 or i64", found=self.dtype)
        if self.sample_size < 1:
            ctx.fail("sample_size must be positive", found=self.sample_size)
        if ctx.shape(0)[1] == 0:
            ctx.fail("no classes to draw from", found=ctx.types[0])
        return super().infer(ctx)

    def expand(self, g: PyAny, input: PyAny) -> PyAny:
        shape = g.Concat(g.Shape(input, start=0, end=1), g.const(np.array([self.sample_size], np.int64)), axis=0)
        logits = cast_to(g, input, F64)
        weights = g.Exp(g.Sub(logits, g.ReduceMax(logits, g.const(np.array([1], np.int64)))))
        sums = g.CumSum(weights, g.const(np.array(1, np.int64)))
        end = np.iinfo(np.int64).max
        total = g.Slice(sums, np.array([-1]), np.array([end]), np.array([1]))
        share = g.Mul(g.Cast(self.source(g, shape).draw(), to=F64), g.const(1 / _WORDS, F64))
        at = g.Unsqueeze(g.Mul(share, total), np.array([2]))
        before = g.LessOrEqual(g.Unsqueeze(sums, np.array([1])), at)
        return g.ReduceSum(g.Cast(before, to=self.dtype), g.const(np.array([2], np.int64)), keepdims=0)
