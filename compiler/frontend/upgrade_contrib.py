"""ONNX Runtime's operators that are ONNX's in another layout, type or order: what its optimiser writes, and old ones.

Source: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from ..ir.ops.casting import as_float, cast_to
from ..ir.ops.contrib_quantised import first_channels, last_channels
from ..ir.types import F32, I64
from .calls import Call
from .upgrades import ALWAYS, Results, upgrade

MICROSOFT = "com.microsoft"


def _unsqueezed(g: GraphBuilder, x: Value, axes: Sequence[int]) -> Value:
    return g.Unsqueeze(x, g.const(np.array(axes, np.int64))) if axes else x


def _total(call: Call, g: GraphBuilder, last: bool) -> Value:
    """x + skip + bias; skip may be [N, C], and the bias has a number for each channel."""
    x, skip, bias = call.need(0), as_float(g, call.need(3)), call.input(4)
    rank = x.tensor.rank
    inner = list(range(1, rank - 1) if last else range(2, rank))
    added = [_unsqueezed(g, skip, inner) if skip.tensor.rank == 2 else skip]
    if bias is not None:
        added.append(_unsqueezed(g, as_float(g, bias), [] if last else list(range(1, rank - 1))))
    total = as_float(g, x)
    for each in added:
        _check_broadcasts(call, x, each)
        total = g.Add(total, each)
    return total


def _check_broadcasts(call: Call, x: Value, other: Value) -> None:
    """Whether a sum with x has x's shape."""
    dims, own = other.tensor.dims, x.tensor.dims
    if len(dims) > len(own) or any(d not in (1, size) for d, size in zip(reversed(dims), reversed(own), strict=False)):
        call.fail("an operand does not broadcast to the first one", expected=x.type, found=other.type)


@upgrade("GroupNorm", "SkipGroupNorm", up_to=ALWAYS, domain=MICROSOFT)
def group_norm(call: Call, g: GraphBuilder) -> Results:
    """GroupNormalization of x, or of x + skip + bias (which is a result, too), with SiLU behind it if `activation`."""
    x, last, skips = call.need(0), bool(call.pop("channels_last", 1)), call.op == "SkipGroupNorm"
    groups, activation, epsilon = call.pop("groups", 0), call.pop("activation", 0), call.pop("epsilon", 1e-5)
    if len(call.shape(0)) != 4 or activation not in (0, 1):
        call.fail("no such normalisation", expected="x of 4 axes, activation 0 or 1", found=[x.type, activation])
    total = _total(call, g, last) if skips else as_float(g, x)
    first = first_channels(g, total) if last else total
    y = g.GroupNormalization(first, *(as_float(g, call.need(i)) for i in (1, 2)), num_groups=groups, epsilon=epsilon)
    y = last_channels(g, y) if last else y
    y = g.Mul(y, g.Sigmoid(y)) if activation else y
    results = [y, total] if skips and call.n_outputs > 1 else [y]
    return [cast_to(g, each, x.tensor.dtype) for each in results]


@upgrade("NhwcMaxPool", up_to=ALWAYS, domain=MICROSOFT)
def nhwc_max_pool(call: Call, g: GraphBuilder) -> Results:
    """MaxPool of [N, spatial…, C]."""
    if len(call.shape(0)) < 3 or "kernel_shape" not in call.attributes:
        call.fail("no such pool", expected="x [N, spatial…, C], kernel_shape", found=call.need(0).type)
    return [last_channels(g, g.MaxPool(first_channels(g, call.need(0)), **call.attributes))]


@upgrade("BiasSoftmax", up_to=ALWAYS, domain=MICROSOFT)
def bias_softmax(call: Call, g: GraphBuilder) -> Results:
    """Softmax of data + bias over all axes from `axis` on; how the bias broadcasts, its shape says."""
    x, rank, axis = call.need(0), len(call.shape(0)), call.pop("axis", 1)
    if not -rank <= axis < rank:
        call.fail("no such axis", expected=f"{-rank} to {rank - 1}", found=axis)
    _check_broadcasts(call, x, call.need(1))
    total = g.Add(as_float(g, x), as_float(g, call.need(1)))
    if axis % rank == rank - 1:
        return [cast_to(g, g.Softmax(total, axis=-1), x.tensor.dtype)]
    flat = g.Softmax(g.Flatten(total, axis=axis), axis=1)
    return [cast_to(g, g.Reshape(flat, g.Shape(x)), x.tensor.dtype)]


