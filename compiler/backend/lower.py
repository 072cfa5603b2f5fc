"""Graph → kernel calls with the place of every operand: the algorithm meets its schedule here.

Owns the walk over nodes and the assignment of storage. Kernel generators are found in `lowering.LOWERINGS`; text and
object code are `link`'s.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Container
from copy import copy
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ...errors import InternalError, UnsupportedOp, UnsupportedUse, joined
from ..ir.graph import Graph, Node, Value
from ..ir.ops.base import Operator
from ..ir.schedule import Schedule, node_of
from ..ir.types import Dim, TensorType, ceil_div, dim_max
from ..ir.values import node_where
from ..ir.views import Home, MemoryPlan, computes, homes
from . import kernels
from .kernels.known import is_known, lower_known
from .lowering import BarrierSlot, KernelCall, LowerContext, OffsetOperand, Scratch, SharedScratch, Weight, lowering_of

for _module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):  # every kernel file registers itself
    importlib.import_module(_module.name)


@dataclass(frozen=True)
class Input:
    """The caller's buffer number `index`."""

    index: int


@dataclass(frozen=True)
class Output:
    """The caller's output buffer number `index`."""

    index: int


@dataclass(frozen=True)
class Arena:
    """`offset` bytes into the instance's arena."""

    offset: Dim


@dataclass(frozen=True)
class RotatingBuffer:
    """`count` stretches of the arena from `offset` on, `stride` bytes apart, that micro-batches take in turns."""

    offset: Dim
    stride: Dim
    count: int


@dataclass(frozen=True)
class Offset:
    """`offset` bytes beyond another place; by the call's dimensions, not by those that the arena is laid out for."""

    place: Lasting | Offset
    offset: Dim


@dataclass(frozen=True)
class CoreScratch:
    """`offset` bytes into the running core's scratch, which lies behind the arena."""

    offset: Dim


@dataclass(frozen=True)
class CommonScratch:
    """`offset` bytes into the scratch of the first of the cores that run the call."""

    offset: Dim


@dataclass(frozen=True)
class MeetingWord:
    """The word of the sync block that belongs to the first of the cores that run the call."""


ALIGN = 64
LARGE_NBYTES = 1 << 16
Lasting: TypeAlias = "Input | Output | Arena | RotatingBuffer | Weight"
Place: TypeAlias = "Lasting | CoreScratch | CommonScratch | MeetingWord | Offset"


@dataclass(frozen=True)
class PlacedCall:
    """A kernel call whose operands have a place.

    `number` counts a segment's calls in the sequential order; `value` is the first output of its node, by name.
    """

    call: KernelCall
    places: tuple[Place, ...]
    number: int
    value: str


@dataclass
class Segment:
    """One native function's worth of calls.

    Attributes:
        n_inputs, n_outputs: pointers the caller passes. arena: bytes; scratch: bytes per core behind it.
        scheduled: the same calls on several cores at once, with an arena of its own.
    """

    calls: list[PlacedCall] = field(default_factory=list)
    n_inputs: int = 0
    n_outputs: int = 0
    arena: Dim = 0
    scratch: Dim = 0
    scheduled: ScheduledSegment | None = None


@dataclass
class PlacedBranch:
    """Calls that run one after the other on cores of their own."""

    first_core: int
    n_cores: int
    calls: list[PlacedCall]


@dataclass
class PlacedStage:
    """A stage's layers, each as its branches; empty branches and layers are left out."""

    first_core: int
    n_cores: int
    layers: list[list[PlacedBranch]]


@dataclass
class ScheduledSegment:
    """A segment's calls as a schedule wants them run; see `ir.schedule`."""

    schedule: Schedule
    stages: list[PlacedStage] = field(default_factory=list)
    arena: Dim = 0
    scratch: Dim = 0


