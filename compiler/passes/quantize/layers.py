"""What is quantised in a graph: products with constant weights, and what carries their operands between them.

Owns which nodes may read rounded activations, and which activations share one scale. Knows ranges; rounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Movement
from ...ir.ops.contraction import Conv, Gemm, MatMul
from ...ir.ops.elementwise import Add
from ...ir.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from ...ir.ops.shape import Concat
from ...ir.types import F32, TensorType
from .affine import ValueRange

CHOOSING = (MaxPool, GlobalMaxPool, Movement)
"""Operators each of whose results is one of their operand's elements: a scale before them serves behind them."""
CARRIERS = (Add, AveragePool, GlobalAveragePool, *CHOOSING)
MOST_UNLIKE = 4.0
"""How many times as wide as another operand's range one may be, where both get one scale in a Concat."""

Refuse = Callable[[str, Node], object]
"""Told why a node that might be quantised is not."""


@dataclass(frozen=True)
class Layer:
    """A product of activations with constant weights.

    Attributes:
        node: the product. channels: the axis of the weights that counts results.
    """

    node: Node
    channels: int

    @property
    def name(self) -> str:
        """The name of its result, which only this layer of a graph has."""
        return self.node.output.name

    @property
    def contracted(self) -> int:
        """The axis of the activations whose elements meet each other's weights: channels, or columns."""
        return 1 if isinstance(self.node.op, Conv) else -1

    @property
    def takes_bias(self) -> bool:
        """Whether a bias can be given to it, in the place of the one it has."""
        has_one = len(self.node.inputs) > 2 and self.node.inputs[2] is not None
        return not isinstance(self.node.op, MatMul) and (self.bias is not None or not has_one)

    @property
    def activations(self) -> Value:
        return self.node.operands[0]

    @property
    def weights(self) -> np.ndarray:
        """f32, finite."""
        data = self.node.operands[1].data
        assert data is not None
        return data

    @property
    def bias(self) -> np.ndarray | None:
        """f32[results], finite; None where there is none, or it is something else than a constant per result."""
        value = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        if value is None or value.data is None:
            return None
        flat = value.data.reshape(-1)
        one_each = flat.size == self.weights.shape[self.channels] and value.data.shape[-1:] == flat.shape
        return flat if one_each and bool(np.isfinite(flat).all()) else None


def layers_of(graph: Graph, refuse: Refuse = lambda reason, node: None) -> list[Layer]:
    """The products of a graph that may be quantised, in order."""
    found = [_layer(node, refuse) for node in graph if type(node.op) in (Conv, Gemm, MatMul)]
    return [layer for layer in found if layer is not None]


def _layer(node: Node, refuse: Refuse) -> Layer | None:
    op, x, w = node.op, node.operands[0], node.operands[1]
    if w.data is None or not _is_activation(x):
        refuse("no product of f32 activations with constant weights", node)
        return None
    if w.data.size == 0 or not np.isfinite(w.data).all():
        refuse("weights that are empty or not finite", node)
        return None
    if isinstance(op, Gemm):
        has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
        if op.transA or op.alpha != 1 or (has_bias and op.beta != 1):
            refuse("a transposed or scaled product", node)
            return None
        return Layer(node, 0 if op.transB else 1)
    if isinstance(op, Conv):
        return Layer(node, 0)
    if w.data.ndim != 2:
        refuse("weights that are no matrix", node)
        return None
    return Layer(node, 1)


def _is_activation(value: Value | None) -> bool:
    is_f32 = value is not None and isinstance(value.type, TensorType) and value.type.dtype == F32
    return is_f32 and value is not None and not value.is_constant


@dataclass(frozen=True)
class Readers:
    """What of a graph reads rounded activations.

    Attributes:
        layers: products. carriers: nodes between them, in order.
    """

    layers: tuple[Layer, ...]
    carriers: tuple[Node, ...]

    def reads(self) -> Iterator[tuple[Node, int, Value]]:
        """Every rounded operand: its reader, its place there, and the value; readers in no particular order."""
        for layer in self.layers:
            yield layer.node, 0, layer.activations
        for node in self.carriers:
            for i in rounded_places(node):
                yield node, i, node.operands[i]


def rounded_places(node: Node) -> range:
    """Which operands of a carrier are rounded."""
    return range(len(node.inputs) if isinstance(node.op, (Add, Concat)) else 1)


def readers_of(
    graph: Graph, ranges: Mapping[str, ValueRange], left_out: Collection[str] = (),
    refuse: Refuse = lambda reason, node: None,
) -> Readers:  # fmt: skip
    """What reads rounded activations where all layers do but those left out.

    A carrier does where what it makes is read rounded, at once or behind element-wise operators of one operand.

    Args:
        ranges: name of a value → what it holds; one without a range stays as it is. left_out: names of layers.
    """
    layers = [l for l in layers_of(graph, refuse) if l.name not in left_out and l.activations.name in ranges]
    rounding = {layer.node for layer in layers}
    carriers: list[Node] = []
    for node in reversed(graph):
        if not isinstance(node.op, CARRIERS) or node in rounding:
            continue
        if not any(reader in rounding for reader in _behind(node.output)):
            continue
        if _may_carry(node, ranges, refuse):
            rounding.add(node)
            carriers.append(node)
    return Readers(tuple(layers), tuple(reversed(carriers)))


def _behind(value: Value) -> Iterator[Node]:
    """Who reads a value, at once or behind element-wise operators of one operand."""
    pending = [value]
    while pending:
        for node in pending.pop().users:
            yield node
            operands = [v for v in node.operands if not v.is_constant]
            if isinstance(node.op, Elementwise) and len(operands) == 1:
                pending.append(node.output)


def _may_carry(node: Node, ranges: Mapping[str, ValueRange], refuse: Refuse) -> bool:
    read = [node.inputs[i] for i in rounded_places(node)]
    if any(output.is_used for output in node.outputs[1:]):
        refuse("its places are asked for, too", node)
        return False
    if not all(_is_activation(v) and v is not None and v.name in ranges for v in read):
        refuse("an operand that is no f32 activation of a known range", node)
        return False
    widths = [ranges[v.name].width for v in read if v is not None]
    if isinstance(node.op, Concat) and max(widths) > MOST_UNLIKE * min(widths):
        refuse("operands too unlike for one scale", node)
        return False
    return True


def shared_ranges(readers: Readers, ranges: Mapping[str, ValueRange]) -> dict[Value, ValueRange]:
    """The range of every value that is read rounded; those that one scale must serve have the same.

    What is chosen from rounded numbers is rounded already, if its scale is theirs: it loses nothing more.
    """
    first: dict[Value, Value] = {value: value for _, _, value in readers.reads()}

    def root(value: Value) -> Value:
        while first[value] is not value:
            first[value] = value = first[first[value]]
        return value

    for node in readers.carriers:
        if isinstance(node.op, CHOOSING):
            same = [node.operands[i] for i in rounded_places(node)] + [node.output] * (node.output in first)
            for value in same[1:]:
                first[root(value)] = root(same[0])
    hulls: dict[Value, ValueRange] = {}
    for value in first:
        own, group = ranges[value.name], root(value)
        hulls[group] = hulls[group].hull(own) if group in hulls else own
    return {value: hulls[root(value)] for value in first}
