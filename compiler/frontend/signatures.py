"""Types of graph inputs and outputs: TypeProto to IR types, and the names of symbolic dimensions.

Knows nothing of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onnx import TensorProto, TensorShapeProto, TypeProto

from ...errors import InvalidModel, ResourceLimit, UnsupportedOp, UsageError
from ..ir.types import Dim, DType, MapType, OptionalType, SequenceType, TensorType, Type, in_sequence, symbol
from .limits import EMPTY_NBYTES, Limits
from .parse import require_text

_RESERVED = frozenset({"floor", "mod", "max", "min"})
_NESTING = 8
"""Sequences of optionals of sequences … deeper than this are refused."""


class Symbols:
    """The symbols of one model: ONNX's names made into identifiers, fresh names for unnamed dimensions, fixed sizes."""

    def __init__(self, dims: Mapping[str, int] | None = None) -> None:
        """`dims`: sizes by ONNX's name or by ours."""
        self._dims = dict(dims or {})
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._used: set[str] = set()

    def named(self, text: str) -> Dim:
        """The dimension that ONNX calls `text`: always the same one."""
        if text not in self._names:
            self._names[text] = self._free(identifier(text))
        return self._dim(text, self._names[text])

    def fresh(self, hint: str) -> Dim:
        """A new dimension named after `hint`."""
        name = self._free(identifier(hint))
        return self._dim(name, name)

    def found(self, hint: str) -> Dim:
        """A new dimension named after `hint` that only a run finds (`dim.is_found`)."""
        return symbol(f"{self._free(identifier(hint))}.carried")

    def check_all_used(self) -> None:
        """Raises UsageError if a size was given for a symbol that the model does not have."""
        unknown = sorted(set(self._dims) - self._used)
        if unknown:
            expected = ", ".join(sorted(self._taken)) or "none: all dimensions are fixed"
            raise UsageError("the model has no such symbolic dimension", found=", ".join(unknown), expected=expected)

    def _dim(self, text: str, name: str) -> Dim:
        for key in (text, name):
            if key in self._dims:
                self._used.add(key)
                return self._dims[key]
        return symbol(name)

    def _free(self, name: str) -> str:
        candidate, suffix = name, 1
        while candidate in self._taken:
            candidate, suffix = f"{name}_{suffix}", suffix + 1
        self._taken.add(candidate)
        return candidate


def identifier(text: str) -> str:
    """`text` as the name of a symbol: letters, digits and underscores, starting with no digit."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text[:60]).strip("_") or "d"
    name = f"d{name}" if name[0].isdigit() else name
    return f"{name}_" if name in _RESERVED else name


def read_type(proto: TypeProto, name: str, symbols: Symbols, limits: Limits, depth: int = 0) -> Type:
    """The IR type of a graph input called `name`; unnamed dimensions become `name_axis`.

    Raises:
        InvalidModel: no type, an invalid element type, or a negative dimension.
        UnsupportedOp: maps of other things than numbers and strings, sparse tensors.
        ResourceLimit: too many axes or elements.
    """
    where = f"input {name!r}"
    kind = proto.WhichOneof("value")
    if kind is None or depth > _NESTING:
        raise InvalidModel("no type" if kind is None else "types are nested too deeply", where=where)
    if kind == "sequence_type":
        return SequenceType(_element_type(proto.sequence_type.elem_type, name, limits, depth + 1))
    if kind == "optional_type":
        return OptionalType(_element_type(proto.optional_type.elem_type, name, limits, depth + 1))
    if kind == "map_type":
        return _map_type(proto.map_type, where)
    if kind != "tensor_type":
        raise UnsupportedOp(f"{kind.replace('_', ' ')}s are not supported", where=where)
    tensor = proto.tensor_type
    if tensor.elem_type == TensorProto.UNDEFINED:
        raise InvalidModel("no element type", where=where)
    dtype = DType.from_code(tensor.elem_type)
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    type_ = TensorType(dtype, read_shape(tensor.shape, name, symbols))
    check_size(type_, limits, where)
    return type_


def _element_type(proto: TypeProto, name: str, limits: Limits, depth: int) -> Type:
    """Of what is in a sequence or an optional, whose open sizes are no symbols of the model."""
    return in_sequence(read_type(proto, name, Symbols(), limits, depth))


def _map_type(proto: TypeProto.Map, where: str) -> MapType:
    value = proto.value_type
    if value.WhichOneof("value") != "tensor_type" or value.tensor_type.shape.dim:
        raise UnsupportedOp("maps of other things than numbers and strings are not supported", where=where)
    if TensorProto.UNDEFINED in (proto.key_type, value.tensor_type.elem_type):
        raise InvalidModel("no element type", where=where)
    return MapType(DType.from_code(proto.key_type), DType.from_code(value.tensor_type.elem_type))


def read_shape(shape: TensorShapeProto, name: str, symbols: Symbols) -> tuple[Dim, ...]:
    """The dims of a declared shape. -1 stands for an unknown size, as many exporters have it."""
    dims: list[Dim] = []
    for axis, dim in enumerate(shape.dim):
        require_text(name, dim.dim_param)
        if dim.dim_param:
            dims.append(symbols.named(dim.dim_param))
        elif not dim.HasField("dim_value") or dim.dim_value == -1:
            dims.append(symbols.fresh(f"{name}_{axis}"))
        elif dim.dim_value < 0:
            raise InvalidModel("negative dimension", where=f"input {name!r}", found=dim.dim_value)
        else:
            dims.append(dim.dim_value)
    return tuple(dims)


def override_shape(type_: Type, shape: Sequence[int | str], name: str, symbols: Symbols, limits: Limits) -> TensorType:
    """The tensor type with the shape that the user gave. Raises UsageError if that cannot be."""
    where = f"shape of {name}"
    if not isinstance(type_, TensorType):
        raise UsageError("the input is no tensor", where=where, found=type_)
    if type_.shape is not None and len(shape) != len(type_.shape):
        raise UsageError("wrong number of axes", where=where, expected=type_, found=list(shape))
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise UsageError("negative size", where=where, found=list(shape))
    result = TensorType(type_.dtype, tuple(symbols.named(d) if isinstance(d, str) else d for d in shape))
    check_size(result, limits, where)
    return result


def check_size(type_: Type, limits: Limits, where: str) -> None:
    """Raises ResourceLimit if a tensor of known shape is larger than the limits allow."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return
    if len(type_.shape) > limits.rank:
        raise ResourceLimit("too many axes", where=where, expected=f"at most {limits.rank}", found=len(type_.shape))
    nbytes = type_.dtype.nbytes
    empty = False
    for dim in type_.shape:
        if isinstance(dim, int):
            empty |= dim == 0
            nbytes *= max(dim, 1)
    most = EMPTY_NBYTES if empty else limits.tensor_nbytes
    if nbytes > most:
        expected = f"at most {most} bytes"
        raise ResourceLimit("a tensor is too large", where=where, expected=expected, found=f"{type_} = {nbytes} bytes")
