"""A copy of a model whose every layer's result is an output, to find the layer where two implementations part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from .bodies import bodies, with_inner_nodes
from .limits import Limits
from .parse import read_model

_SIZES = {"Shape", "Size"}


def exposed(path: Path) -> ModelProto:
    """The model with the results of its main graph's layers as outputs, in the order of the nodes.

    Layers compute on what the inputs hold. Constants, and sizes computed from shapes, are none: implementations that
    part there give a later layer another shape. The model's own outputs are kept. External data is read in.

    Raises:
        UsageError, InvalidModel, UnsupportedOp, ResourceLimit: see `parse.read_model`.
    """
    read_model(path, Limits())
    model = onnx.load(path)
    graph = model.graph
    declared = {value.name: value for value in graph.output}
    inputs = {value.name for value in graph.input}
    computed = _computed(graph)
    names = dict.fromkeys(
        name for node in graph.node for name in node.output
        if name and name not in inputs and (name in computed or name in declared)
    )  # fmt: skip
    missing = [value for name, value in declared.items() if name not in names]
    del graph.output[:]
    graph.output.extend(declared.get(name, ValueInfoProto(name=name)) for name in names)
    graph.output.extend(missing)
    return model


def _computed(graph: GraphProto) -> set[str]:
    """The values that depend on what the inputs hold, not only on their shapes."""
    constants = {tensor.name for tensor in graph.initializer}
    found = {value.name for value in graph.input} - constants
    for node in graph.node:
        if node.op_type not in _SIZES and any(name in found for name in _read(node)):
            found.update(node.output)
    return found


def _read(node: NodeProto) -> Iterator[str]:
    """What a node and the nodes of its bodies read."""
    for each in with_inner_nodes([node]):
        yield from each.input
    for body in bodies([node]):
        yield from (value.name for value in body.output)


def producers(model: ModelProto) -> dict[str, str]:
    """Value → the node of the main graph that makes it: its operator, and its name where it has one."""
    return {name: f"{node.op_type} {node.name}".strip() for node in model.graph.node for name in node.output if name}
