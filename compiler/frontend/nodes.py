"""One ONNX node to IR: finds its version and its form, calls functions, upgrades old forms, adds the node.

No per-operator code but for Constant; control flow has a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnx import AttributeProto, NodeProto

from ...errors import InvalidModel, UnsupportedOp
from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Value
from ..ir.ops import CATALOGUE
from . import upgrade_rules  # noqa: F401  registers the rules
from .attributes import attribute_type, attribute_value, constant_value, read_attributes
from .calls import Call
from .control import import_control, is_control
from .folding import fold
from .frames import Frame, Unsupported, Written, node_where
from .functions import call_local, call_schema_function
from .parse import normal_domain, require_text
from .schemas import Schema, check_node, check_version, find_schema, is_known
from .sequences import import_of_sequences, is_of_sequences
from .signatures import check_size
from .structures import described, is_structure, values_of
from .type_protos import type_text
from .upgrades import UPGRADES, apply_upgrades

if TYPE_CHECKING:
    from .importer import Importer

Protos = Mapping[str, AttributeProto]
_EARLY = {"LayerNormalization": 17}
"""Operators that ONNX Runtime had in ONNX's domain before ONNX: exporters wrote them into models of any version."""


def import_node(importer: Importer, frame: Frame, node: NodeProto) -> None:
    """Imports one node into the frame; nodes that own or call graphs push frames."""
    domain, where = normal_domain(node.domain), node_where(node)
    require_text(where, domain, node.op_type, node.overload, node.name, *node.input, *node.output)
    protos = read_attributes(node.attribute, frame.bound, where)
    inputs = [frame.resolve(name, where) if name else None for name in node.input]
    if not node.op_type:
        raise InvalidModel("a node has no operator", where=where)
    if (domain, node.op_type, node.overload) in importer.file.functions:
        call_local(importer, frame, node, inputs, protos)
        return
    opset = frame.opsets.get(domain)
    if opset is None:
        written = Written(domain, node.op_type, None, where)
        importer.refuse(frame, node, written, "domain not imported by the model")
        return
    check_version(domain, node.op_type, opset, where)
    schema = _schema(domain, node, opset, where)
    if schema is not None:
        check_node(schema, node, {name: attribute_type(a, where) for name, a in protos.items()}, where)
    if domain == "" and node.op_type == "Constant":
        values = {name: attribute_value(a, importer.tensors, where) for name, a in protos.items()}
        constant = frame.graph.add_constant(constant_value(values, where), importer.name_of(frame, node.output[0]))
        importer.define_outputs(frame, node, [constant])
    elif any(isinstance(value, Unsupported) for value in inputs):
        if not _is_supported(domain, node.op_type, schema):
            importer.lack(frame.culprit or _written(domain, node, schema, opset))
        importer.poison(frame, node)
    elif is_of_sequences(domain, node.op_type, inputs):
        importer.count_elements(sum(len(values_of(value)) for value in inputs if is_structure(value)), where)
        import_of_sequences(importer, frame, node, inputs, protos)
    elif is_control(domain, node.op_type):
        import_control(importer, frame, node, inputs, protos)
    else:
        operands = [value for value in inputs if value is None or isinstance(value, Value)]
        if len(operands) == len(inputs):
            _operator(importer, frame, node, opset, schema, operands, protos)
        else:
            found = next(described(value) for value in inputs if is_structure(value))
            importer.misfit(InvalidModel("a tensor is needed", where=where, found=found))


def _operator(
    importer: Importer,
    frame: Frame,
    node: NodeProto,
    opset: int,
    schema: Schema | None,
    operands: list[Value | None],
    protos: Protos,
) -> None:
    call = _make_call(importer, node, opset, schema, operands, protos)
    written = _written(call.domain, node, schema, opset)
    try:
        results = apply_upgrades(call, GraphBuilder(frame.graph, name=node.name))
        if results is None and (call.domain, call.op) not in CATALOGUE:
            if schema is None or not call_schema_function(importer, frame, node, schema, opset, operands, protos):
                importer.refuse(frame, node, written)
            return
        if results is None:
            results = _emit(importer, frame, node, call, schema)
        _check_sizes(results, importer, call)
    except UnsupportedOp as error:
        importer.refuse(frame, node, written, error.message)
        return
    except InvalidModel as error:
        importer.misfit(error)
        return
    for name, value in zip(node.output, results):
        wanted = importer.name_of(frame, name)
        if value is not None and wanted is not None and not value.is_input and value.name.isdigit():
            _rename(frame.graph, value, wanted)
    importer.define_outputs(frame, node, results)


