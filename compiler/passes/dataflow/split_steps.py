"""The graph cut into steps: stretches that become one native function each, and operators the runtime runs itself.

Owns the cut and the names of the values that cross it, which are unique in the plan, bodies included. A graph without
Host and Control operators is a single native step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ....errors import UsageError
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host
from ...ir.types import is_native


@dataclass
class NativeStep:
    """A graph of its own; inputs and outputs name values of the whole graph."""

    graph: Graph
    inputs: list[str]
    outputs: list[str]


@dataclass
class HostStep:
    """One operator that the runtime executes in Python; None stands for an omitted operand or an unused result.

    If, Loop and Scan have their bodies in `bodies`; where `is_native`, one native function runs them all.
    """

    node: Node
    inputs: list[str | None]
    outputs: list[str | None]
    bodies: dict[str, Block] = field(default_factory=dict)
    is_native: bool = False

    @property
    def is_led(self) -> bool:
        """Whether the runtime leads the native function: only a run knows how often a body runs."""
        op = self.node.op
        how = op.iterations(len(self.inputs), [v.type for v in self.node.outputs]) if isinstance(op, Control) else None
        return self.is_native and how is not None and how.is_counted


@dataclass
class Block:
    """A graph as steps: a whole plan, or a body. `inputs` and `outputs` are what its values are called."""

    graph: Graph
    inputs: list[str]
    outputs: list[str]
    steps: list[Step]


Step: TypeAlias = "NativeStep | HostStep"


@dataclass
class _Stretch:
    nodes: list[Node] = field(default_factory=list)


class Names:
    """What values are called across steps: graph inputs and outputs by their public names, no two alike."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = set(taken)
        self._of: dict[Value, str] = {}

    def of(self, value: Value) -> str:
        """The value's name, made up at the first call."""
        if value not in self._of:
            name = value.name
            while name in self.taken:
                name += "'"
            self.set(value, name)
        return self._of[value]

    def set(self, value: Value, name: str) -> None:
        """Call the value so, unless it has a name already."""
        self._of.setdefault(value, name)
        self.taken.add(name)


def runs_on_host(node: Node) -> bool:
    """Whether the runtime executes the node in Python: by its operator, or because native code lacks the type."""
    if isinstance(node.op, (Host, Control)):
        return True
    return not all(is_native(v.type) for v in (*node.operands, *node.outputs))


def is_one_step(graph: Graph) -> bool:
    """Whether the graph becomes a single native function, as it is."""
    return not any(map(runs_on_host, graph)) and all(is_native(v.type) for v in (*graph.inputs, *graph.outputs))


def split_steps(graph: Graph) -> Block:
    """The steps, in order. Every graph output is written by one of them.

    Raises:
        UsageError: `NameOutputs` was left out, and the graph needs it.
    """
    inputs, outputs = [v.name for v in graph.inputs], list(graph.output_names)
    if is_one_step(graph):
        return Block(graph, inputs, outputs, [NativeStep(graph, inputs, outputs)])
    for i in nameless_outputs(graph):
        raise UsageError("an output that has no value of its own", where=f"output {outputs[i]}",
                         hint="end the passes with name-outputs")  # fmt: skip
    names = Names([*inputs, *outputs])
    for v in graph.inputs:
        names.set(v, v.name)
    for name, v in zip(outputs, graph.outputs):
        names.set(v, name)
    return Block(graph, inputs, outputs, _steps(graph, names))


def native_steps(steps: Sequence[Step]) -> Iterator[NativeStep]:
    """All native steps in the order of their segments: bodies where their operator stands."""
    pending = list(reversed(steps))
    while pending:
        step = pending.pop()
        if isinstance(step, NativeStep):
            yield step
        else:
            pending += [inner for block in reversed(step.bodies.values()) for inner in reversed(block.steps)]


def native_controls(steps: Sequence[Step]) -> Iterator[HostStep]:
    """Operators with bodies that are one native function each, in order; not those inside of one."""
    for step in steps:
        if isinstance(step, HostStep):
            if step.is_native:
                yield step
            else:
                for block in step.bodies.values():
                    yield from native_controls(block.steps)


def nameless_outputs(graph: Graph) -> Iterator[int]:
    """The outputs, by their numbers, that are an input, a constant or an output before, and so have another name."""
    return (i for i, v in enumerate(graph.outputs) if v.producer is None or v in graph.outputs[:i])


def _steps(graph: Graph, names: Names) -> list[Step]:
    parts: list[_Stretch | Node] = []
    for node in graph:
        if runs_on_host(node):
            parts.append(node)
        elif parts and isinstance(parts[-1], _Stretch):
            parts[-1].nodes.append(node)
        else:
            parts.append(_Stretch([node]))
    place = {node: i for i, part in enumerate(parts) for node in (part.nodes if isinstance(part, _Stretch) else [part])}
    return [_host(part, names) if isinstance(part, Node) else _native(graph, i, part, place, names)
            for i, part in enumerate(parts)]


def _host(node: Node, names: Names) -> HostStep:
    given = [None if v is None else names.of(v) for v in node.inputs]
    results = [names.of(v) if v.is_used else None for v in node.outputs]
    return HostStep(node, given, results, {name: _body(body, names) for name, body in node.bodies.items()})


def _body(graph: Graph, names: Names) -> Block:
    inputs = [names.of(v) for v in graph.inputs]
    steps = _steps(graph, names)
    return Block(graph, inputs, [names.of(v) for v in graph.outputs], steps)


def _native(graph: Graph, index: int, part: _Stretch, place: dict[Node, int], names: Names) -> NativeStep:
    inside = set(part.nodes)
    sub = Graph(f"{graph.name}.{index}")
    inner: dict[Value, Value] = {}
    inputs: list[str] = []
    for node in part.nodes:
        for v in node.operands:
            if v in inner or v.producer in inside:
                continue
            if v.is_constant:
                inner[v] = sub.add_constant(v.data, v.name)
                inner[v].type = v.type
            else:
                inner[v] = sub.add_input(names.of(v), v.type)
                inner[v].known = v.known
                inputs.append(names.of(v))
        copy = sub.add_node(node.op, [None if v is None else inner[v] for v in node.inputs],
                            [v.name for v in node.outputs], name=node.name, types=[v.type for v in node.outputs],
                            bodies=node.bodies)
        for old, new in zip(node.outputs, copy.outputs):
            new.known = old.known
            inner[old] = new
    crossing = [v for node in part.nodes for v in node.outputs
                if v.output_uses or any(place[u] > index for u in v.users)]
    outputs = [names.of(v) for v in crossing]
    sub.set_outputs([inner[v] for v in crossing], outputs)
    return NativeStep(sub, inputs, outputs)
