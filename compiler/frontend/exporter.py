"""IR graph to ONNX: the way back, for standard operators. Fused blocks are flattened, layouts dropped.

Every value gets a name that is unique in the whole model, so that bodies can name what they captured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from ...errors import UnsupportedOp
from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Node, Value
from ..ir.ops.at_runtime import AtRuntime
from ..ir.ops.base import Composite, Control, Fused, Operator
from ..ir.ops.reduce import ReduceAtRuntime
from .schemas import find_schema
from .type_protos import type_proto

_LEAST_OPSET = 21
_KINDS = {"int": AttributeProto.INT, "float": AttributeProto.FLOAT, "str": AttributeProto.STRING,
          "ints": AttributeProto.INTS, "floats": AttributeProto.FLOATS, "strs": AttributeProto.STRINGS,
          "tensor": AttributeProto.TENSOR, "dtype": AttributeProto.INT}  # fmt: skip


def to_onnx(graph: Graph) -> ModelProto:
    """The graph as an ONNX model with the same input and output names.

    Raises UnsupportedOp for an operator that ONNX does not have and that has no expansion.
    """
    return _Exporter(_operators(graph)).model(graph)


def export_node(node: Node) -> ModelProto:
    """A model of one node: inputs x0, x1, … (those given), outputs y0, y1, …"""
    exporter = _Exporter(_node_operators(node))
    proto = GraphProto(name="node")
    for i, value in enumerate(node.inputs):
        if value is not None and exporter.names.get(value) is None:
            exporter.names[value] = exporter.free(f"x{i}")
            proto.input.append(_value_info(f"x{i}", value))
        elif value is not None:  # the same value twice: the feeds are equal, both names must exist
            proto.input.append(_value_info(exporter.free(f"x{i}"), value))
    for i, value in enumerate(node.outputs):
        exporter.names[value] = exporter.free(f"y{i}")
        proto.output.append(ValueInfoProto(name=f"y{i}"))
    exporter.node(node, proto)
    return exporter.wrap(proto)


def _operators(graph: Graph) -> set[Operator]:
    found: set[Operator] = set()
    front = list(graph)
    while front:
        node = front.pop()
        found.add(node.op)
        for body in node.bodies.values():
            front.extend(body)
    return found


def _node_operators(node: Node) -> set[Operator]:
    return {node.op}.union(*(_operators(body) for body in node.bodies.values()))


class _Exporter:
    def __init__(self, operators: Iterable[Operator]) -> None:
        self.names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._node_names: dict[str, int] = {}
        self.opsets = {"": _LEAST_OPSET}
        for op in operators:
            if op.domain != "parax":
                self.opsets[op.domain] = max(self.opsets.get(op.domain, 1), op.since)

    def model(self, graph: Graph) -> ModelProto:
        proto = GraphProto(name=graph.name)
        for value in graph.inputs:
            self.names[value] = self.free(value.name)
            proto.input.append(_value_info(value.name, value))
        copies = []
        for name, value in zip(graph.output_names, graph.outputs, strict=True):
            if self.names.get(value) is None and name not in self._taken:
                self.names[value] = self.free(name)
            elif self.names.get(value) != name:
                copies.append((value, self.free(name)))
            proto.output.append(_value_info(name, value))
        self._body(graph, proto)
        for value, name in copies:
            proto.node.append(helper.make_node("Identity", [self.names[value]], [name]))
        return self.wrap(proto)

    def wrap(self, proto: GraphProto) -> ModelProto:
        imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        known = [entry for entry in imports if entry.domain in ("", "ai.onnx.ml")]
        ir_version = max(8, helper.find_min_ir_version_for(known, ignore_unknown=True))
        return helper.make_model(proto, opset_imports=imports, ir_version=ir_version, producer_name="parax")

    def free(self, name: str) -> str:
        """A name of the model that is not taken yet, and now is."""
        candidate, suffix = name, 1
        while candidate in self._taken:
            candidate, suffix = f"{name}.{suffix}", suffix + 1
        self._taken.add(candidate)
        return candidate

    def _name(self, value: Value) -> str:
        if value not in self.names:
            self.names[value] = self.free(value.name)
        return self.names[value]

    def _body(self, graph: Graph, proto: GraphProto) -> None:
        """Constants and nodes of a graph whose inputs have names already."""
        for value in graph.constants:
            if value.is_used:
                proto.initializer.append(numpy_helper.from_array(np.asarray(value.data), self._name(value)))
        for node in graph:
            self.node(node, proto)

    def node(self, node: Node, proto: GraphProto) -> None:
        """Appends a node to a graph: as it is, or what it is made of."""
        if isinstance(node.op, Fused):
            self._flatten(node.bodies["body"], node, proto)
        elif node.op.domain == "parax" and node.op.name in ("Relayout", "Copy", "Result"):
            for x, y in zip(self._inputs(node), node.outputs, strict=True):
                proto.node.append(helper.make_node("Identity", [x], [self._name(y)]))
        elif isinstance(node.op, ReduceAtRuntime):
            names = [self._name(node.outputs[0])]
            proto.node.append(helper.make_node(node.op.kind, self._inputs(node), names, keepdims=node.op.keepdims))
        elif isinstance(node.op, AtRuntime):
            names, settings = [self._name(v) for v in node.outputs], json.loads(node.op.settings)
            proto.node.append(helper.make_node(node.op.kind, self._inputs(node), names, **settings))
        elif node.op.domain == "parax":
            self._flatten(_expansion(node), node, proto)
        else:
            proto.node.append(self._standard(node))

    def _node_name(self, name: str) -> str:
        """Several nodes may stem from one ONNX node, but ONNX Runtime wants names to differ."""
        count = self._node_names[name] = self._node_names.get(name, 0) + 1
        return f"{name}.{count}" if name and count > 1 else name

    def _inputs(self, node: Node) -> list[str]:
        return ["" if value is None else self._name(value) for value in node.inputs]

    def _flatten(self, body: Graph, node: Node, proto: GraphProto) -> None:
        for inner, outer in zip(body.inputs, node.inputs, strict=True):
            if outer is not None:
                self.names[inner] = self._name(outer)
        copies = []
        for inner, outer in zip(body.outputs, node.outputs, strict=False):
            if inner in self.names:
                copies.append((inner, outer))
            else:
                self.names[inner] = self._name(outer)
        self._body(body, proto)
        for inner, outer in copies:
            proto.node.append(helper.make_node("Identity", [self.names[inner]], [self._name(outer)]))

    def _standard(self, node: Node) -> NodeProto:
        op = node.op
        inputs = self._inputs(node)
        result = NodeProto(op_type=op.name, domain=op.domain, name=self._node_name(node.name))
        schema = find_schema(op.domain, op.name, self.opsets[op.domain])
        explicit = op.explicit_attributes()
        for name, value in op.attributes().items():
            if schema is not None and name not in schema.types:
                continue  # parax's own, such as `captures`
            absent = isinstance(value, tuple) and not value  # an empty list that is the default stands for no attribute
            if name in explicit or not absent:
                result.attribute.append(_attribute(name, op.signature.attributes[name].kind, value))
        if isinstance(op, Control):
            captured = inputs[len(inputs) - op.captures :]
            inputs = inputs[: len(inputs) - op.captures]
            for name, body in node.bodies.items():
                result.attribute.append(self._graph_attribute(name, body, captured))
        while inputs and not inputs[-1]:
            inputs.pop()
        result.input.extend(inputs)
        result.output.extend(self._name(value) for value in node.outputs)
        return result

    def _graph_attribute(self, name: str, body: Graph, captured: Sequence[str]) -> AttributeProto:
        proto = GraphProto(name=body.name)
        n_own = len(body.inputs) - len(captured)
        for value in body.inputs[:n_own]:
            proto.input.append(_value_info(self._name(value), value))
        self.names.update(zip(body.inputs[n_own:], captured, strict=True))
        copies: list[tuple[Value, str]] = []
        for value in body.outputs:
            if value in self.names or any(value is other for other, _ in copies):
                copies.append((value, self.free(f"{value.name}.out")))
                proto.output.append(_value_info(copies[-1][1], value))
            else:
                proto.output.append(_value_info(self._name(value), value))
        self._body(body, proto)
        for value, copy in copies:
            proto.node.append(helper.make_node("Identity", [self.names[value]], [copy]))
        return AttributeProto(name=name, type=AttributeProto.GRAPH, g=proto)


def _expansion(node: Node) -> Graph:
    """What an operator that ONNX lacks is made of. Raises UnsupportedOp if it does not say."""
    if not isinstance(node.op, Composite):
        raise UnsupportedOp("ONNX has no such operator", where=node.where)
    scratch = Graph("expansion")
    arguments = [None if v is None else scratch.add_input(f"x{i}", v.type) for i, v in enumerate(node.inputs)]
    result = node.op.expand(GraphBuilder(scratch), *arguments)
    scratch.set_outputs(list(result) if isinstance(result, (list, tuple)) else [result])
    return scratch


def _attribute(name: str, kind: str, value: Any) -> AttributeProto:
    proto = AttributeProto(name=name, type=_KINDS[kind])
    if kind == "int":
        proto.i = value
    elif kind == "dtype":
        proto.i = value.code
    elif kind == "float":
        proto.f = value
    elif kind == "str":
        proto.s = value.encode("utf-8", "surrogateescape")
    elif kind == "tensor":
        proto.t.CopyFrom(numpy_helper.from_array(np.asarray(value)))
    elif kind == "strs":
        proto.strings.extend(item.encode("utf-8", "surrogateescape") for item in value)
    else:
        getattr(proto, kind).extend(value)
    return proto


def _value_info(name: str, value: Value) -> ValueInfoProto:
    return ValueInfoProto(name=name, type=type_proto(value))
