"""A copy of a model whose every intermediate tensor is an output, to find the layer where two implementations part."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto, ValueInfoProto

from .limits import Limits
from .parse import read_model


def exposed(path: Path) -> ModelProto:
    """The model with the results of all nodes of its main graph as outputs, in the order of the nodes.

    External data is read into the model.

    Raises:
        UsageError, InvalidModel, UnsupportedOp, ResourceLimit: see `parse.read_model`.
    """
    read_model(path, Limits())
    model = onnx.load(path)
    graph = model.graph
    declared = {value.name: value for value in graph.output}
    inputs = {value.name for value in graph.input}
    names = dict.fromkeys(name for node in graph.node for name in node.output if name and name not in inputs)
    missing = [value for name, value in declared.items() if name not in names]
    del graph.output[:]
    graph.output.extend(declared.get(name, ValueInfoProto(name=name)) for name in names)
    graph.output.extend(missing)
    return model