def lower_graph(graph: Graph, ctx: LowerContext, memory: MemoryPlan,
                scheduled: tuple[Schedule, MemoryPlan] | None = None, *, spend: bool = False) -> Segment:
    """Generate the kernels of every node.

    Args:
        memory: for the nodes one after the other. scheduled: a schedule to run them by as well, and memory for that.
        spend: let go of large constants as soon as kernels have them as they read them: half of what a compilation
            holds. The graph cannot be lowered again.

    Raises:
        UnsupportedOp: one error that lists all operators without a kernel.
    """
    if graph.spent:
        raise InternalError("the graph has been lowered before, and its constants are gone", where=graph.name)
    _check_supported(graph)
    graph.spent = spend
    places = _Places(graph, ctx, memory)
    segment = Segment(n_inputs=len(graph.inputs), n_outputs=len(graph.outputs), arena=memory.total)
    calls: dict[Node, list[PlacedCall]] = {}
    refused: list[UnsupportedOp] = []
    for node in graph:
        if not computes(node) or not any(v.uses or v in graph.outputs for v in node.outputs):
            continue
        try:
            own = [call for call in _kernels(node, ctx) if not places.stays(call)]
        except UnsupportedOp as error:
            refused.append(error)
            continue
        first, value = len(segment.calls), node.output.name
        calls[node] = [_place(call, places, segment, i, value) for i, call in enumerate(own, first)]
        segment.calls += calls[node]
        if spend:
            _let_go(node, graph, calls)
    if refused:
        raise joined(refused)
    if scheduled is not None:
        segment.scheduled = _schedule(graph, calls, places.moved(scheduled[1]), scheduled[0])
    return segment


def _kernels(node: Node, ctx: LowerContext) -> list[KernelCall]:
    """The calls of a node's kernels.

    Raises:
        UnsupportedOp: no kernel serves it, with the node as its use.
    """
    lowering = lower_known if is_known(node) else lowering_of(_root_op(node))
    assert lowering is not None
    try:
        result = lowering(ctx, node)
    except UnsupportedOp as error:
        error.uses = error.uses or (_use(node, error.message),)
        raise
    return result if isinstance(result, list) else [result]


def _use(node: Node, reason: str) -> UnsupportedUse:
    """A node that cannot be lowered, by the operator that others may have been fused behind."""
    op = _root_op(node)
    return UnsupportedUse(op.name, None, node_where(op, node.name, node.output.name), reason)


def _let_go(node: Node, graph: Graph, lowered: Container[Node]) -> None:
    """Leave of a node's large constants that no other node will read nothing but their shape and type."""
    for v in {v for v in node.inputs if v is not None and v.data is not None and v.producer is None}:
        assert v.data is not None
        if v.data.nbytes >= LARGE_NBYTES and not v.output_uses and all(user in lowered for user in v.users):
            v.data = np.broadcast_to(np.zeros((), v.data.dtype), v.data.shape)


def _schedule(
    graph: Graph, calls: dict[Node, list[PlacedCall]], places: _Places, schedule: Schedule
) -> ScheduledSegment:
    segment = ScheduledSegment(schedule, arena=places.memory.total)
    for stage in schedule.stages:
        layers = []
        for layer in stage.layers:
            branches = []
            for branch in layer.branches:
                own = [_place(placed.call, places, segment, placed.number, placed.value)
                       for name in branch.nodes for placed in calls.get(node_of(graph, name), ())]
                branches.append(PlacedBranch(branch.first_core, branch.n_cores, own))
            layers.append([branch for branch in branches if branch.calls])
        segment.stages.append(PlacedStage(stage.first_core, stage.n_cores, [layer for layer in layers if layer]))
    return segment


def _place(
    call: KernelCall, places: _Places, segment: Segment | ScheduledSegment, number: int, value: str
) -> PlacedCall:
    """Scratch operands of one call lie side by side; calls reuse the same scratch. What cores share is the first's."""
    used: Dim = 0
    own: list[Place] = []
    for o in call.operands:
        if isinstance(o, (Scratch, SharedScratch)):
            own.append(CoreScratch(used) if isinstance(o, Scratch) else CommonScratch(used))
            used = used + ceil_div(o.nbytes, ALIGN) * ALIGN
        elif isinstance(o, BarrierSlot):
            own.append(MeetingWord())
        elif isinstance(o, OffsetOperand):
            own.append(Offset(places.of(o.value), o.offset))
        else:
            own.append(places.of(o))
    segment.scratch = dim_max(segment.scratch, used)
    return PlacedCall(call, tuple(own), number, value)


