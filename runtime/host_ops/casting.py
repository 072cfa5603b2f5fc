"""Cast and Equal of strings, and numbers written as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import numpy_dtype
from .base import Attributes, host_op
from .texts import float_of_text, float_text, int_of_text

_SATURATED = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
_MOST = {"f8e4m3fn": 448.0, "f8e4m3fnuz": 240.0, "f8e5m2": 57344.0, "f8e5m2fnuz": 57344.0}


@host_op("Cast")
def cast(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Numbers as texts, or texts as numbers."""
    (x,) = inputs
    to = str(attributes["to"])
    y = np.empty(x.size, numpy_dtype(to))
    if to != "str":
        y[:] = _numbers(x.ravel().tolist(), to, bool(attributes.get("saturate", 1)))
    elif x.dtype == object:
        return [x]
    else:
        y[:] = _texts(x.ravel())
    return [y.reshape(x.shape)]


def _texts(x: np.ndarray) -> list[str]:
    if x.dtype.kind in "biu" or x.dtype.name.startswith(("int", "uint")):
        return [str(int(number)) for number in x.tolist()]
    with np.errstate(over="ignore"):
        return [float_text(number) for number in x.astype(np.float64).tolist()]


def _numbers(texts: list[str], to: str, saturate: bool) -> Any:
    wanted = numpy_dtype(to)
    if to == "bool":
        return [int_of_text(text, np.dtype(np.int64)) != 0 for text in texts]
    if to[0] in "iu":
        return np.array([int_of_text(text, wanted) for text in texts], np.int64 if to != "u64" else np.uint64)
    if to in _SATURATED:
        found = np.array([float_of_text(text, np.dtype(np.float32)) for text in texts], np.float32)
        return (np.clip(found, -_MOST[to], _MOST[to]) if saturate else found).astype(wanted)
    return [float_of_text(text, wanted) for text in texts]


@host_op("Equal")
def equal(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Whether two texts are the same."""
    a, b = inputs
    return [np.asarray(a == b, bool)]
