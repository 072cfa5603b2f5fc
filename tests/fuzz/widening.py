"""A model's element types, and the model with every floating-point type made float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from backend.guards import in_child

from .contents import F64, FLOATS

SECONDS = 20
MOST_READ = 1 << 16
"""Numbers of a tensor that may stand for a shape, axes or the like."""
_FLOAT_CODES = {helper.np_dtype_to_tensor_dtype(d) for d in FLOATS}


class Unknown(Exception):
    """Types cannot be inferred."""


def types_of(model: onnx.ModelProto) -> dict[str, np.dtype]:
    """The element types of the values that have one, by name."""
    try:
        light, _ = without_weights(model)
        found = in_child(lambda note: _inferred(light), SECONDS)  # on some models onnx's own C++ faults
    except AssertionError as error:
        raise Unknown(f"shape inference: {error}"[:200]) from error
    return {k: np.dtype(helper.tensor_dtype_to_np_dtype(c)) for k, c in found.items() if c}


def without_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, TensorProto]]:
    """A copy of the model with its large weights as inputs, and these by name, which are not copied.

    Whoever looks at no more than their types is spared the room; where there is none, protobuf's copies fault.
    """
    large = {t.name: t for t in model.graph.initializer if math.prod(t.dims) > MOST_READ}
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph, inputs = model.graph, {i.name for i in model.graph.input}
    for field in ("node", "input", "output", "value_info"):
        getattr(light.graph, field).extend(getattr(graph, field))
    light.graph.initializer.extend(t for t in graph.initializer if t.name not in large)
    light.graph.input.extend(helper.make_tensor_value_info(name, t.data_type, t.dims)
                             for name, t in large.items() if name not in inputs)  # fmt: skip
    return light, large


def _inferred(model: onnx.ModelProto) -> dict[str, int]:
    """Of bodies too; a name that two of them give to different types has none."""
    graph = shape_inference.infer_shapes(model).graph
    return _inferred_within(graph, {o.domain: o.version for o in model.opset_import}, {})


def _inferred_within(graph: onnx.GraphProto, versions: Mapping[str, int], outer: Mapping[str, int]) -> dict[str, int]:
    infos = [*graph.input, *graph.output, *graph.value_info]
    found = {**outer, **{v.name: v.type.tensor_type.elem_type for v in infos if v.type.HasField("tensor_type")}}
    found.update({t.name: t.data_type for t in graph.initializer})
    for node in graph.node:
        _infer_plainly(node, versions.get(node.domain, 1), found)
    inner: dict[str, int] = {}
    for body in (a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
        for name, code in _inferred_within(body, versions, found).items():
            inner[name] = code if inner.get(name, code) == code else 0
    return {**inner, **found}


def _infer_plainly(node: onnx.NodeProto, version: int, found: dict[str, int]) -> None:
    """Types of results that onnx's inference stops before, where they are those of operands by their declarations."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return
    given: dict[str, int | None] = {}
    for i, name in enumerate(node.input):
        declared = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        given.setdefault(declared, found.get(name))
    for i, name in enumerate(node.output):
        kind = given.get(schema.outputs[min(i, len(schema.outputs) - 1)].type_str)
        if name and kind and not found.get(name):
            found[name] = kind


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every floating-point type made float64."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _widen(copy.graph)
    return copy


def _widen(graph: onnx.GraphProto) -> None:
    for info in [*graph.input, *graph.output]:
        if info.type.tensor_type.elem_type in _FLOAT_CODES:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _widen(attribute.g)
            elif attribute.name in ("to", "dtype", "output_dtype") and attribute.i in _FLOAT_CODES:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOAT_CODES and tensor.data_type != TensorProto.DOUBLE:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(F64), tensor.name))
