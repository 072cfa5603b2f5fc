"""Sums of vectors as graphs: in a fixed order, and as exact as f32 allows whatever the length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value

LEAST, MOST = 16, 4096  # numbers that are added one after the other, in vectors of sums


def tree(g: GraphBuilder, values: Sequence[Value]) -> Value:
    """The sum of values of one shape, by halves."""
    if len(values) == 1:
        return values[0]
    half = (len(values) + 1) // 2
    return g.Add(tree(g, values[:half]), tree(g, values[half:]))


def sum_of_squares(g: GraphBuilder, x: Value) -> Value:
    """Of a vector, f32[]; see `_summed`."""
    return _summed(g, x, g.ReduceSumSquare)


def sum_of(g: GraphBuilder, x: Value) -> Value:
    """Of a vector, f32[]; see `_summed`."""
    return _summed(g, x, g.ReduceSum)


def _summed(g: GraphBuilder, x: Value, reduce: Callable[..., Value]) -> Value:
    """The sum of a vector, f32[].

    By lines, then by lines of the lines' sums: no running sum is of more than MOST numbers, so that f32 is enough
    whatever the length (relative error below 1e-6 at 10⁸ squares), and every core has lines of its own.
    """
    parts = []
    while (length := _length(x)) > MOST:
        line = next((n for n in range(MOST // 2, LEAST - 1, -1) if length % n == 0), 0)
        if not line:  # copied; vectors of parameters, whose lengths are multiples of LEAST, come here as sums only
            line, rest = MOST // 4, length % (MOST // 4)
            x, odd = g.Split(x, np.array([length - rest, rest]), axis=0, n_outputs=2)
            parts.append(reduce(odd, keepdims=0))
        x = reduce(g.Reshape(x, np.array([length // line, line])), np.array([1]), keepdims=0)
        reduce = g.ReduceSum
    return tree(g, [reduce(x, keepdims=0), *reversed(parts)])


def _length(x: Value) -> int:
    (length,) = x.tensor.dims
    assert isinstance(length, int)
    return length
