"""Which outputs are mere reinterpretations of an input's bytes, and where every value's bytes therefore live.

Owns the notion of a view and the memory plan's data structure. Shared by the memory planner and the backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .graph import Graph, Node, Value
from .ops.base import Movement, Relayout
from .types import Dim, TensorType


def physical_axes(t: TensorType) -> tuple[int, ...]:
    """Logical axes in memory order without those of size 1, which have no influence on where an element lies."""
    return tuple(a for a in t.axis_order if t.dims[a] != 1)


def is_row_major(t: TensorType) -> bool:
    """Whether the elements lie in ONNX's order."""
    axes = physical_axes(t)
    return axes == tuple(sorted(axes))


def view_source(node: Node) -> Value | None:
    """The input whose bytes output 0 shares, None if the node computes or moves something."""
    if not node.outputs or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return None
    x, y = node.inputs[0], node.outputs[0]
    if not isinstance(x.type, TensorType) or not isinstance(y.type, TensorType):
        return None
    if x.type.shape is None or y.type.shape is None or x.type.dtype != y.type.dtype:
        return None
    if isinstance(node.op, Relayout) or node.op.name == "Identity":
        return x if physical_axes(x.type) == physical_axes(y.type) else None
    if node.op.name == "Transpose":
        perm = node.op.order(x.type.rank)  # type: ignore[attr-defined]
        place = {a: i for i, a in enumerate(perm)}
        return x if tuple(place[a] for a in physical_axes(x.type)) == physical_axes(y.type) else None
    if isinstance(node.op, Movement) and node.op.is_view:
        return x if is_row_major(x.type) and is_row_major(y.type) else None
    return None


@dataclass
class MemoryPlan:
    """Where the results of nodes live.

    Attributes:
        offsets: byte offset in the arena of every root value that is neither input, output nor constant.
        total: arena bytes. peak: the maximum of bytes alive at one time, the lower bound of `total`.
    """

    offsets: dict[Value, Dim] = field(default_factory=dict)
    total: Dim = 0
    peak: Dim = 0


def roots(graph: Graph) -> dict[Value, Value]:
    """For every value of the graph the value whose bytes it shares (itself if it is no view)."""
    found: dict[Value, Value] = {}
    for node in graph:
        source = view_source(node)
        found.update((v, v) for v in node.outputs)
        if source is not None:
            found[node.outputs[0]] = found.get(source, source)
    return found