@upgrade("RelativePositionBias", up_to=ALWAYS, domain=MICROSOFT)
def relative_position_bias(call: Call, g: GraphBuilder) -> Results:
    """T5's: the table's numbers at the bucket of key's place - query's place, as [1, heads, queries, keys].

    Near places have buckets of their own, those up to `max_distance` logarithmic ones (https://arxiv.org/abs/1910.10683).
    The table's shape is [buckets, heads], its memory that of [heads, buckets]: so its kernels read it and its optimiser
    writes it. One way, keys behind a query are as far as those before.
    """
    both, farthest = bool(call.pop("is_bidirectional", 0)), call.pop("max_distance", 0)
    table = call.need(0)
    n = call.shape(0)[0] if len(call.shape(0)) == 2 else 0
    if not isinstance(n, int) or n < 2 + 2 * both or farthest <= n // (4 if both else 2):
        call.fail("no such buckets", expected="bias_table [buckets, heads], a max_distance beyond half of the buckets",
                  found=[table.type, farthest])  # fmt: skip
    zero, one = (g.const(np.array(value, np.int64)) for value in (0, 1))
    queries, keys = (g.Range(zero, g.Reshape(call.need(i), g.const(np.zeros(0, np.int64))), one) for i in (1, 2))
    place = g.Sub(_unsqueezed(g, keys, [0]), _unsqueezed(g, queries, [1]))
    each = n // 2 if both else n
    distance, near = g.Abs(place), each // 2
    share = g.Log(g.Div(g.Cast(g.Max(distance, one), to=F32), g.const(np.float32(near))))
    share = g.Div(share, g.const(np.float32(math.log(farthest / near))))  # as T5: rounding decides at powers
    far = g.Add(g.Cast(g.Mul(share, g.const(np.float32(each - near))), to=I64), g.const(np.array(near, np.int64)))
    last = g.const(np.array(each - 1, np.int64))
    bucket = g.Where(g.Less(distance, g.const(np.array(near, np.int64))), distance, g.Min(far, last))
    if both:
        bucket = g.Add(bucket, g.Mul(g.Cast(g.Greater(place, zero), to=I64), g.const(np.array(each, np.int64))))
    rows = g.Reshape(table, g.const(np.array([-1, n], np.int64)))
    return [_unsqueezed(g, g.Gather(rows, bucket, axis=1), [0])]


@upgrade("Trilu", up_to=ALWAYS, domain=MICROSOFT)
def trilu(call: Call, g: GraphBuilder) -> Results:
    """ONNX's, before ONNX had it."""
    return [g.Trilu(call.need(0), call.input(1), upper=call.pop("upper", 1))]


@upgrade("Range", up_to=ALWAYS, domain=MICROSOFT)
def range_by_one(call: Call, g: GraphBuilder) -> Results:
    """ONNX's, by 1 where nothing else is said."""
    start, delta = call.need(0), call.input(2)
    return [g.Range(start, call.need(1), g.const(1, start.tensor.dtype) if delta is None else delta)]


@upgrade("ExpandDims", up_to=ALWAYS, domain=MICROSOFT)
def expand_dims(call: Call, g: GraphBuilder) -> Results:
    """An axis of 1 more."""
    axis, rank = call.need(1).data, len(call.shape(0))
    if axis is None or axis.size != 1:
        call.unsupported("an axis that is no constant")
    number = int(axis.reshape(-1)[0])
    if not -rank - 1 <= number <= rank:
        call.fail("no such axis", expected=f"{-rank - 1} to {rank}", found=number)
    return [_unsqueezed(g, call.need(0), [number])]
