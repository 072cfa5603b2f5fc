"""What operators of attention share: heads of a tensor, masks that are added to scores, and the attention itself.

Written with products and a softmax, of which `fuse-attention` makes one operator where its kernel takes them.
"""

from __future__ import annotations

from typing import Any as PyAny

import numpy as np

from ..types import F32, I32, Dim
from .contraction import swapped

LOWEST = float(np.finfo(np.float32).min)  # added to a score, its weight is 0 whatever the others are


def size_of(g: PyAny, v: PyAny, axis: int) -> PyAny:
    """The size of an axis, [1], i64."""
    return g.Shape(v, start=axis, end=axis + 1)


def counted(g: PyAny, v: PyAny, axis: int) -> PyAny:
    """0, 1, … along an axis of v, i32."""
    return g.Range(np.int32(0), g.Cast(g.Squeeze(size_of(g, v, axis), [0]), to=I32), np.int32(1))


def apart(g: PyAny, x: PyAny, heads: int) -> PyAny:
    """[N, S, heads · D] as [N, heads, S, D]."""
    return g.Transpose(g.Reshape(x, [0, 0, heads, x.tensor.dims[-1] // heads]), perm=[0, 2, 1, 3])


def together(g: PyAny, y: PyAny) -> PyAny:
    """[N, heads, S, D] as [N, S, heads · D]."""
    heads, size = y.tensor.dims[1], y.tensor.dims[-1]
    return g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, heads * size])


def attended(g: PyAny, q: PyAny, k: PyAny, v: PyAny, scale: float, *added: PyAny) -> PyAny:
    """softmax(scale · q kᵀ + the sum of what is added) v, for q [N, heads, S, D], k [.., T, D] and v [.., T, E]."""
    scores = g.Mul(g.MatMul(q, swapped(g, k)), scale)
    mask = None
    for term in added:
        if term is not None:
            mask = term if mask is None else g.Add(mask, term)
    return g.MatMul(g.Softmax(scores if mask is None else g.Add(scores, mask), axis=-1), v)


def key_mask(g: PyAny, mask: PyAny, batch: Dim, q: PyAny, k: PyAny, filtered: float) -> PyAny:
    """What is added to scores for a mask, i32, of any of the shapes of ONNX Runtime's: `filtered` where it masks.

    [N, T], [N, S, T] and [N, 1, most, most] are positive where keys are kept; [N] says how many keys are, from the
    first on; [2N] also from which on; of [3N + 2] the first N count. q is [N, heads, S, D], k [N, heads, T, D].
    """
    zero = g.const(0.0, F32)
    if mask.tensor.rank == 1:
        kept = _kept_range(g, mask, batch, q, k)
    else:
        if mask.tensor.rank == 4:
            total = size_of(g, k, 2)
            first = g.Sub(total, size_of(g, q, 2))
            mask = g.Slice(mask, g.Concat(first, [0], axis=0), g.Concat(total, total, axis=0), [2, 3])
        kept = g.Greater(mask, np.int32(0))
    if kept.tensor.rank < 4:
        kept = g.Unsqueeze(kept, [1, 2] if kept.tensor.rank == 2 else [1])
    return g.Where(kept, zero, g.const(filtered, F32))


def _kept_range(g: PyAny, mask: PyAny, batch: Dim, q: PyAny, k: PyAny) -> PyAny:
    """Whether each key is kept by the ends, and perhaps starts, in a mask of one axis: [N, T]."""
    size, rows = mask.tensor.dims[0], size_of(g, q, 0)
    place = counted(g, k, 2)
    ends = mask if size == batch else g.Slice(mask, [0], rows, [0])
    kept = g.Less(place, g.Unsqueeze(ends, [1]))
    if size != 2 * batch or size == batch:
        return kept
    starts = g.Slice(mask, rows, g.Add(rows, rows), [0])
    return g.And(kept, g.GreaterOrEqual(place, g.Unsqueeze(starts, [1])))


def causal_mask(g: PyAny, q: PyAny, k: PyAny) -> PyAny:
    """What is added to scores so that a query reads no later key, [S, T]; the last query is of the last key's time."""
    first = g.Sub(g.Cast(size_of(g, k, 2), to=I32), g.Cast(size_of(g, q, 2), to=I32))
    rows = g.Unsqueeze(g.Add(counted(g, q, 2), first), [1])
    return g.Where(g.LessOrEqual(counted(g, k, 2), rows), g.const(0.0, F32), g.const(LOWEST, F32))
