"""Attribute values of operators: their kinds, canonical Python values and hashable keys. Knows no operator."""

from __future__ import annotations

import math
import types as python_types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

import numpy as np

from ....errors import InvalidModel
from ..types import DType

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>"})()
"""The default of a required attribute."""

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Strs = tuple[str, ...]


@dataclass(frozen=True)
class AttrSpec:
    """One declared attribute. `kind`: int float str ints floats strs tensor dtype."""

    name: str
    kind: str
    default: Any

    @property
    def required(self) -> bool:
        return self.default is MISSING


def attribute_kind(hint: Any) -> str | None:
    """The kind that a type hint declares, None if it is not an attribute type."""
    if get_origin(hint) in (Union, python_types.UnionType):
        options = [a for a in get_args(hint) if a is not type(None)]
        hint = options[0] if len(options) == 1 else None
    scalar = {int: "int", float: "float", str: "str", DType: "dtype", np.ndarray: "tensor"}
    if get_origin(hint) in (tuple, list):
        return {int: "ints", float: "floats", str: "strs"}.get(get_args(hint)[0])
    if get_origin(hint) is np.ndarray:
        return "tensor"
    return scalar.get(hint)


def canonical(spec: AttrSpec, value: Any) -> Any:
    """The immutable form of an attribute value: lists become tuples, floats are rounded to f32 as ONNX stores them,
    and all NaNs are one.

    Raises InvalidModel if the value is not of the declared kind.
    """
    if value is None and not spec.required:
        return None
    convert = _CONVERT[spec.kind]
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        found = f"{type(value).__name__} {str(value)[:60]}"
        raise InvalidModel(f"attribute {spec.name} has the wrong type", expected=spec.kind, found=found) from None


def _int(value: Any) -> int:
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    raise TypeError


def _float(value: Any) -> float:
    if isinstance(value, (int, float, np.integer, np.floating)):
        with np.errstate(over="ignore"):
            return math.nan if math.isnan(value) else float(np.float32(value))
    raise TypeError


def _str(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        return value
    raise TypeError


def _sequence(value: Any) -> Any:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError
    return value


def _all_of(kind: type, items: Sequence[Any]) -> bool:
    """Whether all are of just this type, as in lists from a model: those of trees have millions of elements."""
    return set(map(type, items)) <= {kind}


def _ints(value: Any) -> Ints:
    items = tuple(_sequence(value))
    return items if _all_of(int, items) else tuple(map(_int, items))


def _floats(value: Any) -> Floats:
    items = list(_sequence(value))
    if not _all_of(float, items) and not all(isinstance(v, (int, float, np.integer, np.floating)) for v in items):
        raise TypeError
    array = np.asarray(items, np.float32)
    array[np.isnan(array)] = math.nan
    return tuple(array.tolist())


def _strs(value: Any) -> Strs:
    items = tuple(_sequence(value))
    return items if _all_of(str, items) else tuple(map(_str, items))


def _dtype(value: Any) -> DType:
    if isinstance(value, DType):
        return value
    return DType.from_name(value) if isinstance(value, str) else DType.from_code(_int(value))


def _tensor(value: Any) -> np.ndarray:
    array = np.array(value)
    DType.from_numpy(array.dtype)
    array.setflags(write=False)
    return array


_CONVERT = {
    "int": _int,
    "float": _float,
    "str": _str,
    "ints": _ints,
    "floats": _floats,
    "strs": _strs,
    "dtype": _dtype,
    "tensor": _tensor,
}


def attribute_key(kind: str, value: Any) -> Any:
    """A hashable stand-in for a canonical value; equal iff bit-equal (-0.0 and 0.0 differ, NaN equals itself)."""
    if value is None:
        return None
    if kind in ("float", "floats"):
        return np.asarray(value, np.float32).tobytes()
    if kind == "tensor":
        content = tuple(value.ravel().tolist()) if value.dtype.kind in "USO" else value.tobytes()
        return (value.dtype.str, value.shape, content)
    return value
