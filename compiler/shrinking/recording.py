"""Every value of a model's main graph on given inputs, as another implementation computes it.

Where none runs the model, zeros of the types and shapes that can be inferred stand in: enough where no number matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...errors import ParaxError
from ..frontend.oracle import KINDS, oracle
from .candidates import Recorded

MOST_ELEMENTS = 1 << 24  # of a value that is made up


def recorded(data: bytes, feeds: Mapping[str, np.ndarray], kind: str) -> Recorded:
    """The values by the implementation `kind`, or by another one where that fails; see the module.

    Args:
        data: the model's bytes.
    """
    model = onnx.ModelProto.FromString(data)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    inferred = _inferred(model)
    for each in (kind, *(other for other in KINDS if other != kind)):
        found = _run(model, feeds, each)
        if found is not None:
            break
    else:
        found = _made_up(inferred)
    return Recorded([{**constants, **found, **feeds}], _symbols(model, inferred))


def _run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], kind: str) -> dict[str, np.ndarray] | None:
    """Every value that is an array, None where the implementation does not run the model."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    outputs = {o.name for o in whole.graph.output}
    for node in whole.graph.node:
        for name in node.output:
            if name and name not in outputs:
                whole.graph.output.append(onnx.ValueInfoProto(name=name))
    try:
        values = oracle(whole, kind)(feeds)
    except ParaxError:
        return None
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _inferred(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """The tensor types that ONNX's shape inference finds, where it does not fail."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # its errors have no common base, and it is only asked for advice
        graph = model.graph
    declared = (*graph.value_info, *graph.input, *graph.output)
    return {v.name: v.type.tensor_type for v in declared if v.type.HasField("tensor_type")}


def _symbols(model: onnx.ModelProto, inferred: Mapping[str, onnx.TypeProto.Tensor]) -> dict[str, list[str | None]]:
    """Which dimensions have a name that inputs have."""
    known = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    return {
        name: [d.dim_param if d.dim_param in known else None for d in kind.shape.dim]
        for name, kind in inferred.items() if kind.HasField("shape")
    }  # fmt: skip


def _made_up(inferred: Mapping[str, onnx.TypeProto.Tensor]) -> dict[str, np.ndarray]:
    """Zeros, with 1 for what is open."""
    made = {}
    for name, kind in inferred.items():
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in kind.shape.dim]
        if kind.HasField("shape") and kind.elem_type and prod(shape) <= MOST_ELEMENTS:
            made[name] = np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return made
