"""What is in an ONNX file, without compiling it: operators and how often, parameters, inputs.

Reads the protobuf; builds no graph, and does not know what parax supports.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from .bodies import bodies, with_inner_nodes
from .limits import Limits
from .parse import normal_domain, read_model
from .type_protos import proto_text

_ODD_BITS: dict[int, int] = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.STRING: 0}
Signature = tuple[str, str, tuple[int | str, ...] | None]


@dataclass(frozen=True)
class Survey:
    """The contents of a model file.

    Attributes:
        inputs, outputs: (name, element type, shape); "?" is an unnamed unknown size, a None shape an unknown rank.
        operators: (domain, name) → uses, in the graph, its nested graphs and the functions it calls, each once.
        n_parameters, parameter_nbytes: over all initialisers.
    """

    name: str
    producer: str
    ir_version: int
    opsets: dict[str, int]
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    operators: dict[tuple[str, str], int]
    n_parameters: int
    parameter_nbytes: int


def survey(path: Path) -> Survey:
    """Survey a file (external data is not read).

    Raises:
        UsageError, InvalidModel, UnsupportedOp, ResourceLimit: see `parse.read_model`.
    """
    return survey_model(read_model(path, Limits()).model)


def survey_model(model: ModelProto) -> Survey:
    """Survey a model in memory."""
    graphs = [model.graph, *bodies(model.graph.node)]
    functions = {(f.domain, f.name): f for f in model.functions}
    nodes = [node for owner in (model.graph, *model.functions) for node in with_inner_nodes(owner.node)]
    used = Counter((normal_domain(node.domain), node.op_type) for node in nodes)
    operators = {key: uses for key, uses in used.most_common() if key not in functions}
    constants = [tensor for graph in graphs for tensor in graph.initializer]
    names = {tensor.name for tensor in model.graph.initializer}
    return Survey(
        name=model.graph.name,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opsets={normal_domain(opset.domain): opset.version for opset in model.opset_import},
        inputs=tuple(_signature(value) for value in model.graph.input if value.name not in names),
        outputs=tuple(_signature(value) for value in model.graph.output),
        operators=operators,
        n_parameters=sum(prod(tensor.dims) for tensor in constants),
        parameter_nbytes=sum(_nbytes(tensor) for tensor in constants),
    )


def _signature(value: ValueInfoProto) -> Signature:
    if value.type.WhichOneof("value") != "tensor_type":
        return value.name, proto_text(value.type), None
    tensor = value.type.tensor_type
    dtype = TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return value.name, dtype, None
    dims = tensor.shape.dim
    return value.name, dtype, tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims)


def _nbytes(tensor: TensorProto) -> int:
    bits = _ODD_BITS.get(tensor.data_type)
    if bits is None:
        bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return prod(tensor.dims) * bits // 8
