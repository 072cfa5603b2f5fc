"""Gradients of the weights of layers as the factors that they are products of, where a batch has few rows.

Of a layer y = x · W the gradient is xᵀ · dy. A classifier's W of 25088 × 4096 has one of 392 MiB; x and dy of 8 rows
take 1 MiB. The update computes the product where it needs it, element by element, which costs less than to write the
gradient and to read it again; shards of a batch give their factors one behind the other instead of a sum. (Xie et al.,
"Lighter-Communication Distributed Machine Learning via Sufficient Factor Broadcasting", UAI 2016.)
"""

from __future__ import annotations

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from ..ir.ops.contraction import Gemm, MatMul
from ..ir.ops.shape import Transpose
from ..ir.types import F32, F64
from .compact import known_shape
from .sums import tree

MOST_ROWS = 32  # of a batch: terms of each element, which take longer than its memory beyond
LEAST_NBYTES = 4 << 20
"""Of a gradient that is worth a group of its own in the update."""


def factors(gradient: Value | None, n_pieces: int | None) -> dict[str, Value] | None:
    """`left` f32[n, rows] and `right` f32[n, columns] of a gradient leftᵀ · right where n is small; else None.

    Args:
        n_pieces: of a batch, each with a gradient; None: no gradient is compact.
    """
    if gradient is None or n_pieces is None or (found := _factors(gradient)) is None:
        return None
    (n, rows), (_, columns), size = found[0].tensor.dims, found[1].tensor.dims, gradient.tensor.nbytes
    if not (isinstance(n, int) and isinstance(rows, int) and isinstance(columns, int) and isinstance(size, int)):
        return None
    few = 0 < n * n_pieces <= MOST_ROWS and 4 * n * n_pieces * (rows + columns) <= rows * columns
    return dict(zip(("left", "right"), found, strict=True)) if few and size >= LEAST_NBYTES else None


def _factors(gradient: Value) -> tuple[Value, Value] | None:
    node = gradient.producer
    if node is None:
        return None
    if isinstance(node.op, Gemm):
        plain = node.op.alpha == 1 and node.op.transA and not node.op.transB and len(node.operands) == 2
        return (node.operands[0], node.operands[1]) if plain else None
    if isinstance(node.op, MatMul):
        turned, right = node.operands
        source = turned.producer
        if source is not None and isinstance(source.op, Transpose) and turned.tensor.rank == right.tensor.rank == 2:
            return (source.operands[0], right) if tuple(source.op.order(2)) == (1, 0) else None
    return None


def product(g: GraphBuilder, left: Value, right: Value) -> Value:
    """leftᵀ · right, as a sum of outer products that element-wise kernels compute for themselves.

    Args:
        left: f32[n, rows]. right: f32[n, columns].
    """
    (n, rows), (_, columns) = known_shape(left), known_shape(right)
    ones = np.ones(n, np.int64)
    lefts, rights = (g.Split(v, ones, axis=0, n_outputs=n) if n > 1 else [v] for v in (left, right))
    return tree(g, [g.Mul(g.Reshape(a, np.array([rows, 1])), g.Reshape(b, np.array([1, columns])))
                    for a, b in zip(lefts, rights, strict=True)])  # fmt: skip


def product_squared(g: GraphBuilder, left: Value, right: Value) -> Value:
    """The sum of squares of leftᵀ · right, f32[], without the product: of (left · leftᵀ) ∘ (right · rightᵀ).

    In f64, as terms may cancel: the relative error of each is below 1e-12, so that of the root of a sum that is 10⁶
    times smaller than its terms is f32's.
    """
    of_left, of_right = (g.MatMul(v, g.Transpose(v, perm=[1, 0])) for v in (g.Cast(w, to=F64) for w in (left, right)))
    total = g.ReduceSum(g.Mul(of_left, of_right), keepdims=0)
    return g.Cast(g.Max(total, g.const(np.array(0.0), F64)), to=F32)


__all__ = ["factors", "product", "product_squared"]
