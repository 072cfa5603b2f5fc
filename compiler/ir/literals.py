"""Text of tensor contents and attribute values, both ways. Knows element types and attribute kinds only."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InvalidModel, ResourceLimit
from .types import F32, DType, TensorType, parse_type, split_top

INLINE_LIMIT = 16
"""Constants with more elements are printed by key, not by content."""
SEEDED_LIMIT = 1 << 28
"""The parser makes up no constant with more elements."""


def float_text(value: float, dtype: DType = F32) -> str:
    """The shortest text that reads back to the same number of this element type."""
    return str(np.float32(value)) if dtype.bits <= 32 else repr(float(value))


def element_text(value: Any, dtype: DType) -> str:
    """One element of a tensor."""
    if dtype.kind == "s":
        return json.dumps(value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value))
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "c":
        return repr(complex(value))
    return float_text(float(value), dtype) if dtype.is_float else str(int(value))


def array_text(array: np.ndarray) -> str:
    """All elements in row-major order: `[1, 2]`, or the bare element of a scalar."""
    dtype = DType.from_numpy(array.dtype)
    items = [element_text(v, dtype) for v in array.ravel()]
    return items[0] if array.ndim == 0 else "[" + ", ".join(items) + "]"


def parse_element(text: str, dtype: DType) -> Any:
    """The Python value of one element. Raises ValueError."""
    if dtype.kind == "s":
        value = json.loads(text)
        if not isinstance(value, str):
            raise ValueError(text)
        return value
    if dtype.kind == "b":
        return {"true": True, "false": False}[text]
    if dtype.kind == "c":
        return complex(text)
    if dtype.is_float:
        return float(text)
    if not dtype.holds(int(text)):  # numpy before 2 and ml_dtypes wrap around in silence
        raise ValueError(text)
    return int(text)


def parse_array(text: str, type_: TensorType) -> np.ndarray:
    """The array whose `array_text` is `text`. Raises InvalidModel if it does not fit the type."""
    items = split_top(text[1:-1]) if text.startswith("[") and text.endswith("]") else [text]
    try:
        values = [parse_element(item, type_.dtype) for item in items]
        array = np.empty(len(values), numpy_type(type_.dtype))
        array[...] = values
        return array.reshape(type_.static_shape)
    except (ValueError, KeyError, OverflowError):
        raise InvalidModel("malformed constant", expected=f"content of {type_}", found=text[:60]) from None


def numpy_type(dtype: DType) -> np.dtype[Any]:
    """The numpy type of an element type. Raises InvalidModel if neither numpy nor ml_dtypes has it."""
    if dtype.numpy is None:
        raise InvalidModel("no numpy type holds this element type", found=dtype, hint="install ml_dtypes")
    return dtype.numpy


def seeded_array(key: str, type_: TensorType) -> np.ndarray:
    """Random content that depends on key and type only: floats are normal / 4, integers in [0, 4)."""
    shape = type_.static_shape
    if math.prod(shape) > SEEDED_LIMIT:
        raise ResourceLimit("constant too large to make up", expected=f"at most {SEEDED_LIMIT} elements", found=type_)
    rng = np.random.default_rng(zlib.crc32(f"{key}:{type_.dtype}".encode()))
    dtype = type_.dtype
    if dtype.is_float or dtype.kind == "c":
        return (rng.standard_normal(shape) / 4).astype(numpy_type(dtype))
    if dtype.kind == "s":
        return np.array([f"s{i}" for i in rng.integers(0, 4, shape).ravel()], object).reshape(shape)
    return rng.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(numpy_type(dtype))


# Attributes


def attribute_text(kind: str, value: Any) -> str:
    """Text of a canonical attribute value."""
    if value is None:
        return "none"
    if kind in ("ints", "floats", "strs"):
        return "[" + ",".join(attribute_text(kind[:-1], item) for item in value) + "]"
    if kind == "tensor":
        return _tensor_text(value)
    if kind == "str":
        return json.dumps(value)
    return float_text(value) if kind == "float" else str(value)


def _tensor_text(array: np.ndarray) -> str:
    type_ = TensorType(DType.from_numpy(array.dtype), array.shape)
    if array.size <= INLINE_LIMIT or type_.dtype.kind == "s":
        return f"{type_} {array_text(array)}"
    return f'{type_} "{base64.b64encode(array.tobytes()).decode()}"'


def parse_attribute(kind: str, text: str) -> Any:
    """The value whose `attribute_text` is `text`. Raises InvalidModel."""
    if text == "none":
        return None
    try:
        if kind in ("ints", "floats", "strs"):
            return tuple(_SCALARS[kind[:-1]](item) for item in _list_items(text))
        return _parse_tensor(text) if kind == "tensor" else _SCALARS[kind](text)
    except (ValueError, KeyError):
        raise InvalidModel("malformed attribute", expected=kind, found=text[:60]) from None


def _list_items(text: str) -> Sequence[str]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError(text)
    inner = text[1:-1].strip()
    return split_top(inner) if '"' in inner else inner.split(",") if inner else []


def _parse_tensor(text: str) -> np.ndarray:
    match = re.match(r"([a-z0-9]+\[[0-9, ]*\]) +(.*)\Z", text, re.S)
    if not match:
        raise ValueError(text)
    type_ = parse_type(match[1])
    assert isinstance(type_, TensorType)
    if match[2].startswith('"') and type_.dtype.kind != "s":
        raw = base64.b64decode(match[2].strip('"'), validate=True)
        return np.frombuffer(raw, numpy_type(type_.dtype)).reshape(type_.static_shape)
    return parse_array(match[2], type_)


_SCALARS: dict[str, Any] = {"int": int, "float": float, "str": json.loads, "dtype": DType.from_name}
