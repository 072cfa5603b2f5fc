"""Counts parameters and flops of a model by ONNX's own shape inference. Knows the matrix operators, no model."""

from __future__ import annotations

from math import prod

import onnx
from onnx import helper, shape_inference

LARGEST_SHAPE = 8
"""Weights of at most so many elements may be shapes and axes: inference needs their values."""


def count(model: onnx.ModelProto) -> tuple[int, int]:
    """(parameters, flops) of one run of a model without symbolic dimensions.

    Two flops a multiply-add in Conv, ConvTranspose, Gemm, MatMul and LSTM; other operators count nothing.
    """
    shapes = _shapes(model)
    flops = 0
    for node in model.graph.node:
        operands = [*(shapes.get(name, []) for name in node.input), [], []]
        x, w = operands[:2]
        y = shapes[node.output[0]]
        if node.op_type == "Conv":
            flops += 2 * prod(y) * prod(w[1:])
        elif node.op_type == "ConvTranspose":
            flops += 2 * prod(x) * prod(w[1:])
        elif node.op_type == "Gemm":
            flops += 2 * prod(x) * y[-1]
        elif node.op_type == "MatMul":
            flops += 2 * prod(y) * x[-1]
        elif node.op_type == "LSTM":
            directions, gates, hidden = shapes[node.input[2]]
            flops += 2 * x[0] * x[1] * directions * gates * (x[2] + hidden)
    return sum(prod(weight.dims) for weight in model.graph.initializer), flops


def _shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Shape of every value. Inference copies the model, so it sees large weights as inputs: no seconds lost on data."""
    graph = model.graph
    large = [weight for weight in graph.initializer if prod(weight.dims) > LARGEST_SHAPE]
    declared = [helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims) for weight in large]
    small = [weight for weight in graph.initializer if prod(weight.dims) <= LARGEST_SHAPE]
    skeleton = helper.make_graph(graph.node, graph.name, [*graph.input, *declared], graph.output, small)
    shaped = helper.make_model(skeleton, opset_imports=model.opset_import, ir_version=model.ir_version)
    inferred = shape_inference.infer_shapes(shaped, data_prop=True).graph
    shapes = {weight.name: list(weight.dims) for weight in graph.initializer}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        shapes[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return shapes
