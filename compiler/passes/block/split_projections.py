"""One matrix product whose columns are then taken apart becomes one product for each part: nothing is copied.

Owns the pattern of joint projections: queries, keys and values, or gates, from one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement
from ...ir.ops.contraction import MatMul
from ...ir.ops.elementwise import Add
from ...ir.ops.gathering import Gather
from ...ir.ops.shape import Reshape, Transpose
from ...ir.ops.slicing import Split
from ..base import BlockPass
from ..rewrite import Rewriter
from .simplify_movements import constant_shape


@dataclass(frozen=True)
class Projection:
    """x · w (+ b), with constant w [K, M] and b [M]."""

    x: Value
    w: np.ndarray
    b: np.ndarray | None
    nodes: tuple[Node, ...]

    def part(self, rw: Rewriter, at: Node, begin: int, end: int) -> Value:
        """Columns begin .. end of the product, computed before `at`."""
        g = rw.before(at, self.nodes[0].name)
        made: Value = g.MatMul(self.x, np.ascontiguousarray(self.w[:, begin:end]))
        if self.b is not None:
            made = g.Add(made, self.b[begin:end])
        return made


@dataclass(frozen=True)
class SplitProjections(BlockPass):
    """Split the weights at compile time instead of the result at run time.

    before: %1 = MatMul(%x, %w); %2, %3 = Split(%1) {axis=-1}      after: %2 = MatMul(%x, %w1); %3 = MatMul(%x, %w2)
    """

    min_columns: int = 16  # of a part: narrower products waste their kernel

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if isinstance(node.op, Split):
                changed |= self._split(node, rw)
            elif isinstance(node.op, (Transpose, Reshape)) and node.output.users:
                changed |= self._gathers(node, rw)
        return changed

    def _split(self, node: Node, rw: Rewriter) -> bool:
        source = node.operands[0]
        found = projection(source)
        axis, sizes = node.op.sizes(node.context())  # type: ignore[attr-defined]
        if found is None or len(source.uses) != 1 or axis != source.tensor.rank - 1:
            return rw.no_match("not the columns of a product with constant weights", node)
        if not all(isinstance(s, int) and s >= self.min_columns for s in sizes):
            return rw.no_match("narrow parts", node)
        ends = np.cumsum([int(s) for s in sizes])
        rw.replace(node, [found.part(rw, node, int(e) - int(s), int(e)) for s, e in zip(sizes, ends, strict=True)])
        _erase(rw, found.nodes)
        return True

    def _gathers(self, node: Node, rw: Rewriter) -> bool:
        """Reshape (and Transpose) that bring the parts onto an axis of their own, from which each is gathered."""
        turn = node if isinstance(node.op, Transpose) else None
        view = turn.operands[0].producer if turn is not None else node
        gathers = node.output.users
        if view is None or not (isinstance(view.op, Movement) and view.op.is_view) or node.output.output_uses:
            return rw.no_match("no reshaped product", node)
        axes = {_gathered_axis(g, node.output) for g in gathers}
        found = projection(view.operands[0])
        if None in axes or len(axes) != 1 or found is None or len(view.operands[0].uses) != 1:
            return rw.no_match("not parts gathered one by one", node)
        if turn is not None and (len(view.output.uses) != 1 or view.output.output_uses):
            return rw.no_match("the reshaped product has another reader", node)
        (axis,) = axes
        assert axis is not None
        rank = node.output.tensor.rank
        order = list(turn.op.order(rank)) if turn is not None else list(range(rank))  # type: ignore[attr-defined]
        outer = order[axis]
        dims, lead = view.output.tensor.dims, view.operands[0].tensor.dims[:-1]
        n = dims[outer]
        if dims[:outer] != lead or not isinstance(n, int) or found.w.shape[1] // n < self.min_columns:
            return rw.no_match("the parts are not consecutive columns", node)
        kept = [d for a, d in enumerate(dims) if a != outer]
        columns = found.w.shape[1] // n
        shape = constant_shape((*lead, columns), kept)
        if shape is None:
            return rw.no_match("several unknown dimensions", node)
        perm = [a - (a > outer) for a in order if a != outer]
        for gather in gathers:
            i = int(gather.operands[1].data) % n  # type: ignore[arg-type]
            g = rw.before(gather, view.name)
            part = g.Reshape(found.part(rw, gather, i * columns, (i + 1) * columns), shape)
            rw.replace(gather, part if perm == sorted(perm) else g.Transpose(part, perm=perm))
        _erase(rw, ((turn,) if turn is not None else ()) + (view, *found.nodes))
        return True


def projection(v: Value) -> Projection | None:
    """The product with constant weights, and constant bias, that computes `v` and nothing else."""
    node, nodes, b = v.producer, [], None
    if node is not None and isinstance(node.op, Add):
        x, c = node.operands
        if c.data is None or c.data.ndim != 1 or c.tensor.dims != v.tensor.dims[-1:]:
            return None
        if len(x.uses) != 1 or x.output_uses:
            return None
        nodes.append(node)
        b, node = c.data, x.producer
    if node is None or type(node.op) is not MatMul or v.output_uses:
        return None
    x, w = node.operands
    if w.data is None or w.data.ndim != 2 or x.tensor.rank < 2:
        return None
    return Projection(x, w.data, b, (*nodes, node))


def _gathered_axis(node: Node, v: Value) -> int | None:
    """The axis of `v` from which `node` takes one constant position."""
    if not isinstance(node.op, Gather) or node.operands[0] is not v:
        return None
    index = node.operands[1]
    if index.data is None or index.data.ndim != 0 or index is v:
        return None
    return int(node.op.axis) % v.tensor.rank


def _erase(rw: Rewriter, nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        rw.erase(node)
