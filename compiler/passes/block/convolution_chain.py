"""Convolutions that read each other, alone or with tails: what the passes that merge them ask and do.

Owns the questions and the merging; which of them become one block is the passes' choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Contraction, Elementwise, Fused
from ...ir.ops.contraction import Conv
from ..rewrite import Rewriter

CHANNELS_LAST = (0, 2, 3, 1)


def reader(node: Node) -> Node:
    """The only reader of a node's result."""
    return next(iter(node.output.users))


def is_read_once(node: Node) -> bool:
    """Whether a single operand of a single node is the node's result, inside that node's block too."""
    result = node.output
    if result.output_uses or len(result.uses) != 1:
        return False
    body, operands = reader(node).body, reader(node).operands
    return body is None or all(len(v.uses) + v.output_uses == 1
                               for v, given in zip(body.inputs, operands) if given is result)


def root(node: Node) -> Node:
    """The node, or the first one of its block."""
    return next(iter(node.body)) if isinstance(node.op, Fused) and node.body is not None else node


def outer(node: Node, v: Value | None) -> Value | None:
    """The operand of `node` that its body calls `v`."""
    if v is None or not isinstance(node.op, Fused) or node.body is None:
        return v
    return dict(zip(node.body.inputs, node.operands)).get(v)


def root_operands(node: Node) -> list[Value]:
    """What the root reads, outside the block."""
    found = [outer(node, v) for v in root(node).inputs]
    return [v for v in found if v is not None]


def tail_reads(node: Node) -> bool:
    """Whether what follows the root in the block reads a tensor from outside, the root's own operands among them."""
    if node.body is None:
        return False
    given = set(node.body.inputs)
    return any(v in given for n in list(node.body)[1:] for v in n.operands)


def is_depthwise(node: Node) -> bool:
    """Whether the root is a depthwise convolution of constant weights, one filter a channel."""
    x, w, *rest = root_operands(node)
    op = root(node).op
    assert isinstance(op, Conv)
    return w.tensor.dims[:2] == (op.group, 1) and x.tensor.dims[1] == op.group and _constant(w, *rest)


def is_pointwise(node: Node) -> bool:
    """Whether it is one 1×1 convolution of constant weights without pads, strides and groups, perhaps with a tail."""
    op = root(node).op
    if not isinstance(op, Conv) or op.group != 1:
        return False
    if node.body is not None and any(isinstance(n.op, Contraction) for n in list(node.body)[1:]):
        return False
    x, w, *rest = root_operands(node)
    return w.tensor.is_static and op.geometry(x.tensor, w.tensor).is_pointwise and _constant(w, *rest)


def has_known_padding(node: Node) -> bool:
    """Whether the root's padding is the same for all sizes of images."""
    op = root(node).op
    assert isinstance(op, Conv)
    x, w, *_ = root_operands(node)
    geometry = op.geometry(x.tensor, w.tensor)
    return all(isinstance(pad, int) for pad in (*geometry.pads_begin, *geometry.pads_end))


def _constant(*values: Value) -> bool:
    return all(v.data is not None and v.producer is None for v in values)


def merge_with_readers(
    graph: Graph, rw: Rewriter, nodes: Iterable[Node], refusal: Callable[[Node], str | None], kind: str
) -> bool:
    """Merge each node with the reader of its result unless `refusal` gives a reason why not; whether any was."""
    pairs = []
    for node in nodes:
        reason = refusal(node)
        if reason is None:
            pairs.append((node, reader(node)))
        else:
            rw.no_match(reason, node)
    for first, second in pairs:
        merge(graph, first, second, kind)
    return bool(pairs)


def merge(graph: Graph, first: Node, second: Node, kind: str) -> None:
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
    fused = graph.add_node(Fused(kind=kind), operands, [None], name=second.name, after=second,
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
