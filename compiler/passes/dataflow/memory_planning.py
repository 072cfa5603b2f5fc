"""Static memory planning: where in the arena each intermediate tensor lives.

Owns in-place sharing (an element-wise result takes over the buffer of an operand that dies there) and standard sharing
(tensors whose lives do not overlap share bytes), Mofang's two kinds. Where the stretches come to lie is `placement`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.internal import Copy
from ...ir.types import Dim, SymDim, TensorType, ceil_div
from ...ir.views import MemoryPlan, physical_axes, roots, view_source
from .placement import Span, peak, place

ALIGN = 64


def separate_outputs(graph: Graph) -> bool:
    """Give every graph output bytes of its own.

    before: return %x (an input, a constant, or a value returned twice)      after: %1 = Copy(%x); return %1
    """
    root_of, taken, changed = roots(graph), set(), False
    outputs = list(graph.outputs)
    for i, v in enumerate(outputs):
        root = root_of.get(v, v)
        if root.producer is None or root in taken:
            outputs[i] = graph.add_node(Copy(), [v]).output
            changed = True
        taken.add(root_of.get(outputs[i], outputs[i]))
    if changed:
        graph.set_outputs(outputs, graph.output_names)
    return changed


@dataclass
class Buffer:
    """One stretch of the arena, alive from step `first` to step `last`."""

    size: Dim
    first: int
    last: int
    values: list[Value] = field(default_factory=list)


def plan_memory(graph: Graph) -> MemoryPlan:
    """Assign offsets to every value that is no input, output, constant or view.

    Sizes that are multiples of one expression (all static ones; all that are proportional to the batch) form a class
    and share memory; the classes' regions lie one after the other. With a single class the arena is at most a little
    above the maximum of live bytes.
    """
    buffers = _buffers(graph)
    classes: dict[Dim, list[tuple[Buffer, int]]] = {}
    for b in buffers:
        unit, count = _unit_and_count(b.size)
        classes.setdefault(unit, []).append((b, max(ALIGN, ceil_div(count, ALIGN) * ALIGN)))
    plan = MemoryPlan()
    for unit, members in classes.items():
        spans = [Span(b.first, b.last, count) for b, count in members]
        offsets, total = place(spans)
        for (b, _), offset in zip(members, offsets, strict=True):
            plan.offsets.update((v, plan.total + offset * unit) for v in b.values)
        plan.total = plan.total + total * unit
        plan.peak = plan.peak + peak(spans) * unit
    return plan


def _buffers(graph: Graph) -> list[Buffer]:
    """Live ranges of the arena's buffers, after in-place sharing."""
    root_of = roots(graph)
    outside = set(graph.inputs) | {root_of.get(v, v) for v in graph.outputs}
    buffer_of: dict[Value, Buffer] = {}
    last_use: dict[Value, int] = {}
    steps = [n for n in graph if view_source(n) is None]
    for step, node in enumerate(steps):
        for v in node.operands:
            last_use[root_of.get(v, v)] = step
    found: list[Buffer] = []
    for step, node in enumerate(steps):
        for v in node.outputs:
            if v in outside:
                continue
            assert isinstance(v.type, TensorType)
            last = max(step, last_use.get(v, step))
            host = _in_place(node, v, step, root_of, last_use, buffer_of)
            if host is None:
                host = Buffer(v.type.nbytes, step, last)
                found.append(host)
            host.last = max(host.last, last)
            host.values.append(v)
            buffer_of[v] = host
    return found


def _in_place(node: Node, out: Value, step: int, root_of: dict[Value, Value], last_use: dict[Value, int],
              buffer_of: dict[Value, Buffer]) -> Buffer | None:
    """The buffer of an operand that `out` may overwrite: element-wise, same places, dead after this step."""
    if not _is_elementwise(node) or len(node.outputs) != 1:
        return None
    for v in node.operands:
        root = root_of.get(v, v)
        host = buffer_of.get(root)
        if host is None or last_use[root] != step or host.last != step:
            continue
        if all(_same_places(o, out) for o in node.operands if root_of.get(o, o) is root):
            return host
    return None


def _same_places(v: Value, out: Value) -> bool:
    """Whether equal indices of both lie at equal addresses, so that each element is read before it is overwritten."""
    a, b = v.type, out.type
    return (isinstance(a, TensorType) and isinstance(b, TensorType) and a.dims == b.dims
            and a.dtype.nbytes == b.dtype.nbytes and physical_axes(a) == physical_axes(b))


def _is_elementwise(node: Node) -> bool:
    if isinstance(node.op, Fused):
        return node.body is not None and all(isinstance(n.op, Elementwise) for n in node.body)
    return isinstance(node.op, Elementwise)


def _unit_and_count(size: Dim) -> tuple[Dim, int]:
    """`size` = unit · count, where the unit is 1 or a polynomial without a common integer factor."""
    if not isinstance(size, SymDim):
        return 1, size
    count = gcd(*(c for _, c in size.terms))
    return size // count, count


__all__ = ["Buffer", "plan_memory", "separate_outputs"]
