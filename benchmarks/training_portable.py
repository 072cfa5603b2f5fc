"""A training in a form that another interpreter reads with numpy alone: nodes as JSON, weights and data as arrays.

Owns the file; `training_mxnet` reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from parax.compiler.training.losses import BinaryCrossEntropy

from .training_cases import CASES, MOMENTUM, RATE


def write_portable(model: Path, name: str, path: Path) -> None:
    """Write the training of a model of the list into an .npz: `about`, and arrays `weight:NAME` and `data:NAME`.

    `about` is JSON: `nodes` with their attributes, Constant nodes being weights of no training; `trained`, the weights'
    names; `result`, the value that `loss` reads ("classes" of an axis or "scores"); `rate` and `momentum`.
    """
    case, graph = CASES[name], onnx.load(model).graph
    arrays = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    kept = {name for node in graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}
    trained = [key for key, array in arrays.items() if array.dtype == np.float32 and array.ndim and key not in kept]
    nodes = []
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            arrays[node.output[0]] = numpy_helper.to_array(attributes["value"])
            continue
        plain = {key: _plain(value) for key, value in attributes.items()}
        nodes.append({"op": node.op_type, "inputs": list(node.input), "outputs": list(node.output), **plain})
    about = {"nodes": nodes, "trained": trained, "result": graph.output[0].name, "rate": RATE, "momentum": MOMENTUM,
             "loss": "scores" if isinstance(case.loss, BinaryCrossEntropy) else "classes",
             "axis": getattr(case.loss, "axis", 1)}  # fmt: skip
    filed = {f"weight:{key}": array for key, array in arrays.items()}
    filed |= {f"data:{key}": array for key, array in case.data(name).items()}
    np.savez(path, about=np.array(json.dumps(about)), **filed)


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value).tolist()
    return value.decode() if isinstance(value, bytes) else value
