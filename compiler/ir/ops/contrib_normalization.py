"""ONNX Runtime's normalisations: of a sum with a residual, of a sum of embeddings, and RMSNormalization's former name.

Source: docs/ContribOperators.md of ONNX Runtime. Sums and statistics of halves are in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, I32, TensorType, Type
from .base import Attr, Composite, Float, Float2, In, InferContext, Opt, OptOut, Out, TypeGroup, op
from .casting import as_float, cast_to
from .contrib_activation import check_last

LAST = [-1]


def _inverse_deviation(g: PyAny, centred: PyAny, axes: list[int], epsilon: float) -> PyAny:
    """1 / sqrt(mean(x²) + epsilon) in f32."""
    return cast_to(g, g.Reciprocal(g.Sqrt(g.Add(g.ReduceMean(g.Mul(centred, centred), axes), epsilon))), F32)


@op()
class SimplifiedLayerNormalization(Composite):
    """RMSNormalization as ONNX Runtime had it in ONNX's domain before ONNX; also 1 / sqrt(mean(x²) + epsilon)."""

    x: In[Float]
    scale: In[Float2]
    y: Out
    inv_std_var: OptOut
    axis: Attr[int] = -1
    epsilon: Attr[float] = 1e-5
    stash_type: Attr[int] = 1

    def expand(self, g: PyAny, x: PyAny, scale: PyAny) -> list[PyAny]:
        y = g.RMSNormalization(x, scale, axis=self.axis, epsilon=self.epsilon, stash_type=self.stash_type)
        rank = x.tensor.rank
        axes = list(range(self.axis % rank, rank))
        return [y, _inverse_deviation(g, as_float(g, x), axes, self.epsilon)]


class ResidualNormalization(Composite):
    """Normalises x + skip + bias along the last axis; skip may lack x's batch. Also that sum, and its statistics."""

    x: In[Float]
    skip: In[Float]
    gamma: In[Float]
    epsilon: Attr[float] = 1e-12

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape, skip = ctx.shape(0), ctx.shape(1)
        if len(shape) not in (2, 3):
            ctx.fail("x must be [N, S, D] or [tokens, D]", found=ctx.types[0])
        if len(skip) not in (len(shape), len(shape) - 1) or len(skip) < 2:
            ctx.fail("skip must have x's axes, or all but the batch", expected=ctx.types[0], found=ctx.types[1])
        for i, (own, dim) in enumerate(zip(reversed(shape), reversed(skip), strict=False)):
            if i < 2 or dim != 1:
                ctx.equal(own, dim, "skip must have x's tokens and numbers")
        for i, name in self.vectors():
            if ctx.has(i):
                check_last(ctx, i, shape[-1], name)
        statistics = TensorType(F32, (*shape[:-1], 1))
        return [ctx.tensor(0), statistics, statistics, ctx.tensor(0)]

    def vectors(self) -> Sequence[tuple[int, str]]:
        """The operands of a number for each of the last axis."""
        raise NotImplementedError(f"{self.name}.vectors")

    def total(self, g: PyAny, x: PyAny, skip: PyAny, bias: PyAny) -> PyAny:
        """x + skip + bias in f32 (f64 of f64)."""
        total = g.Add(as_float(g, x), as_float(g, skip))
        return total if bias is None else g.Add(total, as_float(g, bias))


@op(domain="com.microsoft")
class SkipLayerNormalization(ResidualNormalization):
    """LayerNormalization of x + skip + bias along the last axis: also mean, 1 / sqrt(var + epsilon) and the sum."""

    beta: Opt[Float]
    bias: Opt[Float]
    y: Out
    mean: OptOut
    inv_std_var: OptOut
    input_skip_bias_sum: OptOut

    def vectors(self) -> Sequence[tuple[int, str]]:
        return (2, "gamma"), (3, "beta"), (4, "bias")

    def expand(self, g: PyAny, x: PyAny, skip: PyAny, gamma: PyAny, beta: PyAny = None,
               bias: PyAny = None) -> list[PyAny]:
        dtype, total = x.type.dtype, self.total(g, x, skip, bias)
        numbers = [v if v is None else as_float(g, v) for v in (gamma, beta)]
        y = g.LayerNormalization(total, *numbers, epsilon=self.epsilon)
        mean = g.ReduceMean(total, LAST)
        deviation = _inverse_deviation(g, g.Sub(total, mean), LAST, self.epsilon)
        return [cast_to(g, y, dtype), cast_to(g, mean, F32), deviation, cast_to(g, total, dtype)]


