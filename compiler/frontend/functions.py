"""Calls of functions, model-local ones and ONNX's own definitions of operators, as frames that inline the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnx import AttributeProto, FunctionProto, NodeProto

from ...errors import InvalidModel
from ..ir.graph import Value
from .frames import Binding, Frame, Written, node_where
from .order import in_order
from .parse import FunctionKey, normal_domain, read_opsets
from .schemas import Schema, function_body
from .type_protos import type_proto

if TYPE_CHECKING:
    from .importer import Importer


def call_local(
    importer: Importer, frame: Frame, node: NodeProto, inputs: Sequence[Binding], protos: Mapping[str, AttributeProto]
) -> None:
    """Expands a model-local function. Raises InvalidModel for recursion, wrong arity or missing attributes."""
    key = (normal_domain(node.domain), node.op_type, node.overload)
    function = importer.file.functions[key]
    where = f'function {key[0]}::{key[1]} called by "{node.name}"'
    if key in frame.calls:
        raise InvalidModel("a function calls itself", where=where)
    if len(inputs) > len(function.input) or len(node.output) > len(function.output):
        expected = f"at most {len(function.input)} inputs and {len(function.output)} outputs"
        found = f"{len(inputs)} and {len(node.output)}"
        raise InvalidModel("wrong number of arguments", where=where, expected=expected, found=found)
    missing = [name for name in function.attribute if name not in protos]
    if missing:
        raise InvalidModel(f"required attribute {missing[0]} is missing", where=where)
    allowed = {*function.attribute, *(a.name for a in function.attribute_proto)}
    unknown = sorted(set(protos) - allowed)
    if unknown:
        expected = ", ".join(sorted(allowed)) or "no attributes"
        raise InvalidModel(f"unknown attribute {unknown[0]}", where=where, expected=expected)
    opsets = {**importer.file.opsets, **read_opsets(function.opset_import, where)}
    _expand(importer, frame, node, function, key, inputs, protos, opsets, frame.culprit)


def call_schema_function(
    importer: Importer,
    frame: Frame,
    node: NodeProto,
    schema: Schema,
    opset: int,
    inputs: Sequence[Value | None],
    protos: Mapping[str, AttributeProto],
) -> bool:
    """Expands an operator by ONNX's definition of it; False if ONNX has none."""
    function = function_body(schema, opset, _bound_node(node, protos), [type_proto(v) for v in inputs])
    if function is None:
        return False
    key = ("", f"{schema.domain}::{schema.name}", "onnx")
    if key in frame.calls:
        return False
    bound = {a.name: a for a in _default_protos(schema)} | dict(protos)
    opsets = {**frame.opsets, **read_opsets(function.opset_import, schema.name)}
    culprit = frame.culprit or Written(schema.domain, schema.name, schema.since, node_where(node))
    _expand(importer, frame, node, function, key, inputs, bound, opsets, culprit)
    return True


def _expand(
    importer: Importer,
    frame: Frame,
    node: NodeProto,
    function: FunctionProto,
    key: FunctionKey,
    inputs: Sequence[Binding],
    protos: Mapping[str, AttributeProto],
    opsets: Mapping[str, int],
    culprit: Written | None,
) -> None:
    importer.count_call(function.name)
    bound = {a.name: a for a in function.attribute_proto} | dict(protos)

    def finish(done: Frame) -> None:
        results = [
            done.resolve(name, f"output of function {function.name}") if wanted else None
            for name, wanted in zip(function.output, node.output)
        ]
        importer.define_outputs(frame, node, results)

    inner = Frame(frame.graph, in_order(function.node), opsets, finish, bound=bound, calls=(*frame.calls, key),
                  depth=frame.depth, culprit=culprit)  # fmt: skip
    for i, name in enumerate(function.input):
        inner.define(name, inputs[i] if i < len(inputs) else None, f"input of function {function.name}")
    importer.stack.append(inner)


def _bound_node(node: NodeProto, protos: Mapping[str, AttributeProto]) -> NodeProto:
    """The node with references to attributes of an enclosing function resolved."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    bound = NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    bound.attribute.extend(protos.values())
    return bound


def _default_protos(schema: Schema) -> list[AttributeProto]:
    attributes = schema.raw.attributes.values()
    return [a.default_value for a in attributes if a.default_value.type != AttributeProto.UNDEFINED]
