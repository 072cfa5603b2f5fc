"""A depthwise convolution moves into the 1×1 convolution that reads it.

Owns which pairs become one block. The kernel of a block computes a band of the depthwise rows into memory of its core
and multiplies it from there, so that the tensor between the two is never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.contraction import Conv
from ...ir.types import F32, TensorType, prod
from ..base import BlockPass
from ..rewrite import Rewriter

CHANNELS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True)
class FuseDepthwise(BlockPass):
    """Merge a depthwise convolution, with its tail, into the pointwise one behind it.

    before: %1 = Conv(%x, %w) {group=8}; %2 = Conv(%1, %v)      after: %2 = fused<DepthwisePointwise>(%x, %w, %v) {…}

    A block reads x while it writes y. Where both are larger than the tensor d between them, x and d, then d and y, take
    less memory than x and y, and what that saves the last-level cache is worth more than not storing d (measured on
    MobileNet-v1's strided layers at micro-batches of 4: 10 % of their time).

    Attributes:
        least_pixels: of the depthwise result's image. Smaller images have too few rows to share among cores while each
            core still uses every panel of the pointwise weights often.
        may_grow: fuse although that takes more memory.
    """

    least_pixels: int = 196
    may_grow: bool = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        pairs = []
        for node in graph:
            depthwise = _root(node)
            if not (isinstance(depthwise.op, Conv) and depthwise.op.group > 1):
                continue
            reason = self._refusal(node)
            if reason is None:
                pairs.append((node, _reader(node)))
            else:
                rw.no_match(reason, node)
        for first, second in pairs:
            _merge(graph, first, second)
        return bool(pairs)

    def _refusal(self, node: Node) -> str | None:
        """Why `node` may not join its reader, None if it may."""
        between = node.output
        if between.output_uses or len(between.uses) != 1:
            return "the depthwise result has other readers"
        reader = _reader(node)
        pointwise = _root(reader)
        if not isinstance(pointwise.op, Conv) or _outer(reader, pointwise.inputs[0]) is not between:
            return "no convolution reads the depthwise result"
        t = between.tensor
        if t.rank != 4 or not all(isinstance(d, int) for d in t.dims[1:]):
            return "images of unknown size"
        if int(prod(t.dims[2:])) < self.least_pixels:  # type: ignore[arg-type]
            return "small images"
        if not _is_depthwise(node) or not _is_pointwise(reader):
            return "not a depthwise and a pointwise convolution of constant weights"
        values = [*_root_operands(node), *_root_operands(reader), between, reader.output]
        if any(v.tensor.dtype != F32 for v in values):
            return "not f32"
        tensors = [_root_operands(node)[0], between, reader.output]
        if any(v.tensor.axis_order != CHANNELS_LAST for v in tensors):
            return "not channels-last"
        if len(node.operands) != len(_root_operands(node)):
            return "the depthwise tail reads other tensors"
        sizes = [int(prod(v.tensor.dims[1:])) for v in tensors]  # type: ignore[arg-type]
        if not self.may_grow and min(sizes[0], sizes[2]) > sizes[1]:
            return "input and result at once take more memory than either with the tensor between"
        return None


def _reader(node: Node) -> Node:
    """The only reader of a node's result."""
    return next(iter(node.output.users))


def _root(node: Node) -> Node:
    return next(iter(node.body)) if isinstance(node.op, Fused) and node.body is not None else node


def _outer(node: Node, v: Value | None) -> Value | None:
    """The operand of `node` that its body calls `v`."""
    if v is None or not isinstance(node.op, Fused) or node.body is None:
        return v
    return dict(zip(node.body.inputs, node.operands)).get(v)


def _root_operands(node: Node) -> list[Value]:
    found = [_outer(node, v) for v in _root(node).inputs]
    return [v for v in found if v is not None]


def _is_depthwise(node: Node) -> bool:
    x, w, *rest = _root_operands(node)
    op = _root(node).op
    assert isinstance(op, Conv)
    return w.tensor.dims[:2] == (op.group, 1) and x.tensor.dims[1] == op.group and _constant(w, *rest)


def _is_pointwise(node: Node) -> bool:
    x, w, *rest = _root_operands(node)
    op = _root(node).op
    assert isinstance(op, Conv) and isinstance(x.type, TensorType)
    return op.group == 1 and w.tensor.is_static and op.geometry(x.tensor, w.tensor).is_pointwise and _constant(w, *rest)


def _constant(*values: Value) -> bool:
    return all(v.data is not None and v.producer is None for v in values)


def _merge(graph: Graph, first: Node, second: Node) -> None:
    """Replace both by one Fused node at the second's place."""
    body = Graph("body")
    inner: dict[Value, Value] = {}
    operands: list[Value] = []

    def given(v: Value) -> Value:
        if v not in inner:
            inner[v] = body.add_input(v.name, v.type)
            operands.append(v)
        return inner[v]

    for node in (first, second):
        inner[node.output] = _copy(node, body, [given(v) for v in node.operands])
    body.set_outputs([inner[second.output]])
    result = second.output
    fused = graph.add_node(Fused(kind="DepthwisePointwise"), operands, [None], name=second.name, after=second,
                           types=[result.type], bodies={"body": body})  # fmt: skip
    graph.replace_all_uses_with(result, fused.output)
    graph.erase(second)
    graph.erase(first)
    graph.rename(fused.output, result.name)


def _copy(node: Node, body: Graph, operands: list[Value]) -> Value:
    """The node, or the nodes of its block, at the end of `body`; returns the copy of its result."""
    inner = dict(zip(node.operands, operands))
    nodes = [node]
    if isinstance(node.op, Fused):
        assert node.body is not None
        inner = dict(zip(node.body.inputs, operands))
        nodes = list(node.body)
    for n in nodes:
        for v in n.operands:
            if v not in inner:
                assert v.data is not None and isinstance(n.op, Elementwise)
                inner[v] = body.add_constant(v.data, v.name)
        copy = body.add_node(n.op, [None if v is None else inner[v] for v in n.inputs], [v.name for v in n.outputs],
                             name=n.name, types=[v.type for v in n.outputs])  # fmt: skip
        inner.update(zip(n.outputs, copy.outputs))
    return inner[node.body.outputs[0] if isinstance(node.op, Fused) and node.body is not None else node.output]