@op(domain="com.microsoft")
class SkipSimplifiedLayerNormalization(ResidualNormalization):
    """RMSNormalization of x + skip + bias along the last axis: also mean, 1 / sqrt(mean(x²) + epsilon), the sum."""

    bias: Opt[Float]
    y: Out
    mean: OptOut
    inv_std_var: OptOut
    input_skip_bias_sum: OptOut

    def vectors(self) -> Sequence[tuple[int, str]]:
        return (2, "gamma"), (3, "bias")

    def expand(self, g: PyAny, x: PyAny, skip: PyAny, gamma: PyAny, bias: PyAny = None) -> list[PyAny]:
        dtype, total = x.type.dtype, self.total(g, x, skip, bias)
        y = g.RMSNormalization(total, as_float(g, gamma), epsilon=self.epsilon)
        mean = cast_to(g, g.ReduceMean(total, LAST), F32)
        return [cast_to(g, y, dtype), mean, _inverse_deviation(g, total, LAST, self.epsilon), cast_to(g, total, dtype)]


class TokenIndex(TypeGroup):
    """Numbers of words, segments, positions, and masks of them."""

    dtypes = frozenset({I32})


@op(domain="com.microsoft")
class EmbedLayerNormalization(Composite):
    """LayerNormalization of word + position + segment embeddings, picked by numbers [N, S]; BERT's first layer.

    Positions count from 0 where `position_ids` does not say. Further results: how many tokens of each row the mask
    keeps, those that are 1, or 0 without a mask; and the sum of the embeddings.
    """

    input_ids: In[TokenIndex]
    segment_ids: Opt[TokenIndex]
    word_embedding: In[Float]
    position_embedding: In[Float]
    segment_embedding: Opt[Float]
    gamma: In[Float]
    beta: In[Float]
    mask: Opt[TokenIndex]
    position_ids: Opt[TokenIndex]
    y: Out
    mask_index: OptOut
    embedding_sum: OptOut
    epsilon: Attr[float] = 1e-12
    mask_index_type: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ids = ctx.shape(0)
        if len(ids) != 2:
            ctx.fail("input_ids must be [N, S]", found=ctx.types[0])
        if ctx.has(1) != ctx.has(4):
            ctx.fail("segment_ids and segment_embedding go together", expected="both or neither")
        for i, name in ((1, "segment_ids"), (7, "mask"), (8, "position_ids")):
            if ctx.has(i):
                self._check_ids(ctx, i, name)
        size = None
        for i, name in ((2, "word_embedding"), (3, "position_embedding"), (4, "segment_embedding")):
            if not ctx.has(i):
                continue
            if ctx.rank(i) != 2:
                ctx.fail(f"{name} must be a matrix", found=ctx.types[i])
            size = ctx.shape(i)[1] if size is None else ctx.equal(size, ctx.shape(i)[1], "embeddings differ in size")
        assert size is not None
        for i, name in ((5, "gamma"), (6, "beta")):
            check_last(ctx, i, size, name)
        y = ctx.tensor(2).with_shape((*ids, size))
        return [y, TensorType(I32, (ids[0],)), y]

    def _check_ids(self, ctx: InferContext, i: int, name: str) -> None:
        ids, shape = ctx.shape(0), ctx.shape(i)
        if len(shape) != 2:
            ctx.fail(f"{name} must be [N, S]", found=ctx.types[i])
        if i != 8 or shape[0] != 1:
            ctx.equal(ids[0], shape[0], f"{name} must have input_ids' rows")
        ctx.equal(ids[1], shape[1], f"{name} must have input_ids' tokens")

    def expand(self, g: PyAny, ids: PyAny, segments: PyAny, words: PyAny, positions: PyAny, kinds: PyAny,
               gamma: PyAny, beta: PyAny, mask: PyAny = None, position_ids: PyAny = None) -> list[PyAny]:
        dtype = words.type.dtype
        if position_ids is None:
            placed = g.Slice(positions, [0], g.Shape(ids, start=1, end=2), [0])
        else:
            placed = g.Gather(positions, position_ids)
        total = g.Add(as_float(g, g.Gather(words, ids)), as_float(g, placed))
        if segments is not None:
            total = g.Add(total, as_float(g, g.Gather(kinds, segments)))
        y = g.LayerNormalization(total, as_float(g, gamma), as_float(g, beta), epsilon=self.epsilon)
        if mask is None:
            count = g.Expand(np.zeros(1, np.int32), g.Shape(ids, start=0, end=1))
        else:
            ones = g.Cast(g.Equal(mask, np.int32(1)), to=I32)
            count = g.ReduceSum(ones, np.array([1], np.int64), keepdims=0)
        return [cast_to(g, y, dtype), count, cast_to(g, total, dtype)]
