"""Which outputs are mere reinterpretations of an input's bytes, and where every value's bytes therefore live.

Owns the notions of a view and of a window, and the memory plan's data structure. Shared by the memory planner and the
backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .axis_orders import physical_axes, reshape_order
from .graph import Graph, Node, Value
from .ops.base import Movement, Relayout
from .ops.elementwise import Identity
from .ops.internal import Part, Result
from .ops.shape import Concat, Transpose
from .types import Dim, TensorType


def view_source(node: Node, output: int = 0) -> Value | None:
    """The input whose bytes an output shares, None if the node computes or moves something.

    Either all outputs of a node share an input's bytes or none does, so that output 0 tells for the node.
    """
    if isinstance(node.op, Result):
        return node.inputs[output]
    if not node.outputs or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return None
    x, y = node.inputs[0], node.outputs[0]
    if not isinstance(x.type, TensorType) or not isinstance(y.type, TensorType):
        return None
    if x.type.shape is None or y.type.shape is None or x.type.dtype != y.type.dtype:
        return None
    if isinstance(node.op, Part):
        return x
    if isinstance(node.op, (Identity, Relayout)):
        return x if physical_axes(x.type) == physical_axes(y.type) else None
    if isinstance(node.op, Transpose):
        perm = node.op.order(x.type.rank)
        place = {a: i for i, a in enumerate(perm)}
        return x if tuple(place[a] for a in physical_axes(x.type)) == physical_axes(y.type) else None
    if isinstance(node.op, Movement) and node.op.is_view:
        order = reshape_order(x.type, y.type.dims)
        return x if order is not None and physical_axes(y.type.with_layout(order)) == physical_axes(y.type) else None
    return None


def view_offset(node: Node) -> Dim:
    """Bytes from where the source of a view begins to where the view does."""
    if not isinstance(node.op, Part):
        return 0
    x = node.operands[0].tensor
    return node.op.offset(x) * x.dtype.nbytes


def is_window(v: Value) -> bool:
    """Whether a value lies among another's elements: in the result of the one Concat that it goes into (see
    WriteInPlace), or in what it is a part of (see ReadInPlace)."""
    return isinstance(v.type, TensorType) and v.type.within is not None


def computes(node: Node) -> bool:
    """Whether anything runs for a node: not for a view, nor for a Concat whose operands lie in its result already."""
    if isinstance(node.op, Concat):
        return not all(is_window(v) for v in node.operands)
    return view_source(node) is None


def concat_offsets(node: Node) -> list[Dim]:
    """Where each operand of a Concat begins in its result, in elements."""
    assert isinstance(node.op, Concat)
    y = node.output.tensor
    axis, offsets = node.op.axis % y.rank, []
    at: Dim = 0
    for v in node.operands:
        offsets.append(at * y.strides[axis])
        at = at + v.tensor.dims[axis]
    return offsets


@dataclass(frozen=True)
class Home:
    """Where a value's bytes lie: from byte `offset` of those of `value` on."""

    value: Value
    offset: Dim = 0


def homes(graph: Graph) -> dict[Value, Home]:
    """For every computed value the one that has memory of its own, views and windows seen through."""
    root_of = roots(graph)
    inside: dict[Value, Home] = {}
    within_root: dict[Value, Dim] = {}  # bytes from where its root begins
    for node in graph:
        for i, v in enumerate(node.outputs):
            source = view_source(node, i)
            within_root[v] = 0 if source is None else within_root.get(source, 0) + view_offset(node)
        if isinstance(node.op, Concat):
            for v, at in zip(node.operands, concat_offsets(node), strict=True):
                if is_window(v):
                    inside[root_of.get(v, v)] = Home(node.output, at * v.tensor.dtype.nbytes)
    found: dict[Value, Home] = {}
    for v, root in root_of.items():
        offset = within_root[v]
        while root in inside:
            home = inside[root]
            root, offset = root_of[home.value], offset + home.offset
        found[v] = Home(root, offset)
    return found


@dataclass(frozen=True)
class Copies:
    """`count` buffers of `stride` bytes each, one after the other; micro-batch b has number b mod `count`."""

    count: int
    stride: Dim


@dataclass
class MemoryPlan:
    """Where the results of nodes live.

    Attributes:
        offsets: byte offset in the arena of every value that has memory of its own (see `homes`) and is neither input,
            output nor constant.
        lodged: those that lie in the memory of an output (`Graph.lent`) instead.
        copies: those of them of which several micro-batches of a pipeline are alive at once.
        total: arena bytes. peak: the maximum of bytes alive at one time, the lower bound of `total`.
    """

    offsets: dict[Value, Dim] = field(default_factory=dict)
    lodged: dict[Value, Home] = field(default_factory=dict)
    copies: dict[Value, Copies] = field(default_factory=dict)
    total: Dim = 0
    peak: Dim = 0


def roots(graph: Graph) -> dict[Value, Value]:
    """For every value of the graph the value whose bytes it shares (itself if it is no view)."""
    found: dict[Value, Value] = {}
    for node in graph:
        for i, v in enumerate(node.outputs):
            source = view_source(node, i)
            found[v] = v if source is None else found.get(source, source)
    return found
