"""parax behind the plain function that conformance runners call: a model file and its inputs in, its outputs out.

`run(model_path, inputs)` compiles for the shapes of the inputs and runs once; `load(model_path)` compiles only. Errors
are parax's own: UnsupportedOp for what it does not implement, InvalidModel for what is malformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

import parax


def load(model_path: str) -> parax.Plan:
    """Compile a model with the shapes that it declares."""
    return parax.compile(model_path)


def run(model_path: str, inputs: Sequence[Any]) -> list[Any]:
    """Compile and run a model.

    Args:
        inputs: in the order of graph.input without initializers; None where an optional one is left out.

    Returns:
        The outputs in the order of graph.output.
    """
    declared = _declared_inputs(model_path)
    names = list(declared)
    if len(inputs) > len(names):
        raise parax.InvalidInput("too many inputs", where=model_path, expected=len(names), found=len(inputs))
    given = {name: value for name, value in zip(names, inputs, strict=False) if value is not None}
    shapes = {name: _open_dims(declared[name], value.shape) for name, value in given.items()
              if isinstance(value, np.ndarray) and declared[name].type.HasField("tensor_type")}
    plan = parax.compile(model_path, shapes=shapes)
    with plan.session(instances=1, cores_per_instance=1) as session:
        found = session.run(given)
    return [found[spec.name] for spec in plan.outputs]


def _declared_inputs(model_path: str) -> dict[str, onnx.ValueInfoProto]:
    try:
        graph = onnx.load(model_path, load_external_data=False).graph
    except DecodeError:
        load(model_path)  # says what is wrong with the file in parax's words
        raise
    weights = {weight.name for weight in graph.initializer} | {
        weight.values.name for weight in graph.sparse_initializer
    }
    return {value.name: value for value in graph.input if value.name not in weights}


def _open_dims(declared: onnx.ValueInfoProto, shape: Sequence[int]) -> list[int]:
    """The input's shape as far as the model leaves it open: sizes that it fixes stay, for the session to insist on."""
    tensor = declared.type.tensor_type
    if not tensor.HasField("shape") or len(tensor.shape.dim) != len(shape):
        return list(shape)
    fixed = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim]
    return [n if d is None else d for d, n in zip(fixed, shape, strict=True)]
