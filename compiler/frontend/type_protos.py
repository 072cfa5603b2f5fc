"""Types as ONNX writes them: as messages, and as text in the definitions of operators. Knows nothing of models."""

from __future__ import annotations

from onnx import TensorProto, TensorShapeProto, TypeProto

from ..ir.graph import Value
from ..ir.types import OptionalType, SequenceType, TensorType, Type


def type_proto(value: Value | Type | None) -> TypeProto:
    """ONNX's form of a type; empty for an omitted operand. Symbolic dimensions keep their text."""
    proto = TypeProto()
    type_ = value.type if isinstance(value, Value) else value
    if isinstance(type_, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(type_.elem))
    elif isinstance(type_, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(type_.elem))
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
    return f"tensor({TensorProto.DataType.Name(type_.dtype.code).lower()})"
