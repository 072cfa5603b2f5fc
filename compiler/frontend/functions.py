"""Calls of functions, model-local ones and ONNX's own definitions of operators, as frames that inline the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, TensorShapeProto, TypeProto

from ...errors import InvalidModel, ResourceLimit
from ..ir.graph import Value
from ..ir.types import OptionalType, SequenceType, TensorType, Type
from .frames import Binding, Frame, Written, node_where
from .order import in_order
from .parse import FunctionKey, normal_domain, read_opsets
from .schemas import Schema, function_body

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
    importer.n_calls += 1
    if importer.n_calls > importer.limits.calls:
        expected = f"at most {importer.limits.calls} calls"
        raise ResourceLimit("the model's functions expand to too much", where=function.name, expected=expected)
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


def type_proto(value: Value | Type | None) -> TypeProto:
    """ONNX's form of a type; empty for an omitted operand. Symbolic dimensions keep their text."""
    proto = TypeProto()
    type_ = value.type if isinstance(value, Value) else value
    if isinstance(type_, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(type_.elem))
    elif isinstance(type_, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(type_.elem))
    elif isinstance(type_, TensorType):
        proto.tensor_type.elem_type = type_.dtype.code
        if type_.shape is not None:
            shape = TensorShapeProto()
            for dim in type_.shape:
                entry = shape.dim.add()
                if isinstance(dim, int):
                    entry.dim_value = dim
                else:
                    entry.dim_param = str(dim)
            proto.tensor_type.shape.CopyFrom(shape)
    return proto


def type_text(type_: Type) -> str:
    """How onnx.defs spells a type, without its shape: `tensor(float)`, `seq(tensor(int64))`."""
    if isinstance(type_, SequenceType):
        return f"seq({type_text(type_.elem)})"
    if isinstance(type_, OptionalType):
        return f"optional({type_text(type_.elem)})"
    return f"tensor({TensorProto.DataType.Name(type_.dtype.code).lower()})"
