"""Maps made of tensors, and tensors of maps, as ONNX Runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford
from .base import Attributes, host_op
from .texts import fixed_text, float_of_text, int_of_text

_ENTRY_NBYTES = 100  # of a dict: its slot, and the number that it holds
_PADS = {"TO_FLOAT": 0.0, "TO_INT64": 0, "TO_STRING": "0.f"}
_TYPES = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
_LEAST_I64 = -(1 << 63)


@host_op("ZipMap", "ai.onnx.ml")
def zip_map(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """A dict for each row, whose keys are in order."""
    scores = np.atleast_2d(inputs[0])
    labels = attributes.get("classlabels_strings") or attributes.get("classlabels_int64s") or []
    if scores.shape[1] != len(labels):
        raise InvalidInput("ZipMap: as many scores as classes are needed", expected=len(labels), found=scores.shape[1])
    afford(_ENTRY_NBYTES * scores.size, "ZipMap")
    order = sorted(range(len(labels)), key=lambda i: _in_bytes(labels[i]))
    keys = [labels[i] for i in order]
    rows = scores if order == list(range(len(keys))) else scores[:, order]
    return [[dict(zip(keys, row, strict=True)) for row in rows.tolist()]]


def _in_bytes(key: Any) -> Any:
    """Texts in the order of their UTF-8, as C++ has them."""
    return key.encode() if isinstance(key, str) else key


@host_op("CastMap", "ai.onnx.ml")
def cast_map(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Values in the order of their keys, or at the column that the key is; what is behind the columns is left out."""
    (given,) = inputs
    to = attributes.get("cast_to", "TO_FLOAT")
    entries = sorted(given.items())
    if attributes.get("map_form", "DENSE") == "DENSE":
        row = [_cast(value, to) for _, value in entries]
    else:
        if entries and entries[0][0] < 0:
            raise InvalidInput("CastMap: a key is no column", expected="0 or more", found=entries[0][0])
        row = [_PADS[to]] * int(attributes.get("max_map", 1))
        for key, value in entries:
            if key < len(row):
                row[key] = _cast(value, to)
    return [np.array(row, _TYPES[to]).reshape(1, len(row))]


def _cast(value: Any, to: str) -> Any:
    if to == "TO_STRING":
        return value if isinstance(value, str) else fixed_text(value)
    if isinstance(value, str):
        reading = float_of_text if to == "TO_FLOAT" else int_of_text
        return reading(value, np.dtype(_TYPES[to]))
    if to == "TO_FLOAT":
        return value
    fits = value == value and _LEAST_I64 <= value < -_LEAST_I64
    return int(value) if fits else _LEAST_I64  # as the instruction of x86-64 converts what does not fit


@host_op("EntriesOf", "parax")
def entries_of(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """[1, keys]: a map's value of every key, the default where it has none."""
    given, keys, default = inputs
    row = np.full((1, keys.size), default.item(), default.dtype)
    for i, key in enumerate(keys.tolist()):
        if key in given:
            row[0, i] = given[key]
    return [row]
