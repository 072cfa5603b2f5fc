"""AttributeProto to Python values, with the checks that field and declared type agree. Knows no operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto

from ...errors import InvalidModel
from .parse import require_text
from .tensors import TensorReader

_FIELD: dict[int, str] = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_TYPE = {field: kind for kind, field in _FIELD.items()}
_MESSAGES = frozenset({"t", "g", "sparse_tensor", "tp"})
Attributes = dict[str, Any]
"""Name → int, float, str, list of these, ndarray (tensor), GraphProto, TypeProto, or lists of the latter."""


def attribute_type(attribute: AttributeProto, where: str) -> int:
    """The AttributeType; files of ir_version 1 leave it out, then the only field that is set tells.

    Raises InvalidModel if another field than that of the declared type is set.
    """
    present = [field.name for field, _ in attribute.ListFields() if field.name in _TYPE]
    kind = attribute.type
    if kind == AttributeProto.UNDEFINED:
        if len(present) != 1:
            raise InvalidModel(f"attribute {attribute.name} has no type", where=where, found=", ".join(present) or None)
        return _TYPE[present[0]]
    if kind not in _FIELD:
        raise InvalidModel(f"attribute {attribute.name} has an unknown type", where=where, found=kind)
    field = _FIELD[kind]
    if any(name != field for name in present) or (field in _MESSAGES and not present):
        expected, found = f"the field {field!r}", ", ".join(present) or "nothing"
        message = f"attribute {attribute.name}: value and type disagree"
        raise InvalidModel(message, where=where, expected=expected, found=found)
    return kind


def read_attributes(
    protos: Iterable[AttributeProto], bound: Mapping[str, AttributeProto] | None, where: str
) -> dict[str, AttributeProto]:
    """Name → attribute with references to the enclosing function's attributes (`bound`) resolved; values unread.

    A reference to an attribute that the caller left out removes the attribute. Raises InvalidModel for attributes
    without a name, given twice, or referring to something outside of a function.
    """
    out: dict[str, AttributeProto] = {}
    for proto in protos:
        require_text(where, proto.name, proto.ref_attr_name)
        if not proto.name:
            raise InvalidModel("an attribute has no name", where=where)
        if proto.name in out:
            raise InvalidModel(f"attribute {proto.name} is given twice", where=where)
        if proto.ref_attr_name:
            if bound is None:
                raise InvalidModel(f"attribute {proto.name} refers to one of a function, but is outside", where=where)
            target = bound.get(proto.ref_attr_name)
            if target is None:
                continue
            renamed = AttributeProto()
            renamed.CopyFrom(target)
            renamed.name = proto.name
            proto = renamed
        out[proto.name] = proto
    return out


def attribute_value(proto: AttributeProto, tensors: TensorReader, where: str) -> Any:
    """The value as Python sees it, see `Attributes`. Raises InvalidModel if it is malformed."""
    kind = attribute_type(proto, where)
    read = _READ.get(kind)
    if read is not None:
        return read(proto, tensors, f"{where} attribute {proto.name}")
    value = getattr(proto, _FIELD[kind])
    return value if kind in (AttributeProto.GRAPH, AttributeProto.TYPE_PROTO) else list(value)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_READ: dict[int, Callable[[AttributeProto, TensorReader, str], Any]] = {
    AttributeProto.FLOAT: lambda a, t, w: a.f,
    AttributeProto.INT: lambda a, t, w: a.i,
    AttributeProto.STRING: lambda a, t, w: _text(a.s),
    AttributeProto.FLOATS: lambda a, t, w: list(a.floats),
    AttributeProto.INTS: lambda a, t, w: list(a.ints),
    AttributeProto.STRINGS: lambda a, t, w: [_text(s) for s in a.strings],
    AttributeProto.TENSOR: lambda a, t, w: t.read(a.t, w),
    AttributeProto.SPARSE_TENSOR: lambda a, t, w: t.read_sparse(a.sparse_tensor, w),
    AttributeProto.TENSORS: lambda a, t, w: [t.read(x, w) for x in a.tensors],
}


def constant_value(attributes: Mapping[str, Any], where: str) -> np.ndarray:
    """The array of a Constant node. Raises InvalidModel unless exactly one value is given."""
    if len(attributes) != 1:
        found = ", ".join(sorted(attributes)) or "none"
        raise InvalidModel("Constant needs exactly one value", where=where, found=found)
    ((name, value),) = attributes.items()
    if name in ("value", "sparse_value") and isinstance(value, np.ndarray):
        return value
    expected, dtype = _CONSTANT.get(name, (None, None))
    if expected is None:
        raise InvalidModel(f"unknown attribute {name}", where=where, expected=", ".join(_CONSTANT))
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) != name.endswith("s") or not all(type(item) is expected for item in items):
        raise InvalidModel(f"attribute {name} has the wrong type", where=where, expected=expected.__name__)
    array = np.empty(len(items), dtype)
    array[:] = items
    return array if isinstance(value, list) else array.reshape(())


_CONSTANT: dict[str, tuple[type | None, Any]] = {
    "value_float": (float, np.float32),
    "value_floats": (float, np.float32),
    "value_int": (int, np.int64),
    "value_ints": (int, np.int64),
    "value_string": (str, object),
    "value_strings": (str, object),
}
