"""Types as ONNX writes them: as messages, and as text in the definitions of operators. Knows nothing of models."""

from __future__ import annotations

from onnx import TensorProto, TensorShapeProto, TypeProto

from ..ir.graph import Value
from ..ir.types import MapType, OptionalType, SequenceType, TensorType, Type


def type_proto(value: Value | Type | None) -> TypeProto:
    """ONNX's form of a type; empty for an omitted operand. Symbolic dimensions keep their text."""
    proto = TypeProto()
    type_ = value.type if isinstance(value, Value) else value
    if isinstance(type_, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(type_.elem))
    elif isinstance(type_, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(type_.elem))
    elif isinstance(type_, MapType):
        proto.map_type.key_type = type_.key.code
        proto.map_type.value_type.tensor_type.elem_type = type_.value.code
    elif isinstance(type_, TensorType):
        proto.tensor_type.elem_type = type_.dtype.code
        if type_.shape is not None:
            shape = TensorShapeProto()
            for dim in type_.shape:
                entry = shape.dim.add()
                if isinstance(dim, int):
                    entry.dim_value = dim
                else:
                    entry.dim_param = str(dim)
            proto.tensor_type.shape.CopyFrom(shape)
    return proto


def type_text(type_: Type) -> str:
    """How onnx.defs spells a type, without its shape: `tensor(float)`, `seq(tensor(int64))`."""
    if isinstance(type_, SequenceType):
        return f"seq({type_text(type_.elem)})"
    if isinstance(type_, OptionalType):
        return f"optional({type_text(type_.elem)})"
    if isinstance(type_, MapType):
        key, value = (TensorProto.DataType.Name(dtype.code).lower() for dtype in (type_.key, type_.value))
        return f"map({key},tensor({value}))"
    return f"tensor({TensorProto.DataType.Name(type_.dtype.code).lower()})"


def proto_text(proto: TypeProto) -> str:
    """A declared type likewise, whatever it is; `unknown` where the model does not say."""
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({proto_text(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({proto_text(proto.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({_dtype_text(proto.map_type.key_type)},{proto_text(proto.map_type.value_type)})"
    return f"tensor({_dtype_text(proto.tensor_type.elem_type)})" if kind == "tensor_type" else "unknown"


def _dtype_text(code: int) -> str:
    known = code in TensorProto.DataType.values()
    return TensorProto.DataType.Name(code).lower() if known else f"type {code}"