def _root_op(node: Node) -> Operator:
    if node.body is None:
        return node.op
    return next(iter(node.body)).op


def _check_supported(graph: Graph) -> None:
    missing = [n for n in graph if computes(n) and lowering_of(_root_op(n)) is None and not is_known(n)]
    if missing:
        counts = Counter(_root_op(node).name for node in missing)
        listed = ", ".join(f"{name} ×{count}" for name, count in sorted(counts.items()))
        uses = [_use(node, "no kernel") for node in missing]
        raise UnsupportedOp(f"operators without a kernel: {listed}", where=f"graph {graph.name}", uses=uses)


class _Places:
    """Finds the place of an operand; constants enter weights.bin on first use, in their physical order."""

    def __init__(self, graph: Graph, ctx: LowerContext, memory: MemoryPlan) -> None:
        self.ctx, self.memory = ctx, memory
        self.homes = homes(graph)
        self.one_memory = _states(graph)
        self.fixed: dict[Value, Lasting] = {v: Input(i) for i, v in enumerate(graph.inputs)}
        for i, v in enumerate(graph.outputs):
            home = self.homes.get(v, Home(v))
            root = home.value
            if root in self.fixed or root.data is not None or home.offset != 0:
                raise InternalError("a graph output shares its bytes with an input, a constant or another output; "
                                    "the memory planner should have copied it", where=f"output {v.name}")
            self.fixed[root] = Output(i)

    def moved(self, memory: MemoryPlan) -> _Places:
        """The same places but for what lies in the arena."""
        other = copy(self)
        other.memory = memory
        other.fixed = {v: place for v, place in self.fixed.items() if not isinstance(place, Arena)}
        return other

    def stays(self, call: KernelCall) -> bool:
        """Whether a call copies state to where it lies."""
        if not (call.moves_alike and self.one_memory):
            return False
        x, y = (self.of(o) if isinstance(o, (Value, Weight)) else None for o in call.operands[:2])
        return isinstance(x, Input) and self.one_memory.get(x) == y

    def of(self, operand: Value | Weight) -> Lasting | Offset:
        """Where an operand's bytes lie."""
        if isinstance(operand, Weight):
            return operand
        home = self.homes.get(operand, Home(operand))
        place = self._of_root(home.value)
        return place if home.offset == 0 else Offset(place, home.offset)

    def _of_root(self, root: Value) -> Lasting | Offset:
        if (lodging := self.memory.lodged.get(root)) is not None:
            return Offset(self.fixed[lodging.value], lodging.offset)
        if root in self.fixed:
            return self.fixed[root]
        if root.data is not None and root.producer is None:
            self.fixed[root] = self.ctx.weights.add(physical_array(root))
        elif root in self.memory.copies:
            turns = self.memory.copies[root]
            self.fixed[root] = RotatingBuffer(self.memory.offsets[root], turns.stride, turns.count)
        else:
            self.fixed[root] = Arena(self.memory.offsets[root])
        return self.fixed[root]


def _states(graph: Graph) -> dict[Place, Place]:
    """The inputs that are one memory with an output."""
    inputs = {v.name: Input(i) for i, v in enumerate(graph.inputs)}
    outputs = {name: Output(i) for i, name in enumerate(graph.output_names)}
    return {inputs[state.input]: outputs[state.output] for state in graph.states}


def physical_array(v: Value) -> np.ndarray:
    """A constant with its axes in memory order: a view."""
    assert v.data is not None and isinstance(v.type, TensorType)
    return v.data.transpose(v.type.axis_order) if v.type.layout is not None else v.data
