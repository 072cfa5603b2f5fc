"""How coarsely a model computes, which says how near two implementations of it can be. Reads the ONNX graph only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TensorProto, helper

from .bodies import bodies
from .limits import Limits
from .parse import Source, read_model

_NARROW = [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2]  # finest first
_FLOATS = [TensorProto.DOUBLE, TensorProto.FLOAT, *_NARROW]
_CONVERTS = {"Cast", "CastLike", "DequantizeLinear"}
_ROUNDS = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul",
           "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearReduceMean", "QLinearAveragePool",
           "QLinearGlobalAveragePool", "QLinearWhere", "QLinearConcat", "QGemm"}  # fmt: skip
_MOVES = {
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Relu", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip


@dataclass(frozen=True)
class Precision:
    """What a model's results may suffer from.

    Attributes:
        coarsest: the numpy name of the coarsest float type that something is computed in, "" if nothing is.
        rounded: outputs that are integers rounded from floats (quantised), moved about at most.
    """

    coarsest: str
    rounded: frozenset[str]


def precision(source: Source) -> Precision:
    """The precision of a model.

    Raises:
        ParaxError: see `parse.read_model`.
    """
    graph = read_model(source, Limits()).model.graph
    used = {kind for each in (graph, *bodies(graph.node)) for kind in _computed_in(each)}
    order = [kind for kind in _FLOATS if kind in used]
    coarsest = str(helper.tensor_dtype_to_np_dtype(order[-1])) if order else ""
    makers = {name: node for node in graph.node for name in node.output}
    return Precision(coarsest, frozenset(v.name for v in graph.output if _is_rounded(v.name, makers)))


def _computed_in(graph: GraphProto) -> Iterator[int]:
    """The float types of inputs, constants and conversions that a node reads which does more than convert them."""
    kinds: dict[str, int] = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    kinds.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                kinds[node.output[0]] = attribute.i
            elif node.op_type == "Constant" and attribute.name == "value":
                kinds[node.output[0]] = attribute.t.data_type
        if node.op_type not in _CONVERTS:
            yield from (kinds[name] for name in node.input if kinds.get(name) in _FLOATS)


def _is_rounded(name: str, makers: dict[str, NodeProto]) -> bool:
    seen = set()
    while name in makers and name not in seen:
        seen.add(name)
        node = makers[name]
        if node.op_type in _ROUNDS:
            return True
        if node.op_type not in _MOVES:
            return False
        name = node.input[0]
    return False
