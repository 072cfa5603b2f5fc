"""Rows of a constant table times a constant matrix are rows of another constant table.

Owns the algebra of Gather before MatMul and Gemm, alone or several side by side: [t1[i], t2[j]] · w is (t1 · w1)[i] +
(t2 · w2)[j]. What is multiplied at every look-up moves into the plan once, where that does not swell the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import DTypeLike

from ...ir.bands import BAND_NBYTES
from ...ir.graph import Graph, Node, Value
from ...ir.mapped import forget
from ...ir.ops.contraction import Gemm, MatMul
from ...ir.ops.gathering import Gather
from ...ir.ops.shape import Concat
from ...ir.types import F32, F64
from ..base import BlockPass
from ..rewrite import Rewriter

LEAST_ROWS = 1024  # of a table that are multiplied at once


@dataclass(frozen=True)
class FoldLookups(BlockPass):
    """Multiply constant matrices into the tables whose rows they multiply.

    before: %1 = Gather(%t, %i); %2 = Gather(%u, %j); %3 = Concat(%1, %2) {axis=-1}; %4 = Gemm(%3, %w, %b)
    after:  %1 = Gather(%t', %i); %2 = Gather(%u', %j); %4 = Add(%1, %2)     with t' = t · w[:k] + b, u' = u · w[k:]
    """

    max_growth: float = 2.0  # new tables' size in units of the old ones'
    max_flops: int = 200_000_000_000  # of the multiplication at compile time

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is graph and type(node.op) in (MatMul, Gemm):
                changed |= self._fold(node, rw)
        return changed

    def _fold(self, node: Node, rw: Rewriter) -> bool:
        if not _is_of_constants(node):
            return rw.no_match("not a product with constant weights and bias", node)
        lookups = _lookups(node.operands[0])
        if lookups is None:
            return rw.no_match("its rows are not looked up in constant tables for it alone", node)
        tables = [lookup.operands[0].data for lookup in lookups]
        columns = _columns(node)
        old = sum(table.size for table in tables if table is not None)
        new = sum(table.shape[0] * columns for table in tables if table is not None)
        if new > self.max_growth * old or 2 * old * columns > self.max_flops:
            return rw.no_match("the tables would grow too much", node)
        weights, bias = _constants(node)
        dtype, g = node.output.tensor.dtype.numpy, rw.before(node)
        parts, k = [], 0
        for lookup, table in zip(lookups, tables, strict=True):
            assert table is not None
            rows = _times(table, weights[k : k + table.shape[1]], bias if k == 0 else np.zeros(()), dtype)
            parts.append(g.Gather(rows, lookup.operands[1]))
            k += table.shape[1]
        rw.replace(node, reduce(g.Add, parts))
        return True


def _is_of_constants(node: Node) -> bool:
    """Whether the weights are a constant matrix, and what is added to the result is a constant row or none."""
    op, w = node.op, node.operands[1]
    if w.data is None or w.tensor.rank != 2 or w.tensor.dtype not in (F32, F64):
        return False
    c = node.inputs[2] if len(node.inputs) > 2 else None
    row = c is None or (c.data is not None and c.data.size in (1, *c.data.shape[-1:]))
    return not isinstance(op, Gemm) or (row and not op.transA)


def _columns(node: Node) -> int:
    """Of the weights."""
    w = node.operands[1].data
    assert w is not None
    return int(w.shape[0 if getattr(node.op, "transB", False) else 1])


def _constants(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """The weights as f64 [K, N] and what is added to every row, as f64 [N]."""
    op, w = node.op, node.operands[1].data
    assert w is not None
    weights, bias = w.astype(np.float64), np.zeros(())
    if isinstance(op, Gemm):
        c = node.inputs[2] if len(node.inputs) > 2 else None
        weights = (weights.T if op.transB else weights) * op.alpha
        if c is not None and c.data is not None and op.beta != 0:
            bias = c.data.astype(np.float64).reshape(-1) * op.beta
    return weights, np.broadcast_to(bias, weights.shape[1:])


def _times(table: np.ndarray, weights: np.ndarray, bias: np.ndarray, dtype: DTypeLike | None) -> np.ndarray:
    """table · weights + bias, rounded once; some rows at a time, as all of them in f64 take twice the table."""
    rows = max(LEAST_ROWS, BAND_NBYTES // max(1, table[:1].nbytes))
    result = np.empty((len(table), weights.shape[1]), dtype)
    for first in range(0, len(table), rows):
        part = table[first : first + rows]
        result[first : first + rows] = part.astype(np.float64) @ weights + bias
        forget(part)
    return result


def _lookups(rows: Value) -> list[Node] | None:
    """The look-ups in constant tables [V, K] whose results, side by side, are `rows`; each for this alone."""
    maker = rows.producer
    if maker is None or len(rows.uses) != 1 or rows.output_uses:
        return None
    if isinstance(maker.op, Concat):
        if maker.op.axis % rows.tensor.rank != rows.tensor.rank - 1:
            return None
        makers = [v.producer for v in maker.operands if len(v.uses) == 1 and not v.output_uses]
        if len(makers) != len(maker.operands):
            return None
    else:
        makers = [maker]
    found = []
    for lookup in makers:
        if lookup is None or not isinstance(lookup.op, Gather) or lookup.op.axis % lookup.operands[0].tensor.rank != 0:
            return None
        table = lookup.operands[0]
        if table.data is None or table.data.ndim != 2 or len(table.uses) != 1 or table.output_uses:
            return None
        found.append(lookup)
    return found
