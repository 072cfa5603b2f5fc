"""Static memory planning: where in the arena each intermediate tensor lives.

Owns in-place sharing (an element-wise result takes over the buffer of an operand that dies there) and standard sharing
(tensors whose lives do not overlap share bytes). Follows Mofang's two kinds of sharing and the greedy-by-size offset
assignment of Pisarchyk and Lee, "Efficient memory management for deep neural net inference" (2020).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.internal import Copy
from ...ir.types import Dim, SymDim, TensorType, ceil_div
from ...ir.views import MemoryPlan, physical_axes, roots, view_source

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
        elif isinstance(v.type, TensorType) and v.type.layout is not None:
            continue
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

    The arena is at most a little above the maximum of live bytes for static shapes and for shapes proportional to one
    symbolic batch; other symbolic shapes share only between equal sizes.
    """
    buffers = _buffers(graph)
    unit = _common_unit([b.size for b in buffers])
    plan = MemoryPlan()
    if unit is None:
        plan.total = _share_equal_sizes(buffers, plan)
        plan.peak = plan.total
        return plan
    sizes = {id(b): _rounded(b.size, unit) for b in buffers}
    ends = _place_by_size(buffers, sizes)
    for b in buffers:
        for v in b.values:
            plan.offsets[v] = ends[id(b)] * unit
    plan.total = max((ends[id(b)] + sizes[id(b)] for b in buffers), default=0) * unit
    plan.peak = _peak(buffers, sizes) * unit
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
        same = (isinstance(v.type, TensorType) and isinstance(out.type, TensorType) and v.type.dims == out.type.dims
                and v.type.dtype.nbytes == out.type.dtype.nbytes and physical_axes(v.type) == physical_axes(out.type))
        host = buffer_of.get(root)
        if same and host is not None and last_use[root] == step and host.last == step:
            return host
    return None


def _is_elementwise(node: Node) -> bool:
    if isinstance(node.op, Fused):
        return node.body is not None and all(isinstance(n.op, Elementwise) for n in node.body)
    return isinstance(node.op, Elementwise)


def _common_unit(sizes: list[Dim]) -> Dim | None:
    """The symbolic factor m with every size = c·m (1 if all are ints), None if there is no such factor."""
    unit: Dim = 1
    for size in sizes:
        if isinstance(size, SymDim):
            if len(size.terms) != 1:
                return None
            ((monomial, _coefficient),) = size.terms
            factor = SymDim(((monomial, 1),))
            if unit != 1 and unit != factor:
                return None
            unit = factor
    return unit


def _rounded(size: Dim, unit: Dim) -> int:
    """Bytes per unit, rounded up to the alignment (a constant size counts once per unit: symbols are >= 1)."""
    count = size if isinstance(size, int) else size.terms[0][1]
    return max(ALIGN, -(-count // ALIGN) * ALIGN)


def _place_by_size(buffers: list[Buffer], sizes: dict[int, int]) -> dict[int, int]:
    """Greedy by size: the largest first, each at the lowest gap between buffers that live at the same time."""
    placed: list[Buffer] = []
    offset: dict[int, int] = {}
    for b in sorted(buffers, key=lambda b: -sizes[id(b)]):
        rivals = sorted((offset[id(o)], offset[id(o)] + sizes[id(o)]) for o in placed
                        if o.first <= b.last and b.first <= o.last)
        at = 0
        for start, end in rivals:
            if start - at >= sizes[id(b)]:
                break
            at = max(at, end)
        offset[id(b)] = at
        placed.append(b)
    return offset


def _peak(buffers: list[Buffer], sizes: dict[int, int]) -> int:
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + sizes[id(b)]
        change[b.last + 1] = change.get(b.last + 1, 0) - sizes[id(b)]
    alive = best = 0
    for step in sorted(change):
        alive += change[step]
        best = max(best, alive)
    return best


def _share_equal_sizes(buffers: list[Buffer], plan: MemoryPlan) -> Dim:
    """Standard sharing between buffers of one size expression; the slots lie one after the other."""
    slots: list[tuple[Dim, int, Dim]] = []  # size, busy until, offset
    total: Dim = 0
    for b in sorted(buffers, key=lambda b: b.first):
        free = next((i for i, (size, until, _) in enumerate(slots) if size == b.size and until < b.first), None)
        if free is None:
            slots.append((b.size, b.last, total))
            total = total + ceil_div(b.size, ALIGN) * ALIGN
            at = slots[-1][2]
        else:
            at = slots[free][2]
            slots[free] = (b.size, b.last, at)
        for v in b.values:
            plan.offsets[v] = at
    return total


__all__ = ["Buffer", "plan_memory", "separate_outputs"]
