"""Maps made of tensors, and tensors of maps, as ONNX Runtime has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford
from .base import Attributes, host_op, prepared_host_op
from .texts import fixed_text, float_of_text, int_of_text

_ENTRY_NBYTES = 100  # of a dict: its slot, and the number that it holds
_PADS = {"TO_FLOAT": 0.0, "TO_INT64": 0, "TO_STRING": "0.f"}
_TYPES = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
_MOST_WRITTEN_KEYS = 64
_LEAST_I64 = -(1 << 63)


@prepared_host_op("ZipMap", "ai.onnx.ml")
class _ZipMap:
    """A dict for each row, whose keys are in order."""

    makes_new = True

    def __init__(self, attributes: Attributes) -> None:
        labels = attributes.get("classlabels_strings") or attributes.get("classlabels_int64s") or []
        order = sorted(range(len(labels)), key=lambda i: _in_bytes(labels[i]))
        self._order = None if order == list(range(len(labels))) else order
        self._n_keys = len(labels)
        self._dicts = _dicts_of([labels[i] for i in order])

    def __call__(self, inputs: list[Any]) -> list[Any]:
        scores = inputs[0]
        if scores.ndim < 2:
            scores = np.atleast_2d(scores)
        if scores.shape[1] != self._n_keys:
            raise InvalidInput("ZipMap: as many scores as classes are needed", expected=self._n_keys,
                               found=scores.shape[1])  # fmt: skip
        afford(_ENTRY_NBYTES * scores.size, "ZipMap")
        return [self._dicts((scores if self._order is None else scores[:, self._order]).tolist())]


def _dicts_of(keys: list[Any]) -> Callable[[list[list[Any]]], list[dict[Any, Any]]]:
    """What makes dicts of rows, as long as the keys are many.

    A dict that is written out takes a third of the time of `dict(zip(keys, row))`.
    """
    if len(keys) > _MOST_WRITTEN_KEYS:
        return lambda rows: [dict(zip(keys, row, strict=True)) for row in rows]
    names = [f"k{i}" for i in range(len(keys))]
    row = "(" + "".join(f"v{name}, " for name in names) + ")"
    entries = ", ".join(f"{name}: v{name}" for name in names)
    made: dict[str, Any] = dict(zip(names, keys, strict=True))
    exec(f"def dicts(rows): return [{{{entries}}} for {row} in rows]", made)  # our own text: no key stands in it
    found: Callable[[list[list[Any]]], list[dict[Any, Any]]] = made["dicts"]
    return found


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
