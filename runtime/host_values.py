"""Values of a plan that are no tensors: sequences, optionals and maps, which are Python objects as ONNX Runtime's are.

A sequence is a list, an optional its element or None, a map a dict, and a tensor in any of them an array. They never
lie in an arena: a request holds them by reference, and host operators alone read and make them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import CorruptPlan, InvalidInput
from .dtypes import NAMES, numpy_dtype
from .memory import owner_of

MAX_DEPTH = 16
_DICT_ENTRY_NBYTES = 100  # of a dict: its slot, and a small number or text


class ElementTensor(NamedTuple):
    """A tensor in a sequence or an optional; `dims` as text, None where its rank is open."""

    dtype: str
    dims: tuple[str, ...] | None


class Sequence(NamedTuple):
    """A list of values of one type."""

    elem: HostType


class Optional(NamedTuple):
    """A value, or None."""

    elem: HostType


class Map(NamedTuple):
    """A dict from numbers or texts to numbers or texts; element types by name."""

    key: str
    value: str


HostType = ElementTensor | Sequence | Optional | Map


def is_tensor(dtype: str) -> bool:
    """Whether what a manifest has as a value's type is an element type, so that the value is a tensor."""
    return "(" not in dtype


@cache
def host_type(text: str) -> HostType:
    """The type that a plan spells `text`: `seq(map(i64,f32))`, `opt(f32[*])`.

    Raises:
        CorruptPlan: no type, or one that is nested too deeply.
    """
    return _parsed(text, 0)


def _parsed(text: str, depth: int) -> HostType:
    kind, inner = text[:4], text[4:-1]
    if depth > MAX_DEPTH or not text.endswith((")", "]")):
        raise CorruptPlan("malformed type of a value", expected="e.g. seq(map(i64,f32))", found=text[:80])
    if kind in ("seq(", "opt("):
        return (Sequence if kind == "seq(" else Optional)(_parsed(inner, depth + 1))
    if kind == "map(":
        key, _, value = inner.partition(",")
        if key in NAMES and value in NAMES:
            return Map(key, value)
    dtype, bracket, dims = text[:-1].partition("[")
    if dtype not in NAMES or not bracket:
        raise CorruptPlan("malformed type of a value", expected="e.g. seq(map(i64,f32))", found=text[:80])
    return ElementTensor(dtype, None if dims == "*" else tuple(dims.split(",")) if dims else ())


def taken(value: Any, type_: HostType, where: str) -> Any:
    """What a caller gives for an input, checked, with arrays that are fit for native code.

    Raises:
        InvalidInput: a value of another type.
    """
    if isinstance(type_, Optional):
        return None if value is None else taken(value, type_.elem, where)
    if isinstance(type_, Sequence):
        if not isinstance(value, (list, tuple)):
            raise _wrong(where, "a list", value)
        return [taken(item, type_.elem, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(type_, Map):
        if not isinstance(value, Mapping):
            raise _wrong(where, f"a dict of {type_.key} to {type_.value}", value)
        return {_scalar(k, type_.key, where, "key"): _scalar(v, type_.value, where, "value") for k, v in value.items()}
    return _tensor(value, type_, where)


def _wrong(where: str, expected: str, found: Any) -> InvalidInput:
    return InvalidInput("a value of another type", where=where, expected=expected, found=type(found).__name__)


def _scalar(value: Any, dtype: str, where: str, side: str) -> Any:
    """A map's key or value as a Python object."""
    if dtype == "str":
        if not isinstance(value, str):
            raise _wrong(f"{where}, a {side}", "a text", value)
        return str(value)
    wanted = numpy_dtype(dtype)
    kinds = "biu" if wanted.kind in "iu" else "biuf"
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in kinds:
        raise _wrong(f"{where}, a {side}", f"a number of type {dtype}", value)
    with np.errstate(over="ignore"):
        number = array.astype(wanted)
    if wanted.kind in "iu" and number != array:
        raise InvalidInput("a number is out of range", where=f"{where}, a {side}", expected=dtype, found=array)
    return number.item()


def _tensor(value: Any, type_: ElementTensor, where: str) -> np.ndarray:
    wanted = numpy_dtype(type_.dtype)
    try:
        array = np.asarray(value)
    except Exception as error:  # a caller's own object may raise anything
        raise _wrong(where, f"a tensor of {type_.dtype}", value) from error
    texts = type_.dtype == "str" and array.dtype.kind in "UST"
    if array.dtype.newbyteorder("=") != wanted and not texts:
        raise InvalidInput("wrong element type", where=where, expected=wanted, found=array.dtype)
    if type_.dims is not None and not _fits(array.shape, type_.dims):
        raise InvalidInput("wrong shape", where=where, expected=f"[{','.join(type_.dims)}]", found=list(array.shape))
    return np.require(array.astype(wanted, copy=False), requirements=["C", "A"])


def _fits(shape: tuple[int, ...], dims: tuple[str, ...]) -> bool:
    """Whether a shape has the rank, and the lengths that are numbers."""
    pairs = zip(shape, dims, strict=False)
    return len(shape) == len(dims) and all(not dim.isdigit() or int(dim) == n for n, dim in pairs)


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """The arrays that a value is, or has in it."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from arrays_in(item)


def objects_in(value: Any) -> Iterator[int]:
    """What tells the memory of arrays and the dicts in a value from others."""
    if isinstance(value, np.ndarray):
        yield id(owner_of(value))
    elif isinstance(value, dict):
        yield id(value)
    elif isinstance(value, list):
        for item in value:
            yield from objects_in(item)


def nbytes_of_maps(value: Any) -> int:
    """About the bytes of the dicts in a value."""
    if isinstance(value, list):
        return sum(map(nbytes_of_maps, value))
    return _DICT_ENTRY_NBYTES * len(value) if isinstance(value, dict) else 0


def owned(value: Any, held: set[int]) -> Any:
    """The same for a caller to keep: shared with nothing in `held`, see `objects_in`, to which it is added."""
    if isinstance(value, list):
        return [owned(item, held) for item in value]
    if isinstance(value, np.ndarray):
        value = value if value.flags.writeable and id(owner_of(value)) not in held else value.copy()
    elif isinstance(value, dict) and id(value) in held:
        value = value.copy()
    held.update(objects_in(value))
    return value
