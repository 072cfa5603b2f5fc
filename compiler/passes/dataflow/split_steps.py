"""The graph cut into steps: stretches that become one native function each, and operators the runtime runs itself.

Owns the cut and the names of the values that cross it. A graph without Host operators is a single native step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host


@dataclass
class NativeStep:
    """A graph of its own; inputs and outputs name values of the whole graph."""

    graph: Graph
    inputs: list[str]
    outputs: list[str]


@dataclass
class HostStep:
    """One operator that the runtime executes in Python; None stands for an omitted operand or an unused result."""

    node: Node
    inputs: list[str | None]
    outputs: list[str | None]


Step: TypeAlias = "NativeStep | HostStep"


@dataclass
class _Stretch:
    nodes: list[Node] = field(default_factory=list)


def external_names(graph: Graph) -> dict[Value, str]:
    """How values are called across steps: graph inputs and outputs by their public names."""
    names = {v: v.name for v in graph.inputs}
    taken = set(names.values()) | set(graph.output_names)
    for name, v in zip(graph.output_names, graph.outputs):
        names.setdefault(v, name)
    for node in graph:
        for v in node.outputs:
            if v not in names:
                name = v.name
                while name in taken:
                    name += "'"
                names[v] = name
                taken.add(name)
    return names


def split_steps(graph: Graph) -> list[Step]:
    """The steps, in order. Every graph output is written by one of them."""
    parts: list[_Stretch | Node] = []
    for node in graph:
        if isinstance(node.op, (Host, Control)):
            parts.append(node)
        elif parts and isinstance(parts[-1], _Stretch):
            parts[-1].nodes.append(node)
        else:
            parts.append(_Stretch([node]))
    names = external_names(graph)
    if len(parts) <= 1 and not (parts and isinstance(parts[0], Node)):
        return [NativeStep(graph, [v.name for v in graph.inputs], list(graph.output_names))]
    place = {node: i for i, part in enumerate(parts) for node in (part.nodes if isinstance(part, _Stretch) else [part])}
    return [_host(part, names) if isinstance(part, Node) else _native(graph, i, part, place, names)
            for i, part in enumerate(parts)]


def _host(node: Node, names: dict[Value, str]) -> HostStep:
    given = [None if v is None else names.get(v, v.name) for v in node.inputs]
    return HostStep(node, given, [names[v] if v.is_used else None for v in node.outputs])


def _native(graph: Graph, index: int, part: _Stretch, place: dict[Node, int], names: dict[Value, str]) -> NativeStep:
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
                inner[v] = sub.add_input(names[v], v.type)
                inner[v].known = v.known
                inputs.append(names[v])
        copy = sub.add_node(node.op, [None if v is None else inner[v] for v in node.inputs],
                            [v.name for v in node.outputs], name=node.name, types=[v.type for v in node.outputs],
                            bodies=node.bodies)
        for old, new in zip(node.outputs, copy.outputs):
            new.known = old.known
            inner[old] = new
    crossing = [v for node in part.nodes for v in node.outputs
                if v.output_uses or any(place[u] > index for u in v.users)]
    sub.set_outputs([inner[v] for v in crossing], [names[v] for v in crossing])
    return NativeStep(sub, inputs, [names[v] for v in crossing])

