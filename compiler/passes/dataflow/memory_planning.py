"""Static memory planning: where in the arena each intermediate tensor lives.

Owns in-place sharing (an element-wise result takes over the buffer of an operand that dies there) and standard sharing
(tensors whose lives do not overlap share bytes), Mofang's two kinds. Where the stretches come to lie is `placement`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from ...ir.axis_orders import physical_axes
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.gathering import ScatterElements, ScatterND
from ...ir.schedule import Schedule
from ...ir.types import Dim, SymDim, TensorType, ceil_div
from ...ir.views import Copies, Home, MemoryPlan, homes, is_window
from .concurrency import Spot, scheduled_spots, sequential_spots
from .lent_outputs import lodge, rooms_of
from .placement import Span, peak, place

ALIGN = 64
PAGE = 4096  # addresses that differ by a multiple of it share a set of the first-level cache
STAGGER = 5 * ALIGN  # odd in lines, so that multiples of it (by buffers, by the batch) meet again late
SEVERAL = -2  # no branch's number, nor what a span has that dies in several


@dataclass
class Buffer:
    """One stretch of the arena: alive from the spot where it is first written to the ends of its last readers.

    Attributes:
        ends: the spots of its last readers (or of its only writer), all in one layer.
        born: the branch in which it begins, SEVERAL where windows of it are first written side by side.
        copies: more than 1 where micro-batches take turns.
    """

    size: Dim
    first: Spot
    ends: list[Spot]
    born: int
    copies: int = 1
    values: list[Value] = field(default_factory=list)

    def write(self, spot: Spot) -> None:
        """Take note of a further writer, in the order of steps."""
        if spot.branch != self.born and (spot.stage, spot.opens) == (self.first.stage, self.first.opens):
            self.born = SEVERAL

    def span(self, count: int) -> Span:
        """Its life, as `count` units of memory."""
        branches = {s.branch for s in self.ends}
        last, died = max(s.step for s in self.ends), branches.pop() if len(branches) == 1 else -1
        return Span(self.first.step, last, count, self.first.opens, self.born, died)


def plan_memory(graph: Graph, schedule: Schedule | None = None) -> MemoryPlan:
    """Assign offsets to every value that is no input, output, constant or view.

    Sizes that are multiples of one expression (all static ones; all that are proportional to the batch) form a class
    and share memory; the classes' regions lie one after the other. With a single class the arena is at most a little
    above the maximum of live bytes. Buffers of whole pages are kept from beginning at equal places of a page: images
    of 2ⁿ channels would meet, pixel by pixel, in few sets of the caches (depthwise convolutions took twice as long).

    With a schedule, values that concurrent branches may need at the same time share no bytes, and no branch overwrites
    what another may still read. In a pipeline every stage has its own region, and what crosses c stages has 2·c
    buffers: stage s begins micro-batch b only once stage s + 1 is done with b − 2, hence stage s + c with b − 2·c.

    Without one, memory of outputs that are lent holds what it can; see `lent_outputs`.
    """
    spots = sequential_spots(graph) if schedule is None else scheduled_spots(graph, schedule)
    regions: dict[tuple[int, Dim], list[tuple[Buffer, int]]] = {}
    plan = MemoryPlan()
    buffers = _buffers(graph, spots)
    lodged = _lodged(graph, buffers, spots) if schedule is None else {}
    for number, b in enumerate(buffers):
        if (home := lodged.get(number)) is not None:
            plan.lodged.update((v, home) for v in b.values)
            continue
        if b.copies > 1:
            plan.copies.update((v, Copies(b.copies, _aligned(b.size))) for v in b.values)
            plan.offsets.update((v, plan.total) for v in b.values)
            plan.total = plan.total + b.copies * _aligned(b.size)
            plan.peak = plan.total
            continue
        unit, count = _unit_and_count(b.size)
        regions.setdefault((b.first.stage, unit), []).append((b, _stretch(count)))
    for (_, unit), members in regions.items():
        spans = [b.span(count) for b, count in members]
        offsets, total = place(spans)
        for (b, _), offset in zip(members, offsets, strict=True):
            plan.offsets.update((v, plan.total + offset * unit) for v in b.values)
        plan.total = plan.total + total * unit
        plan.peak = plan.peak + peak(spans) * unit
    return plan


def _lodged(graph: Graph, buffers: Sequence[Buffer], spots: Mapping[Node, Spot]) -> dict[int, Home]:
    """Number of a buffer → where it lies in an output that is lent, where one node runs after the other."""
    rooms = rooms_of(graph, {node: spot.step for node, spot in spots.items()})
    spans = {i: b.span(-(-b.size // ALIGN) * ALIGN) for i, b in enumerate(buffers) if isinstance(b.size, int)}
    return lodge(spans, rooms) if rooms else {}


def _buffers(graph: Graph, spot_of: dict[Node, Spot]) -> list[Buffer]:
    """Live ranges of the arena's buffers, after in-place sharing.

    A buffer that Concat's operands are written into is alive from the first of them on.
    """
    home_of = homes(graph)

    def owner(v: Value) -> Value:
        return home_of.get(v, Home(v)).value

    outside = set(graph.inputs) | {owner(v) for v in graph.outputs}
    buffer_of: dict[Value, Buffer] = {}
    readers: dict[Value, list[Spot]] = {}
    for node, spot in spot_of.items():
        for v in node.operands:
            readers.setdefault(owner(v), []).append(spot)
    found: list[Buffer] = []
    for node, spot in sorted(spot_of.items(), key=lambda item: item[1].step):
        for v in dict.fromkeys(map(owner, node.outputs)):
            if v in outside:
                continue
            if v in buffer_of:
                buffer_of[v].write(spot)
                continue
            assert isinstance(v.type, TensorType)
            ends = _last(readers.get(v, [spot]))
            distance = ends[0].stage - spot.stage
            host = _in_place(node, v, spot, owner, buffer_of) if distance == 0 and v in node.outputs else None
            if host is None:
                host = Buffer(v.type.nbytes, spot, ends, spot.branch, max(1, 2 * distance))
                found.append(host)
            host.ends = ends
            host.values.append(v)
            buffer_of[v] = host
    return found


def _last(readers: list[Spot]) -> list[Spot]:
    """Those in the last stage and layer that have any; one per branch."""
    opens = max(s.opens for s in readers)
    return list({s.branch: s for s in sorted(readers, key=lambda s: s.step) if s.opens == opens}.values())


def _in_place(node: Node, out: Value, spot: Spot, owner: Callable[[Value], Value],
              buffer_of: dict[Value, Buffer]) -> Buffer | None:
    """The buffer of an operand that `out` may overwrite, dead after this step everywhere."""
    for root in replaceable(node, out, owner):
        host = buffer_of.get(root)
        if host is not None and host.ends == [spot] and host.copies == 1:
            return host
    return None


def replaceable(node: Node, out: Value, owner: Callable[[Value], Value]) -> list[Value]:
    """Owners of operands whose bytes the kernel of `node` may overwrite with `out`: element-wise, same places; also the
    data that a scatter copies before it writes.

    Args:
        owner: of a view the value whose bytes it shows, else the value itself.
    """
    if isinstance(node.op, (ScatterElements, ScatterND)):
        data, *others = node.operands
        alone = all(owner(o) is not owner(data) for o in others)
        return [owner(data)] if alone and same_places(data, out) else []
    if not is_elementwise(node) or len(node.outputs) != 1:
        return []
    return [root for root in dict.fromkeys(map(owner, node.operands))
            if all(same_places(o, out) for o in node.operands if owner(o) is root)]


def same_places(v: Value, out: Value) -> bool:
    """Whether equal indices of both lie at equal addresses, so that each element is read before it is overwritten."""
    a, b = v.type, out.type
    return (isinstance(a, TensorType) and isinstance(b, TensorType) and not is_window(v) and a.dims == b.dims
            and a.dtype.nbytes == b.dtype.nbytes and physical_axes(a) == physical_axes(b))


def is_elementwise(node: Node) -> bool:
    """Whether the kernel of a node reads each element of its operands before it writes those of that index."""
    if isinstance(node.op, Fused):
        return node.body is not None and all(isinstance(n.op, Elementwise) for n in node.body)
    return isinstance(node.op, Elementwise)


def _aligned(size: Dim) -> Dim:
    return ceil_div(size, ALIGN) * ALIGN


def _stretch(count: int) -> int:
    """Units taken by a buffer of `count`: whole lines, and some more after whole pages."""
    lines = max(ALIGN, ceil_div(count, ALIGN) * ALIGN)
    return lines if lines % PAGE else lines + STAGGER


def _unit_and_count(size: Dim) -> tuple[Dim, int]:
    """`size` = unit · count, where the unit is 1 or a polynomial without a common integer factor."""
    if not isinstance(size, SymDim):
        return 1, size
    count = gcd(*(c for _, c in size.terms))
    return size // count, count


__all__ = ["Buffer", "is_elementwise", "plan_memory", "replaceable", "same_places"]