def _make_call(
    importer: Importer,
    node: NodeProto,
    opset: int,
    schema: Schema | None,
    operands: list[Value | None],
    protos: Protos,
) -> Call:
    where = node_where(node)
    attributes = {name: attribute_value(a, importer.tensors, where) for name, a in protos.items()}
    defaults = {} if schema is None else {k: v for k, v in schema.defaults.items() if k not in attributes}
    present = tuple(bool(name) for name in node.output)
    return Call(
        domain=normal_domain(node.domain),
        op=node.op_type,
        opset=opset,
        version=schema.since if schema is not None else opset,
        inputs=operands,
        n_outputs=max((i + 1 for i, given in enumerate(present) if given), default=1),
        attributes={**attributes, **defaults},
        name=node.name,
        defaulted=set(defaults),
        present=present,
    )


def _check_sizes(values: Sequence[Value | None], importer: Importer, call: Call) -> None:
    for value in values:
        if value is not None:
            check_size(value.type, importer.limits, call.where)


def _emit(importer: Importer, frame: Frame, node: NodeProto, call: Call, schema: Schema | None) -> list[Value | None]:
    """Adds the catalogue's operator for a call in its newest form."""
    cls = CATALOGUE[call.domain, call.op]
    for name in [name for name in call.attributes if name not in cls.signature.attributes]:
        if name in call.defaulted:
            call.pop(name)
        elif schema is not None and name in schema.types:
            call.unsupported(f"its attribute {name} is not supported")
    _check_form(call, cls.since, schema)
    op = cls.from_attributes(call.attributes, call.where)
    names = [importer.name_of(frame, name) for name in node.output][: call.n_outputs]
    names += [None] * (call.n_outputs - len(names))
    try:
        created = frame.graph.add_node(op, call.inputs, names, name=call.name)
    except InvalidModel as error:
        if schema is not None and _is_allowed_type(call, schema):
            raise UnsupportedOp(error.message, where=error.where, found=error.found) from error
        raise
    for value in created.outputs:
        check_size(value.type, importer.limits, created.where)
    return list(fold(created, importer.limits, importer.evaluate, importer.trained is not None) or created.outputs)


def _is_allowed_type(call: Call, schema: Schema) -> bool:
    """Whether an operand has an element type that ONNX allows and the catalogue's operator does not."""
    signature = CATALOGUE[call.domain, call.op].signature
    for i, value in enumerate(call.inputs):
        formal = schema.raw.inputs[min(i, len(schema.raw.inputs) - 1)] if schema.raw.inputs else None
        if value is None or formal is None or i >= (signature.max_inputs or len(call.inputs)):
            continue
        if not signature.input_spec(i).group.accepts(value.type) and type_text(value.type) in formal.types:
            return True
    return False


def _rename(graph: Graph, value: Value, name: str) -> None:
    try:
        graph.value(name)
    except KeyError:
        graph.rename(value, name)


def _written(domain: str, node: NodeProto, schema: Schema | None, opset: int) -> Written:
    return Written(domain, node.op_type, schema.since if schema is not None else opset, node_where(node))


def _schema(domain: str, node: NodeProto, opset: int, where: str) -> Schema | None:
    schema = find_schema(domain, node.op_type, opset)
    if schema is None and domain == "" and node.op_type in _EARLY:
        return find_schema(domain, node.op_type, _EARLY[node.op_type])
    if schema is None and is_known(domain, node.op_type):
        expected, found = "a newer operator set", f"{domain or 'ai.onnx'} {opset}"
        raise InvalidModel("the operator is not in this operator set", where=where, expected=expected, found=found)
    return schema


def _is_supported(domain: str, name: str, schema: Schema | None) -> bool:
    if is_of_sequences(domain, name) or (domain, name) in CATALOGUE or (domain, name) in UPGRADES:
        return True
    return schema is not None and schema.has_function


def _check_form(call: Call, since: int, schema: Schema | None) -> None:
    """An old form without a rule is fine only if all its attributes live on."""
    if schema is None or call.version >= since:
        return
    newest = find_schema(call.domain, call.op, since)
    gone = set(call.attributes) - set(newest.types) if newest is not None else set()
    if gone:
        call.unsupported(f"version {call.version} has the attribute {min(gone)}, which has no upgrade")
