"""ONNX Runtime's MultiHeadAttention: queries, keys and values that are projected already, apart or packed.

Source: docs/ContribOperators.md of ONNX Runtime. ONNX Runtime has packed operands on GPUs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Dim, Type
from .attention_heads import apart
from .base import In, InferContext, Opt, OptOut, Out, op
from .casting import as_float, cast_to
from .contrib_activation import check_last
from .contrib_attention import HeadAttention, check_bias, check_mask
from .contrib_normalization import TokenIndex
from .rotary import ShortFloat


def _packed(g: PyAny, x: PyAny, count: int) -> list[PyAny]:
    """[N, S, heads, count, D] as `count` of [N, heads, S, D]."""
    parts = g.Split(x, np.ones(count, np.int64), axis=3, n_outputs=count)
    return [g.Transpose(g.Squeeze(part, [3]), perm=[0, 2, 1, 3]) for part in parts]


@op(domain="com.microsoft")
class MultiHeadAttention(HeadAttention):
    """softmax(scale · q kᵀ + masks) v of each head; also the present keys and values [N, heads, P + L, D].

    The query is [N, S, heads · D]; or all three, [N, S, heads, 3, D]. The key is [N, L, heads · D]; or [N, L, heads,
    2, D], both; or [N, heads, L, D] beside such values, of a past that no bias is added to, as to what is projected.
    `key_mask` has the masks' shapes. Refused are pasts in longer buffers (`past_sequence_length`, `cache_indirection`),
    and the scores as a result (`qk`).
    """

    query: In[ShortFloat]
    keys: Opt[ShortFloat]
    values: Opt[ShortFloat]
    bias: Opt[ShortFloat]
    key_padding_mask: Opt[TokenIndex]
    attention_bias: Opt[ShortFloat]
    past_key: Opt[ShortFloat]
    past_value: Opt[ShortFloat]
    past_sequence_length: Opt[TokenIndex]
    cache_indirection: Opt[TokenIndex]
    y: Out
    present_key: OptOut
    present_value: OptOut
    qk: OptOut

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.has(8) or ctx.has(9):
            ctx.unsupported("a past in a longer buffer (past_sequence_length, cache_indirection)",
                            hint="export without it, and keep the state in the plan by --state")  # fmt: skip
        if ctx.n_outputs > 3:
            ctx.unsupported("scores as a result (qk)")
        query, size, width, keys = self._sizes(ctx)
        if ctx.has(3):
            check_last(ctx, 3, self.num_heads * (2 * size + width), "the bias")
        total = self._check_past(ctx, size, width) + keys
        check_mask(ctx, 4, query[0], query[1], total)
        check_bias(ctx, 5, (query[0], self.num_heads, query[1], total))
        return super().infer(ctx)

    def _sizes(self, ctx: InferContext) -> tuple[tuple[Dim, Dim], int, int, Dim]:
        """(N, S), the sizes of a head's keys and of its values, how many keys are no past. Fails on bad operands."""
        query = ctx.shape(0)
        if len(query) == 5 and not ctx.has(1) and not ctx.has(2):
            size = self._check_packed(ctx, 0, 3)
            return (query[0], query[1]), size, size, query[1]
        if len(query) != 3 or not ctx.has(1):
            ctx.fail("the query must be [N, S, heads · D] beside a key, or all three packed", found=ctx.types[0])
        key, size = ctx.shape(1), self.check_heads(ctx, query[2], "the query")
        ctx.equal(query[0], key[0] if key else 1, "query and key must have one batch")
        if len(key) == 5 and not ctx.has(2):
            ctx.equal(size, self._check_packed(ctx, 1, 2), "heads of queries and keys differ in size")
            return (query[0], query[1]), size, size, key[1]
        if not ctx.has(2) or len(key) not in (3, 4) or ctx.rank(2) != len(key):
            ctx.fail("key and value must be [N, L, heads · D], or [N, heads, L, D], or packed",
                     found=f"{ctx.types[1]} and {ctx.types[2] if ctx.has(2) else 'nothing'}")  # fmt: skip
        value = ctx.shape(2)
        ctx.equal(query[0], value[0], "query and value must have one batch")
        if len(key) == 3:
            ctx.equal(query[2], key[2], "heads of queries and keys differ in size")
            ctx.equal(key[1], value[1], "keys and values differ in number")
            return (query[0], query[1]), size, self.check_heads(ctx, value[2], "the value"), key[1]
        for dim, wanted in zip((key[1], key[3], value[1], value[2]), (self.num_heads, size, self.num_heads, key[2]),
                               strict=True):  # fmt: skip
            ctx.equal(wanted, dim, "key and value must be [N, heads, L, D]")
        if ctx.has(6) or ctx.has(7):
            ctx.fail("a key of 4 axes is the past already", expected="no past_key and no past_value")
        if not isinstance(value[3], int):
            ctx.unsupported("the size of the value must be known at compile time", found=ctx.types[2])
        return (query[0], query[1]), size, value[3], key[2]

    def _check_packed(self, ctx: InferContext, i: int, count: int) -> int:
        shape = ctx.shape(i)
        ctx.equal(self.num_heads, shape[2], "packed operands must be [N, S, heads, parts, D]")
        ctx.equal(count, shape[3], "packed operands must be [N, S, heads, parts, D]")
        if self.num_heads < 1:
            ctx.fail("malformed num_heads", expected="1 or more", found=self.num_heads)
        if not isinstance(shape[4], int):
            ctx.unsupported("the size of a head must be known at compile time", found=ctx.types[i])
        return shape[4]

    def _check_past(self, ctx: InferContext, size: int, width: int) -> Dim:
        """How many tokens the past has. Fails where it is malformed."""
        if ctx.has(6) != ctx.has(7):
            ctx.fail("past_key and past_value go together", expected="both or neither")
        if not ctx.has(6):
            return 0
        for i, each in ((6, size), (7, width)):
            if ctx.rank(i) != 4:
                ctx.fail("a past must be [N, heads, P, D]", found=ctx.types[i])
            dims = ctx.shape(i)
            for dim, wanted in zip((dims[0], dims[1], dims[3]), (ctx.shape(0)[0], self.num_heads, each), strict=True):
                ctx.equal(wanted, dim, "a past must be [N, heads, P, D]")
        ctx.equal(ctx.shape(6)[2], ctx.shape(7)[2], "past_key and past_value differ in length")
        return ctx.shape(6)[2]

    def expand(self, g: PyAny, query: PyAny, key: PyAny = None, value: PyAny = None, bias: PyAny = None,
               mask: PyAny = None, added: PyAny = None, past_key: PyAny = None, past_value: PyAny = None,
               past_length: PyAny = None, indirection: PyAny = None) -> list[PyAny]:
        dtype = query.type.dtype
        q, k, v = self._heads(g, query, key, value)
        if bias is not None:
            biased = self._biased(g, (q, k, v), bias)
            q, k, v = [biased[0], k, v] if key is not None and key.tensor.rank == 4 else biased
        if past_key is not None:
            k, v = (g.Concat(as_float(g, old), new, axis=2) for old, new in ((past_key, k), (past_value, v)))
        y = self.mixed(g, q, k, v, mask, None if added is None else as_float(g, added))
        return [cast_to(g, result, dtype) for result in (y, k, v)]

    def _heads(self, g: PyAny, query: PyAny, key: PyAny, value: PyAny) -> list[PyAny]:
        """Queries, keys and values apart, [N, heads, S, D], in f32."""
        if query.tensor.rank == 5:
            return _packed(g, as_float(g, query), 3)
        q = apart(g, as_float(g, query), self.num_heads)
        if key.tensor.rank == 5:
            return [q, *_packed(g, as_float(g, key), 2)]
        k, v = as_float(g, key), as_float(g, value)
        return [q, k, v] if key.tensor.rank == 4 else [q, apart(g, k, self.num_heads), apart(g, v, self.num_heads)]

    def _biased(self, g: PyAny, heads: Sequence[PyAny], bias: PyAny) -> list[PyAny]:
        """Queries, keys and values, each plus its part of the bias."""
        sizes = [v.tensor.dims[-1] for v in heads]
        parts = g.Split(as_float(g, bias), np.array(sizes, np.int64) * self.num_heads, axis=0, n_outputs=3)
        return [g.Add(v, g.Reshape(part, [self.num_heads, 1, size]))
                for v, part, size in zip(heads, parts, sizes, strict=True)]  # fmt: skip
