"""ONNX Runtime's attention: with the projections, of quantised tensors, and of queries, keys and values apart.

Source: docs/ContribOperators.md of ONNX Runtime. Halves are computed in f32 and rounded once. Refused are rotation
within (`do_rotary`) and states in buffers that are longer than what is in them (`past_present_share_buffer`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Dim, Type
from .attention_heads import apart, attended, causal_mask, key_mask, together
from .base import Attr, Composite, In, InferContext, Ints, Opt, OptOut, Out, op
from .casting import as_float, cast_to
from .contrib_activation import check_last
from .contrib_normalization import TokenIndex
from .contrib_quantised import ShortScale, check_one
from .contrib_quantised_products import check_columns, scaled_product
from .quantised_products import ByteA, ByteB
from .rotary import ShortFloat


def check_mask(ctx: InferContext, i: int, batch: Dim, queries: Dim, keys: Dim) -> None:
    """Fails unless operand i, if given, is a mask of one of the shapes that `key_mask` takes."""
    if not ctx.has(i):
        return
    shape = ctx.shape(i)
    if len(shape) == 1:
        if shape[0] not in (batch, 2 * batch, 3 * batch + 2):
            ctx.equal(batch, shape[0], "a mask of one axis must have N, 2 N or 3 N + 2 numbers")
        return
    if not 2 <= len(shape) <= 4:
        ctx.fail("a mask must have 1 to 4 axes", found=ctx.types[i])
    ctx.equal(batch, shape[0], "the mask must have the batch of the queries")
    if len(shape) < 4:
        ctx.equal(keys, shape[-1], "the mask must have a number for each key, those of the past too")
    if len(shape) == 3:
        ctx.equal(queries, shape[1], "the mask must have a row for each query")
    if len(shape) == 4:
        ctx.equal(1, shape[1], "a mask of 4 axes serves all heads")
        ctx.equal(shape[2], shape[3], "a mask of 4 axes must be square")
        if isinstance(shape[3], int) and isinstance(keys, int) and shape[3] < keys:
            ctx.fail("the mask must have a number for each key", expected=f">= {keys}", found=shape[3])


def check_bias(ctx: InferContext, i: int, scores: Sequence[Dim]) -> None:
    """Fails unless operand i, if given, is [N or 1, heads or 1, S, T], to be added to scores."""
    if not ctx.has(i):
        return
    shape = ctx.shape(i)
    if len(shape) != 4:
        ctx.fail("what is added to scores must have 4 axes", expected=list(scores), found=ctx.types[i])
    for axis, (dim, size) in enumerate(zip(shape, scores, strict=True)):
        if axis > 1 or dim != 1:
            ctx.equal(size, dim, "what is added to scores must have their shape")


class HeadAttention(Composite):
    """Attention of heads that lie in one axis, with a mask and perhaps a past."""

    num_heads: Attr[int]
    mask_filter_value: Attr[float] = -10000.0
    scale: Attr[float] = 0.0
    unidirectional: Attr[int] = 0

    def factor(self, size: int) -> float:
        """What scores of heads of that size are multiplied by."""
        return self.scale or 1 / math.sqrt(size)

    def check_heads(self, ctx: InferContext, size: Dim, what: str) -> int:
        """Fails unless that many numbers are so many heads. Returns the size of one."""
        if self.num_heads < 1:
            ctx.fail("malformed num_heads", expected="1 or more", found=self.num_heads)
        if not isinstance(size, int):
            ctx.unsupported(f"the size of {what} must be known at compile time", found=size)
        if size < 1 or size % self.num_heads:
            ctx.fail(f"heads must divide {what}", expected=f"a multiple of {self.num_heads}", found=size)
        return size // self.num_heads

    def mixed(self, g: PyAny, q: PyAny, k: PyAny, v: PyAny, mask: PyAny, bias: PyAny) -> PyAny:
        """The result for heads apart, in f32: [N, S, heads · E]."""
        size = q.tensor.dims[-1]
        masks = [] if mask is None else [key_mask(g, mask, q.tensor.dims[0], q, k, self.mask_filter_value)]
        if self.unidirectional:
            masks.append(causal_mask(g, q, k))
        return together(g, attended(g, q, k, v, self.factor(size), *masks, bias))


class SelfAttention(HeadAttention):
    """Attention of one tensor to itself and its past, [2, N, heads, P, D]: keys, then values."""

    do_rotary: Attr[int] = 0
    past_present_share_buffer: Attr[int] = 0

    def columns_of_weights(self, ctx: InferContext) -> int:
        """Of operand 1, known when compiling. Fails unless operand 0 is [N, S, K] and 1 a matrix."""
        if ctx.rank(0) != 3 or ctx.rank(1) != 2:
            ctx.fail("x must be [N, S, K] and weights a matrix", found=f"{ctx.types[0]} and {ctx.types[1]}")
        columns = ctx.shape(1)[1]
        if not isinstance(columns, int):
            ctx.unsupported("the size of the weights must be known at compile time", found=ctx.types[1])
        return columns

    def check_past(self, ctx: InferContext, i: int, size: int) -> Dim:
        """Fails unless operand i, if given, is a past of heads of that size. Returns how many tokens it has."""
        if self.do_rotary:
            ctx.unsupported("a rotary embedding within attention (do_rotary)")
        if self.past_present_share_buffer:
            ctx.unsupported("a past in a longer buffer (past_present_share_buffer)",
                            hint="export without it, and keep the state in the plan by --state")  # fmt: skip
        if not ctx.has(i):
            return 0
        past = ctx.shape(i)
        if len(past) != 5:
            ctx.fail("the past must be [2, N, heads, P, D]", found=ctx.types[i])
        for dim, wanted in zip((*past[:3], past[4]), (2, ctx.shape(0)[0], self.num_heads, size), strict=True):
            ctx.equal(wanted, dim, "the past must be [2, N, heads, P, D]")
        return past[3]

    def of_projected(self, g: PyAny, parts: Sequence[PyAny], mask: PyAny, past: PyAny, bias: PyAny,
                     dtype: PyAny) -> list[PyAny]:  # fmt: skip
        """The result and the present, of projected queries, keys and values [N, S, heads · D]."""
        q, k, v = (apart(g, part, self.num_heads) for part in parts)
        if past is not None:
            k, v = (g.Concat(as_float(g, g.Gather(past, np.int64(i), axis=0)), new, axis=2)
                    for i, new in enumerate((k, v)))  # fmt: skip
        y = cast_to(g, self.mixed(g, q, k, v, mask, bias), dtype)
        if k.tensor.dims[-1] != v.tensor.dims[-1]:
            return [y]
        return [y, cast_to(g, g.Concat(g.Unsqueeze(k, [0]), g.Unsqueeze(v, [0]), axis=0), dtype)]


@op(domain="com.microsoft")
class Attention(SelfAttention):
    """Heads of x [N, S, K] · weights [K, D + D + E] + bias, masked; also the present [2, N, heads, P + S, D].

    Queries, keys and values are thirds of the weights, or of `qkv_hidden_sizes`. `key_mask` has the masks' shapes.
    """

    x: In[ShortFloat]
    weights: In[ShortFloat]
    bias: Opt[ShortFloat]
    mask_index: Opt[TokenIndex]
    past: Opt[ShortFloat]
    attention_bias: Opt[ShortFloat]
    past_sequence_length: Opt[TokenIndex]
    y: Out
    present: OptOut
    qkv_hidden_sizes: Attr[Ints] = ()
    rotary_embedding_dim: Attr[int] = 0

    def sizes(self, columns: int) -> tuple[int, ...]:
        """Of queries, keys and values."""
        return self.qkv_hidden_sizes or (columns // 3,) * 3

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        columns = self.columns_of_weights(ctx)
        sizes = self.sizes(columns)
        if len(sizes) != 3 or sizes[0] != sizes[1] or sum(sizes) != columns:
            ctx.fail("the weights are no queries, keys and values side by side",
                     expected=f"D + D + E = {columns} columns", found=list(sizes))  # fmt: skip
        size = self.check_heads(ctx, sizes[0], "the queries")
        self.check_heads(ctx, sizes[2], "the values")
        if sizes[2] != sizes[0] and (ctx.has(4) or ctx.n_outputs > 1):
            ctx.fail("keys and values of a past must be of one size", expected=sizes[0], found=sizes[2])
        if ctx.has(2):
            check_last(ctx, 2, columns, "the bias")
        batch, queries = ctx.shape(0)[:2]
        keys = self.check_past(ctx, 4, size) + queries
        check_mask(ctx, 3, batch, queries, keys)
        check_bias(ctx, 5, (batch, self.num_heads, queries, keys))
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, weights: PyAny, bias: PyAny = None, mask: PyAny = None, past: PyAny = None,
               attention_bias: PyAny = None, past_length: PyAny = None) -> list[PyAny]:
        projected = g.MatMul(as_float(g, x), as_float(g, weights))
        if bias is not None:
            projected = g.Add(projected, as_float(g, bias))
        sizes = np.array(self.sizes(weights.tensor.dims[1]), np.int64)
        parts = g.Split(projected, sizes, axis=-1, n_outputs=3)
        added = None if attention_bias is None else as_float(g, attention_bias)
        return self.of_projected(g, parts, mask, past, added, x.type.dtype)


@op(domain="com.microsoft")
class QAttention(SelfAttention):
    """Attention whose x and weights are bytes; scales and zero points of the weights may be one a column."""

    x: In[ByteA]
    weights: In[ByteB]
    bias: In[ShortScale]
    x_scale: In[ShortScale]
    weight_scale: In[ShortScale]
    mask_index: Opt[TokenIndex]
    x_zero_point: Opt[ByteA]
    weight_zero_point: Opt[ByteB]
    past: Opt[ShortScale]
    y: Out
    present: OptOut

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        columns = self.columns_of_weights(ctx)
        if columns % 3:
            ctx.fail("the weights are no queries, keys and values side by side", expected="3 D columns", found=columns)
        size = self.check_heads(ctx, columns // 3, "the queries")
        check_one(ctx, 3, 6)
        check_columns(ctx, columns, 4, 7)
        check_last(ctx, 2, columns, "the bias")
        batch, queries = ctx.shape(0)[:2]
        check_mask(ctx, 5, batch, queries, self.check_past(ctx, 8, size) + queries)
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, weights: PyAny, bias: PyAny, x_scale: PyAny, weight_scale: PyAny,
               mask: PyAny = None, x_zero: PyAny = None, weight_zero: PyAny = None, past: PyAny = None) -> list[PyAny]:
        projected = scaled_product(g, x, weights, (x_zero, weight_zero), (x_scale, weight_scale), bias)
        parts = g.Split(projected, np.full(3, weights.tensor.dims[1] // 3, np.int64), axis=-1, n_outputs=3)
        return self.of_projected(g, parts, mask, past, None, bias.type.dtype)
