"""ONNX Runtime's GroupQueryAttention: a decoder's attention with its cache, its rotation and rows of uneven length.

Source: docs/ContribOperators.md of ONNX Runtime, and its CPU kernel where that says more. The kernel takes one row a
call where new tokens, several of them, follow a past; here rows may be as many as they like.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, I32, I64, Dim, Type, exact_max
from .attention_heads import LOWEST, apart, counted, size_of, together
from .base import Attr, Composite, In, InferContext, Int64, Opt, OptOut, Out, op
from .casting import as_float, cast_to
from .contraction import swapped
from .contrib_activation import check_last
from .contrib_attention import check_bias
from .contrib_normalization import TokenIndex
from .rotary import ShortFloat


@op(domain="com.microsoft")
class GroupQueryAttention(Composite):
    """softmax(scale · q kᵀ + masks) v, of `num_heads` queries to each of `kv_num_heads` keys, that of past tokens too.

    The query is [N, S, heads · D] beside keys and values [N, S, kv_heads · D], or has them behind it in the last axis.
    A row has `seqlens_k` + 1 tokens; those before the S new ones lie at the begin of `past_key` and `past_value`,
    [N, kv_heads, P, D], but where S is `total_sequence_length`: then there is no past, and rows end in padding. Further
    results are keys and values, rotated where that is asked for, [N, kv_heads, max(P, total), D], with zeros behind.

    Each token reads those up to itself (`causal`), the last `local_window_size` of them if that is not -1.
    Scores are softcap · tanh(score / softcap) where `softcap` is not 0, before a bias is added; `smooth_softmax` counts
    a score of 0 that has no value, and `head_sink` one for each head.

    `q_norm_weight` and `k_norm_weight` normalise each head before it is rotated, as RMSNormalization does.

    Refused are caches of bytes, or that evict, rows of uneven new tokens, scores as a result, and a total length that
    is not known when compiling: it must be a constant, or computed of sizes.
    """

    query: In[ShortFloat]
    keys: Opt[ShortFloat]
    values: Opt[ShortFloat]
    past_key: Opt[ShortFloat]
    past_value: Opt[ShortFloat]
    seqlens_k: In[TokenIndex]
    total_sequence_length: In[TokenIndex]
    cos_cache: Opt[ShortFloat]
    sin_cache: Opt[ShortFloat]
    position_ids: Opt[Int64]
    attention_bias: Opt[ShortFloat]
    head_sink: Opt[ShortFloat]
    k_scale: Opt[ShortFloat]
    v_scale: Opt[ShortFloat]
    q_norm_weight: Opt[ShortFloat]
    k_norm_weight: Opt[ShortFloat]
    query_seqlens: Opt[TokenIndex]
    y: Out
    present_key: OptOut
    present_value: OptOut
    output_qk: OptOut
    num_heads: Attr[int]
    kv_num_heads: Attr[int]
    causal: Attr[int] = 1
    do_rotary: Attr[int] = 0
    k_norm_epsilon: Attr[float | None] = None
    k_quant_type: Attr[str] = "NONE"
    kv_cache_bit_width: Attr[int] = 0
    local_window_size: Attr[int] = -1
    q_norm_epsilon: Attr[float | None] = None
    qk_norm_epsilon: Attr[float] = 1e-6
    qk_output: Attr[int] = 0
    rotary_interleaved: Attr[int] = 0
    scale: Attr[float] = 0.0
    sliding_window_cache: Attr[int] = 0
    smooth_softmax: Attr[int] = -1
    softcap: Attr[float] = 0.0
    v_quant_type: Attr[str] = "NONE"

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        self._check_refused(ctx)
        query, size = ctx.shape(0), self._head_size(ctx)
        batch, new = query[:2]
        past = self._past(ctx, size)
        if ctx.rank(5) != 1 or ctx.tensor(6).shape not in ((), (1,)):
            ctx.fail("seqlens_k must be [N], and total_sequence_length one number",
                     found=f"{ctx.types[5]} and {ctx.types[6]}")  # fmt: skip
        ctx.equal(batch, ctx.shape(5)[0], "seqlens_k must have a number for each row")
        total = ctx.dims(6, "total_sequence_length")[0]
        if self.do_rotary:
            self._check_rotary(ctx, size)
        if ctx.has(14) != ctx.has(15):
            ctx.fail("q_norm_weight and k_norm_weight go together", expected="both or neither")
        for i, name in ((14, "q_norm_weight"), (15, "k_norm_weight")):
            if ctx.has(i):
                check_last(ctx, i, size, name)
        check_bias(ctx, 10, (batch, self.num_heads, new, total))
        if ctx.has(11):
            check_last(ctx, 11, self.num_heads, "head_sink")
        if ctx.has(3):
            ctx.equal(past + new, exact_max(past + new, total), "the past and the new tokens must be the total or more")
        else:
            ctx.equal(new, total, "without a past, new tokens are all")
        return super().infer(ctx)

    def _check_refused(self, ctx: InferContext) -> None:
        if self.num_heads < 1 or self.kv_num_heads < 1 or self.num_heads % self.kv_num_heads:
            ctx.fail("queries must be as many for each key", expected="num_heads a multiple of kv_num_heads",
                     found=f"{self.num_heads} and {self.kv_num_heads}")  # fmt: skip
        if self.causal not in (0, 1) or self.local_window_size < -1 or self.local_window_size == 0:
            ctx.fail("malformed causal or local_window_size", expected="0 or 1, and -1 or a number of tokens",
                     found=f"{self.causal} and {self.local_window_size}")  # fmt: skip
        if not self.causal and self.local_window_size != -1:
            ctx.fail("a window needs causal attention", expected=-1, found=self.local_window_size)
        if any(ctx.has(i) for i in (12, 13)) or {self.k_quant_type, self.v_quant_type} != {"NONE"}:
            ctx.unsupported("a cache of quantised keys and values")
        if self.sliding_window_cache:
            ctx.unsupported("a cache that evicts (sliding_window_cache)")
        if ctx.has(16):
            ctx.unsupported("rows of uneven numbers of new tokens (query_seqlens)")
        if self.qk_output or ctx.n_outputs > 3:
            ctx.unsupported("scores as a result (output_qk)")

    def _head_size(self, ctx: InferContext) -> int:
        query, heads = ctx.shape(0), self.num_heads
        if ctx.has(1) != ctx.has(2) or len(query) != 3:
            ctx.fail("the query must be [N, S, heads · D], beside keys and values or before them", found=ctx.types[0])
        parts = heads if ctx.has(1) else heads + 2 * self.kv_num_heads
        if not isinstance(query[2], int):
            ctx.unsupported("the size of the query must be known at compile time", found=ctx.types[0])
        if query[2] < 1 or query[2] % parts:
            ctx.fail("heads must divide the query", expected=f"a multiple of {parts}", found=query[2])
        size = query[2] // parts
        for i in (1, 2) if ctx.has(1) else ():
            if ctx.rank(i) != 3:
                ctx.fail("keys and values must be [N, S, kv_heads · D]", found=ctx.types[i])
            for dim, wanted in zip(ctx.shape(i), (*query[:2], self.kv_num_heads * size), strict=True):
                ctx.equal(wanted, dim, "keys and values must be [N, S, kv_heads · D]")
        return size

    def _past(self, ctx: InferContext, size: int) -> Dim:
        """How many tokens the cache has room for."""
        if ctx.has(3) != ctx.has(4):
            ctx.fail("past_key and past_value go together", expected="both or neither")
        if not ctx.has(3):
            return 0
        for i in (3, 4):
            if ctx.rank(i) != 4:
                ctx.fail("a past must be [N, kv_heads, P, D]", found=ctx.types[i])
            (rows, heads, _, width), batch = ctx.shape(i), ctx.shape(0)[0]
            for dim, wanted in ((rows, batch), (heads, self.kv_num_heads), (width, size)):
                ctx.equal(wanted, dim, "a past must be [N, kv_heads, P, D]")
        ctx.equal(ctx.shape(3)[2], ctx.shape(4)[2], "past_key and past_value differ in length")
        return ctx.shape(3)[2]

    def _check_rotary(self, ctx: InferContext, size: int) -> None:
        if not ctx.has(7) or not ctx.has(8):
            ctx.fail("do_rotary needs cos_cache and sin_cache", expected="both")
        pairs = ctx.shape(7)[-1] if ctx.rank(7) == 2 and ctx.rank(8) == 2 else 0
        if not isinstance(pairs, int) or not 0 < 2 * pairs <= size:
            ctx.fail("the caches must be [positions, R/2]", expected=f"1 to {size // 2} columns", found=ctx.types[7])
        if ctx.has(9):
            if ctx.rank(9) != 2:
                ctx.fail("position_ids must be [N, S]", found=ctx.types[9])
            for dim, wanted in zip(ctx.shape(9), ctx.shape(0)[:2], strict=True):
                ctx.equal(wanted, dim, "position_ids must have a number for each new token")

    def expand(self, g: PyAny, query: PyAny, keys: PyAny, values: PyAny, past_key: PyAny, past_value: PyAny,
               lengths: PyAny, total: PyAny, cos: PyAny = None, sin: PyAny = None, ids: PyAny = None,
               bias: PyAny = None, sink: PyAny = None, *others: PyAny) -> list[PyAny]:
        dtype, kv = query.type.dtype, self.kv_num_heads
        if keys is None:
            size = query.tensor.dims[-1] // (self.num_heads + 2 * kv)
            sizes = np.array([self.num_heads, kv, kv], np.int64) * size
            query, keys, values = g.Split(query, sizes, axis=-1, n_outputs=3)
        q, k, v = (apart(g, as_float(g, x), heads)
                   for x, heads in ((query, self.num_heads), (keys, kv), (values, kv)))  # fmt: skip
        if len(others) > 2 and others[2] is not None:  # behind the scales of a cache of bytes
            q, k = (g.RMSNormalization(x, as_float(g, weight), epsilon=epsilon)
                    for x, weight, epsilon in zip((q, k), others[2:4], self.norm_epsilons(), strict=True))  # fmt: skip
        ends = g.Unsqueeze(g.Add(g.Cast(lengths, to=I64), np.int64(1)), [1])
        count, room = size_of(g, q, 2), g.Reshape(g.Cast(total, to=I64), [1])
        starts, fresh = g.Mul(ends, np.int64(0)), g.Equal(count, room)
        if past_key is not None:
            starts = g.Where(fresh, np.int64(0), g.Sub(ends, count))
        if self.do_rotary:
            at = self._positions(g, starts, fresh, q, ids)
            q, k = (self._rotated(g, x, cos, sin, at) for x in (q, k))
        if past_key is not None:
            room = g.Max(room, size_of(g, past_key, 2))
            k, v = (_placed(g, as_float(g, old), new, starts, room)
                    for old, new in ((past_key, k), (past_value, v)))  # fmt: skip
        added = [self._mask(g, q, k, starts, ends)]
        if bias is not None:
            behind = g.Sub(room, size_of(g, bias, 3))
            added.append(g.Pad(as_float(g, bias), g.Concat([0] * 7, behind, axis=0)))
        y = self._attended(g, q, k, v, added, None if sink is None else as_float(g, sink))
        return [cast_to(g, x, dtype) for x in (together(g, y), k, v)]

    def norm_epsilons(self) -> tuple[float, float]:
        """Of the norms of queries and of keys."""
        q, k = (self.qk_norm_epsilon if e is None else e for e in (self.q_norm_epsilon, self.k_norm_epsilon))
        return q, k

    def _positions(self, g: PyAny, starts: PyAny, fresh: PyAny, q: PyAny, ids: PyAny) -> PyAny:
        """Of each new token, [N, S]: behind the past, or by `ids`; a first prompt's count from the first of them."""
        steps = g.Cast(counted(g, q, 2), to=I64)
        if ids is None:
            return g.Add(starts, steps)
        first = g.Slice(ids, [0, 0], [1, 1], [0, 1])
        return g.Where(fresh, g.Add(first, steps), ids)

    def _rotated(self, g: PyAny, x: PyAny, cos: PyAny, sin: PyAny, at: PyAny) -> PyAny:
        return g.RotaryEmbedding(x, as_float(g, cos), as_float(g, sin), at, interleaved=self.rotary_interleaved,
                                 rotary_embedding_dim=2 * cos.tensor.dims[1])  # fmt: skip

    def _mask(self, g: PyAny, q: PyAny, k: PyAny, starts: PyAny, ends: PyAny) -> PyAny:
        """What is added to scores, [N, 1, S, L], so that a token reads its row's alone, and none that it must not."""
        key = counted(g, k, 2)
        last = g.Unsqueeze(g.Cast(g.Add(starts, g.Cast(counted(g, q, 2), to=I64)), to=I32), [2])
        kept = g.Less(key, g.Unsqueeze(g.Cast(ends, to=I32), [2]))
        if self.causal:
            kept = g.And(kept, g.LessOrEqual(key, last))
        if self.local_window_size > 0:
            kept = g.And(kept, g.Greater(key, g.Sub(last, np.int32(self.local_window_size))))
        return g.Unsqueeze(g.Where(kept, g.const(0.0, F32), g.const(LOWEST, F32)), [1])

    def _attended(self, g: PyAny, q: PyAny, k: PyAny, v: PyAny, added: Sequence[PyAny], sink: PyAny) -> PyAny:
        size, group = q.tensor.dims[-1], self.num_heads // self.kv_num_heads
        if group > 1:
            k, v = (g.Reshape(g.Expand(g.Unsqueeze(x, [2]), [1, 1, group, 1, 1]), [0, self.num_heads, -1, size])
                    for x in (k, v))  # fmt: skip
        scores = g.Mul(g.MatMul(q, swapped(g, k)), self.scale or 1 / math.sqrt(size))
        if self.softcap:
            scores = g.Mul(g.Tanh(g.Mul(scores, 1 / self.softcap)), self.softcap)
        scores = g.Add(scores, added[0] if len(added) == 1 else g.Add(*added))
        if sink is None and self.smooth_softmax != 1:
            return g.MatMul(g.Softmax(scores, axis=-1), v)
        extra = g.const(0.0, F32) if sink is None else g.Reshape(sink, [self.num_heads, 1, 1])
        column = g.Expand(extra, g.Concat(size_of(g, q, 0), [self.num_heads], size_of(g, q, 2), [1], axis=0))
        weights = g.Softmax(g.Concat(scores, column, axis=-1), axis=-1)
        return g.MatMul(g.Slice(weights, [0], size_of(g, k, 2), [3]), v)


def _placed(g: PyAny, old: PyAny, new: PyAny, starts: PyAny, room: PyAny) -> PyAny:
    """Row by row, the first `starts` tokens of the old, [N, heads, P, D], the new, and zeros: [N, heads, room, D]."""
    heads, size = new.tensor.dims[1], new.tensor.dims[3]
    sizes = g.Concat(size_of(g, new, 0), [heads, 1, size], axis=0)
    joined = g.Concat(old, new, g.Expand(g.const(0.0, F32), sizes), axis=2)
    before, count = size_of(g, old, 2), size_of(g, new, 2)
    place = g.Range(np.int64(0), g.Squeeze(room, [0]), np.int64(1))
    behind = g.Min(g.Sub(place, starts), count)  # the row of zeros lies behind the new
    picked = g.Where(g.Less(place, starts), place, g.Add(before, behind))
    rows = g.GatherND(g.Transpose(joined, perm=[0, 2, 1, 3]), g.Unsqueeze(picked, [2]), batch_dims=1)
    return g.Transpose(rows, perm=[0, 2, 1, 3])
