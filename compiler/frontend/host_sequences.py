"""Sequences and optionals that only a run knows: nodes of host operators, where `sequences` finds no list.

What is known, but needed where another length may come as well, becomes such a value, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import GraphProto, TensorProto, TypeProto, helper

from ...errors import UnsupportedOp
from ..ir.graph import Graph, Value
from ..ir.ops import lookup
from ..ir.ops.sequences import Optional, SequenceConstruct, SequenceEmpty
from ..ir.types import F32, OptionalType, TensorType, Type
from .limits import Limits
from .signatures import Symbols, read_type
from .structures import Item, KnownOptional, KnownSequence

_OWN = "::parax::"
"""Part of names that we make up, beside those of a model."""


def is_of_a_run(item: object) -> bool:
    """Whether it is a value of the graph that is no tensor."""
    return isinstance(item, Value) and not isinstance(item.type, TensorType)


def as_value(graph: Graph, item: Item, declared: Type | None = None) -> Value:
    """The value that an item is at run time.

    Args:
        declared: the type of an optional that has no element and does not say of what.

    Raises:
        UnsupportedOp: its type is not known.
    """
    if isinstance(item, KnownSequence):
        elements = [as_value(graph, element) for element in item.elements]
        op = SequenceConstruct() if elements else SequenceEmpty(dtype=item.dtype or F32)
        return graph.add_node(op, elements).output
    if isinstance(item, KnownOptional):
        if item.element is not None:
            return graph.add_node(Optional(), [as_value(graph, item.element)]).output
        wanted = item.type or (declared.elem if isinstance(declared, OptionalType) else None)
        if wanted is None:
            raise UnsupportedOp("an optional of nothing does not say of what type it is")
        return graph.add_node(Optional(type=(str(wanted),)), []).output
    return item


def optional_type(attributes: Mapping[str, Any], limits: Limits) -> Type | None:
    """What the attribute `type` says that an optional is of."""
    proto = attributes.get("type")
    return read_type(proto, "type", Symbols(), limits) if isinstance(proto, TypeProto) else None


def at_run_time(
    graph: Graph, op_type: str, inputs: Sequence[Item | None], attributes: Mapping[str, Any], name: str, where: str
) -> list[Item]:
    """The outputs of a host operator for operands of either kind.

    Raises:
        UnsupportedOp: there is no such host operator. InvalidModel: its rules are broken.
    """
    operands = [None if item is None else as_value(graph, item) for item in inputs]
    while operands and operands[-1] is None:
        operands.pop()
    kept = {key: value for key, value in attributes.items() if not isinstance(value, TypeProto)}
    op = lookup("", op_type, where).from_attributes(kept, where)
    return [*graph.add_node(op, operands, name=name).outputs]


def map_as_loop(body: GraphProto, are_sequences: Sequence[bool], where: str) -> GraphProto:
    """SequenceMap as a graph of a Loop over positions, which inserts each result at the end of a sequence.

    Args:
        body: of the node. are_sequences: for each operand whether it is one, or a tensor that is the same for all.

    Raises:
        UnsupportedOp: the body does not say what it gives.
    """
    given = [f"{_OWN}x{i}" for i in range(len(are_sequences))]
    made = [f"{_OWN}y{i}" for i in range(len(body.output))]
    inner = GraphProto(name=f"{body.name}{_OWN}loop")
    for name, dtype in ((f"{_OWN}i", TensorProto.INT64), (f"{_OWN}c", TensorProto.BOOL)):
        inner.input.append(helper.make_tensor_value_info(name, dtype, []))
    inner.input.extend(helper.make_empty_tensor_value_info(f"{name}.in") for name in made)
    for name, declared, is_sequence in zip(given, body.input, are_sequences, strict=True):
        taken = [name, f"{_OWN}i"] if is_sequence else [name]
        inner.node.append(helper.make_node("SequenceAt" if is_sequence else "Identity", taken, [declared.name]))
    inner.node.extend(body.node)
    inner.initializer.extend(body.initializer)
    inner.sparse_initializer.extend(body.sparse_initializer)
    inner.node.append(helper.make_node("Identity", [f"{_OWN}c"], [f"{_OWN}on"]))
    for name, result in zip(made, body.output, strict=True):
        inner.node.append(helper.make_node("SequenceInsert", [f"{name}.in", result.name], [f"{name}.out"]))
    outs = [f"{_OWN}on", *(f"{name}.out" for name in made)]
    inner.output.extend(map(helper.make_empty_tensor_value_info, outs))
    nodes = [helper.make_node("SequenceLength", [given[are_sequences.index(True)]], [f"{_OWN}n"])]
    for name, result in zip(made, body.output, strict=True):
        dtype = result.type.tensor_type.elem_type
        if not dtype:
            raise UnsupportedOp("the body does not say what it gives", where=where, found=result.name)
        nodes.append(helper.make_node("SequenceEmpty", [], [f"{name}.none"], dtype=dtype))
    begins = [f"{name}.none" for name in made]
    nodes.append(helper.make_node("Loop", [f"{_OWN}n", "", *begins], made, body=inner))
    return helper.make_graph(nodes, f"{body.name}{_OWN}map", list(map(helper.make_empty_tensor_value_info, given)),
                             list(map(helper.make_empty_tensor_value_info, made)))  # fmt: skip
