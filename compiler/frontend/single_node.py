"""A model of one ONNX node, for `onnx.backend`'s run_node. Knows protobuf only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

NEWEST_OPSET = 23


def model_of_node(node: NodeProto, inputs: Mapping[str, np.ndarray], opset: int = NEWEST_OPSET) -> ModelProto:
    """The node as a graph with inputs of the given arrays' shapes; its outputs' types are left to inference."""
    described = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], node.name or node.op_type, described, results)
    domain = "" if node.domain == "ai.onnx" else node.domain
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets)
