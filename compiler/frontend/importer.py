"""ONNX model to IR graph: generic, driven by the catalogue; no per-operator code but constants and control flow.

Walks nodes in order with a stack of frames (see frames.py), so depth and expansion are bounded by limits, not by the
Python stack. Everything parax lacks is collected and reported in one error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import GraphProto, NodeProto, ValueInfoProto

from ...errors import InternalError, InvalidModel, ParaxError, ResourceLimit, UnsupportedOp, UsageError
from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Node, Value
from ..ir.ops import CATALOGUE
from ..ir.types import DType, TensorType
from . import upgrade_rules  # noqa: F401  registers the rules
from .attributes import attribute_type, attribute_value, constant_value, read_attributes
from .calls import Call
from .control import import_control, is_control
from .external import ExternalData
from .folding import fold
from .frames import UNSUPPORTED, Binding, Frame
from .functions import call_local, call_schema_function
from .limits import DEFAULT_LIMITS, Limits
from .order import in_order
from .parse import Source, normal_domain, read_model
from .schemas import Schema, check_node, find_schema, is_known
from .signatures import Symbols, check_size, override_shape, read_type
from .tensors import TensorReader
from .upgrades import UPGRADES, apply_upgrades


def import_model(
    source: Source,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Graph:
    """The IR graph of an ONNX model.

    Args:
        source: path (external data is read from its folder), serialised model, or ModelProto.
        shapes: input name → shape that replaces the declared one; a str entry names a symbol.
        dims: symbol (ONNX's dim_param) → size.
        limits: bounds on what the model may ask for.

    Raises:
        InvalidModel: the model breaks ONNX's rules.
        UnsupportedOp: lists every operator that parax lacks, with its version and how often it is used.
        ResourceLimit: a limit was reached.
        UsageError: the file cannot be read; `shapes` or `dims` name what the model does not have.
    """
    return Importer(source, shapes or {}, dims or {}, limits).run()


class Importer:
    """The state of one import."""

    def __init__(
        self, source: Source, shapes: Mapping[str, Sequence[int | str]], dims: Mapping[str, int], limits: Limits
    ) -> None:
        self.file = read_model(source, limits)
        self.limits = limits
        self.symbols = Symbols(dims)
        self.tensors = TensorReader(ExternalData(self.file.folder), limits)
        self.stack: list[Frame] = []
        self.n_calls = 0
        self._shapes = shapes
        self._n_nodes = 0
        self._lacking: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}

    def run(self) -> Graph:
        """Imports the main graph."""
        proto = self.file.model.graph
        graph = Graph(proto.name or "main")
        frame = Frame(graph, in_order(proto.node), self.file.opsets, lambda f: self._finish_main(f, proto))
        self._add_inputs(frame, proto)
        self.add_initializers(frame, proto)
        self.stack.append(frame)
        while self.stack:
            frame = self.stack[-1]
            node = next(frame.nodes, None)
            if node is None:
                self.stack.pop()
                frame.finish(frame)
            else:
                self._count_node()
                self._guarded(frame, node)
        self.symbols.check_all_used()
        return graph

    def _guarded(self, frame: Frame, node: NodeProto) -> None:
        """Imports a node; a mistake of ours that a strange model brings out still ends in an error that says where."""
        try:
            self._node(frame, node)
        except ParaxError:
            raise
        except MemoryError as error:
            raise ResourceLimit("out of memory", where=node_where(node)) from error
        except Exception as error:
            raise InternalError(f"{type(error).__name__}: {error}", where=node_where(node)) from error

    def _add_inputs(self, frame: Frame, proto: GraphProto) -> None:
        constants = {tensor.name for tensor in proto.initializer}
        unknown = sorted(set(self._shapes) - {value.name for value in proto.input})
        if unknown:
            expected = ", ".join(value.name for value in proto.input if value.name not in constants) or "no inputs"
            raise UsageError("a shape is given for what is no input", found=", ".join(unknown), expected=expected)
        seen: set[str] = set()
        for value in proto.input:
            where = f"input {value.name!r}"
            if not value.name or value.name in seen:
                what = "an input has no name" if not value.name else "two inputs have one name"
                raise InvalidModel(what, where=where)
            seen.add(value.name)
            type_ = read_type(value.type, value.name, self.symbols, self.limits)
            if value.name in constants:  # a default value: parax treats it as fixed
                continue
            if value.name in self._shapes:
                type_ = override_shape(type_, self._shapes[value.name], value.name, self.symbols, self.limits)
            frame.define(value.name, frame.graph.add_input(value.name, type_), where)

    def add_initializers(self, frame: Frame, proto: GraphProto) -> None:
        """Defines the constants of a graph."""
        for tensor in proto.initializer:
            where = f"initializer {tensor.name!r}"
            if not tensor.name:
                raise InvalidModel("an initializer has no name")
            frame.define_array(tensor.name, self.tensors.read(tensor, where), where)
        for sparse in proto.sparse_initializer:
            where = f"sparse initializer {sparse.values.name!r}"
            frame.define_array(sparse.values.name, self.tensors.read_sparse(sparse, where), where)

    def _finish_main(self, frame: Frame, proto: GraphProto) -> None:
        names = [value.name for value in proto.output]
        if len(set(names)) != len(names):
            raise InvalidModel("two outputs have one name", found=", ".join(sorted(names))[:200])
        values = [frame.resolve(name, f"output {name!r}") for name in names]
        self._report_lacking()
        kept: list[Value] = []
        for declared, value in zip(proto.output, values, strict=True):
            if not isinstance(value, Value):
                raise InvalidModel("an output has no value", where=f"output {declared.name!r}")
            _check_output_type(declared, value)
            kept.append(value)
        frame.graph.set_outputs(kept, names)

    def _report_lacking(self) -> None:
        if not self._lacking:
            return
        parts = [f"{label} × {count}{self._reasons.get(label, '')}" for label, count in sorted(self._lacking.items())]
        raise UnsupportedOp("the model uses what parax does not support: " + ", ".join(parts))

    def lack(self, label: str, reason: str = "") -> None:
        """Notes something that parax lacks; the import goes on to find the rest."""
        self._lacking[label] += 1
        if reason:
            self._reasons.setdefault(label, f" ({reason})")

    def _count_node(self) -> None:
        self._n_nodes += 1
        if self._n_nodes > self.limits.nodes:
            raise ResourceLimit("the model has too many nodes after expansion", expected=f"at most {self.limits.nodes}")

    def _node(self, frame: Frame, node: NodeProto) -> None:
        domain = normal_domain(node.domain)
        where = node_where(node)
        protos = read_attributes(node.attribute, frame.bound, where)
        inputs = [frame.resolve(name, where) if name else None for name in node.input]
        if not node.op_type:
            raise InvalidModel("a node has no operator", where=where)
        if (domain, node.op_type, node.overload) in self.file.functions:
            call_local(self, frame, node, inputs, protos)
            return
        opset = frame.opsets.get(domain)
        if opset is None:
            self.refuse(frame, node, f"{domain or 'ai.onnx'}::{node.op_type}", "domain not imported by the model")
            return
        schema = self._schema(domain, node, opset, where)
        if schema is not None:
            check_node(schema, node, {name: attribute_type(a, where) for name, a in protos.items()}, where)
        if domain == "" and node.op_type == "Constant":
            values = {name: attribute_value(a, self.tensors, where) for name, a in protos.items()}
            array = constant_value(values, where)
            self.define_outputs(frame, node, [frame.graph.add_constant(array, self.name_of(frame, node.output[0]))])
            return
        version = schema.since if schema is not None else opset
        label = f"{domain or 'ai.onnx'}::{node.op_type}-{version}"
        if any(value is UNSUPPORTED for value in inputs):
            if not self._is_supported(domain, node.op_type, schema):
                self.lack(frame.culprit or label)
            self.poison(frame, node)
        elif is_control(domain, node.op_type):
            import_control(self, frame, node, inputs, protos)
        else:
            self._operator(frame, node, domain, opset, schema, inputs, protos)

    def _operator(
        self,
        frame: Frame,
        node: NodeProto,
        domain: str,
        opset: int,
        schema: Schema | None,
        inputs: Sequence[Binding],
        protos: Mapping[str, Any],
    ) -> None:
        where = node_where(node)
        attributes = {name: attribute_value(a, self.tensors, where) for name, a in protos.items()}
        defaults = {} if schema is None else {k: v for k, v in schema.defaults.items() if k not in attributes}
        version = schema.since if schema is not None else opset
        operands = [value for value in inputs if not isinstance(value, type(UNSUPPORTED))]
        present = tuple(bool(name) for name in node.output)
        n_outputs = max((i + 1 for i, given in enumerate(present) if given), default=1)
        call = Call(domain, node.op_type, opset, version, operands, n_outputs, {**attributes, **defaults}, node.name,
                    set(defaults), present)  # fmt: skip
        label = call.label
        try:
            results = apply_upgrades(call, GraphBuilder(frame.graph, name=node.name))
            if results is None and (call.domain, call.op) not in CATALOGUE:
                if schema is None or not call_schema_function(self, frame, node, schema, opset, operands, protos):
                    self.refuse(frame, node, label)
                return
            if results is None:
                results = self._emit(frame, node, call, schema)
        except UnsupportedOp as error:
            self.refuse(frame, node, label, error.message)
            return
        self._name_results(frame, node, results)
        self.define_outputs(frame, node, results)

    def _emit(self, frame: Frame, node: NodeProto, call: Call, schema: Schema | None) -> list[Value | None]:
        cls = CATALOGUE[call.domain, call.op]
        declared = cls.signature.attributes
        for name in [name for name in call.attributes if name not in declared]:
            if name not in call.defaulted and schema is not None and name in schema.types:
                call.unsupported(f"its attribute {name} is not supported")
            if name in call.defaulted:
                call.pop(name)
        _check_form(call, cls.since, schema)
        op = cls.from_attributes(call.attributes, call.where)
        names = [self.name_of(frame, name) for name in node.output][: call.n_outputs]
        names += [None] * (call.n_outputs - len(names))
        created = frame.graph.add_node(op, call.inputs, names, name=call.name)
        for value in created.outputs:
            check_size(value.type, self.limits, created.where)
        return list(fold(created, self.limits) or created.outputs)

    def _schema(self, domain: str, node: NodeProto, opset: int, where: str) -> Schema | None:
        schema = find_schema(domain, node.op_type, opset)
        if schema is None and is_known(domain, node.op_type):
            expected, found = "a newer operator set", f"{domain or 'ai.onnx'} {opset}"
            raise InvalidModel("the operator is not in this operator set", where=where, expected=expected, found=found)
        return schema

    def _is_supported(self, domain: str, name: str, schema: Schema | None) -> bool:
        has_function = schema is not None and (schema.raw.has_function or schema.raw.has_context_dependent_function)
        return (domain, name) in CATALOGUE or (domain, name) in UPGRADES or has_function

    def refuse(self, frame: Frame, node: NodeProto, label: str, reason: str = "") -> None:
        """Notes that parax lacks this node's operator; its results become unusable."""
        self.lack(frame.culprit or label, reason)
        self.poison(frame, node)

    def poison(self, frame: Frame, node: NodeProto) -> None:
        """Makes the node's results unusable, without noting a reason."""
        for name in node.output:
            if name:
                frame.define(name, UNSUPPORTED, node_where(node))

    def define_outputs(self, frame: Frame, node: NodeProto, results: Sequence[Binding]) -> None:
        """Binds the node's output names to its results; what has no result must not be used."""
        where = node_where(node)
        for i, name in enumerate(node.output):
            if not name:
                continue
            given = i < len(results) and results[i] is not None
            frame.define(name, results[i] if given else UNSUPPORTED, where)

    def name_of(self, frame: Frame, name: str) -> str | None:
        """What a value is called in the IR: ONNX's name, but a number for the insides of functions."""
        return name if name and not frame.calls else None

    def _name_results(self, frame: Frame, node: NodeProto, results: Sequence[Value | None]) -> None:
        """Gives results that an upgrade made without a name that of the model."""
        for name, value in zip(node.output, results, strict=False):
            wanted = self.name_of(frame, name)
            if value is None or wanted is None or value.is_input or not value.name.isdigit():
                continue
            _rename(frame.graph, value, wanted)


def _rename(graph: Graph, value: Value, name: str) -> None:
    try:
        graph.value(name)
    except KeyError:
        graph.rename(value, name)


def node_where(node: NodeProto) -> str:
    """How errors name a node."""
    if node.name:
        return f'{node.op_type} "{node.name[:200]}"'
    return f"{node.op_type} %{node.output[0][:200]}" if node.output else node.op_type


def _check_form(call: Call, since: int, schema: Schema | None) -> None:
    """An old form without a rule is fine only if nothing but types has changed since."""
    if schema is None or call.version >= since:
        return
    newest = find_schema(call.domain, call.op, since)
    if newest is None or newest.since <= call.version:
        return
    gone = set(call.attributes) - set(newest.types)
    if gone:
        call.unsupported(f"version {call.version} has the attribute {min(gone)}, which has no upgrade")


def _check_output_type(declared: ValueInfoProto, value: Value) -> None:
    if not declared.type.HasField("tensor_type") or not declared.type.tensor_type.elem_type:
        return
    expected = DType.from_code(declared.type.tensor_type.elem_type)
    if not isinstance(value.type, TensorType) or value.type.dtype != expected:
        message, where = "the output has another type than declared", f"output {declared.name!r}"
        raise InvalidModel(message, where=where, expected=expected, found=value.type)


__all__ = ["Importer", "Node", "import_model"]
