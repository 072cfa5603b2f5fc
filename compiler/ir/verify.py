"""Checks that a graph keeps the promises of the IR. Changes nothing; shows the printed IR with every error."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from ...errors import InternalError, ParaxError
from .graph import Graph
from .inference import check_operands, infer_with
from .ops.base import Fused
from .ops.context import InferContext
from .text import print_graph
from .types import DType, SymDim, TensorType, Type
from .values import Node, Value

_NOTE_LIMIT = 200_000


def verify(graph: Graph) -> None:
    """Checks uses, order, names, types (inferred anew, layouts aside), bodies and outputs.

    Raises InternalError for a broken graph, InvalidModel where an operator's rules are broken; the IR is attached
    as a note.
    """
    try:
        _verify_graph(graph)
    except ParaxError as error:
        attach_ir(error, graph)
        raise


def attach_ir(error: BaseException, graph: Graph) -> None:
    """Adds the printed graph to an error as a note (Python 3.11 and later show it)."""
    if hasattr(error, "add_note"):
        text = print_graph(graph)
        error.add_note(text if len(text) <= _NOTE_LIMIT else text[:_NOTE_LIMIT] + "\n... (cut)")


def _verify_graph(graph: Graph) -> None:
    defined = set(graph.inputs) | set(graph.constants)
    for value in graph.constants:
        _check_constant(value)
    previous: Node | None = None
    count = 0
    for node in graph:
        count += 1
        if node.prev is not previous or count > len(graph):
            _broken(graph, "the list of nodes is inconsistent", node)
        previous = node
        _check_links(graph, node, defined)
        check_operands(node.op, node.inputs, len(node.outputs), node.bodies, node.where)
        _check_types(node)
        for body in node.bodies.values():
            _verify_graph(body)
        if isinstance(node.op, Fused):
            _check_fused(node)
        defined.update(node.outputs)
    if count != len(graph) or graph.last is not previous:
        _broken(graph, "the list of nodes is inconsistent", previous)
    _check_values(graph, defined)
    _check_outputs(graph, defined)


def _broken(graph: Graph, message: str, node: Node | None = None, found: object = None) -> NoReturn:
    raise InternalError(message, where=node.where if node is not None else f"graph {graph.name}", found=found)


def _check_constant(value: Value) -> None:
    data, type_ = value.data, value.type
    fits = data is not None and isinstance(type_, TensorType) and type_.shape == data.shape
    if not fits or data is None or DType.from_numpy(data.dtype) != value.tensor.dtype:
        raise InternalError("a constant's data and type differ", where=str(value), expected=type_)


def _check_links(graph: Graph, node: Node, defined: set[Value]) -> None:
    if node.graph is not graph:
        _broken(graph, "a node belongs to another graph", node)
    for i, value in enumerate(node.inputs):
        if value is None:
            continue
        if value not in defined:
            _broken(graph, f"operand {i} is used before it is defined", node, value)
        if (node, i) not in value.uses:
            _broken(graph, f"the use of operand {i} is not recorded", node, value)
    if not node.outputs:
        _broken(graph, "a node without outputs", node)
    for i, value in enumerate(node.outputs):
        if value.producer is not node or value.index != i or value.data is not None:
            _broken(graph, f"output {i} does not point back to its node", node, value)


def _check_types(node: Node) -> None:
    ctx = node.context()
    for value, inferred in zip(node.outputs, infer_with(node.op, ctx), strict=True):
        if not _agrees(value.type, inferred, ctx):
            raise InternalError(
                f"type of {value} is not what its operator gives", where=node.where, expected=inferred, found=value.type
            )


def _agrees(actual: Type, inferred: Type, ctx: InferContext) -> bool:
    if not isinstance(actual, TensorType) or not isinstance(inferred, TensorType):
        return actual == inferred
    if actual.dtype != inferred.dtype:
        return False
    if actual.shape is None or inferred.shape is None or len(actual.shape) != len(inferred.shape):
        return actual.shape == inferred.shape
    return all(a == b or _depends_on_data(b, ctx) for a, b in zip(actual.shape, inferred.shape, strict=True))


def _depends_on_data(dim: object, ctx: InferContext) -> bool:
    return isinstance(dim, SymDim) and not ctx.fresh_symbols.isdisjoint(dim.symbols())


def _check_fused(node: Node) -> None:
    body = node.bodies["body"]
    if len(body.outputs) != len(node.outputs):
        _broken(body, "a fused body must have one output per output of its node", node, body.outputs)
    if not len(body):
        _broken(body, "an empty fused body", node)


def _check_values(graph: Graph, defined: set[Value]) -> None:
    values = graph.values()
    if len(values) != len(defined) or set(values) != defined:
        _broken(graph, "the table of values is inconsistent", found=set(values) ^ defined)
    as_output = Counter(graph.outputs)
    for value in values:
        if value.graph is not graph or not graph.has_value(value.name) or graph.value(value.name) is not value:
            _broken(graph, "a value is registered under another name or graph", value.producer, value)
        for node, i in value.uses:
            if node.graph is not graph or i >= len(node.inputs) or node.inputs[i] is not value:
                _broken(graph, f"a stale use of {value}", node)
        if value.output_uses != as_output[value]:
            _broken(graph, f"outputs count {value} wrongly", value.producer)


def _check_outputs(graph: Graph, defined: set[Value]) -> None:
    if any(v not in defined for v in graph.outputs):
        _broken(graph, "an output is not defined in the graph", found=graph.outputs)
    if len(graph.output_names) != len(graph.outputs) or len(set(graph.output_names)) != len(graph.output_names):
        _broken(graph, "outputs need one name each, all different", found=graph.output_names)
