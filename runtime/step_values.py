"""Values on their way between steps: of the type and shape that later steps were compiled for. Knows no steps."""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Any

import numpy as np

from ..errors import InternalError, InvalidInput
from .bindings import Signature
from .dims import evaluate, symbols_of
from .manifest import TensorSpec
from .tensors import is_fit

Values = dict[str, int]


def entering(signature: Signature, spec: TensorSpec | None, name: str, value: Any, values: Values) -> Any:
    """A block's input of the shape that the block was compiled for.

    Raises:
        InvalidInput: it has another shape, and more than one element.
    """
    if spec is None or spec.dims is None or not isinstance(value, np.ndarray):
        return value
    expected = signature.shape(spec.dims, values)
    if value.shape != expected:
        if value.size != 1 or any(length != 1 for length in expected):
            raise InvalidInput("a body was given another shape than it was compiled for", where=name,
                               expected=expected, found=value.shape)  # fmt: skip
        value = value.reshape(expected)
    return value if is_fit(value) else np.require(value, requirements=["C", "A"])


def fitted(signature: Signature, spec: TensorSpec | None, op: str, result: Any, values: Values) -> Any:
    """A host result of the type and shape that later steps were compiled for.

    Raises:
        InvalidInput: it has another shape.
    """
    if spec is None or not spec.is_tensor or result is None:
        return result
    array = np.asarray(result, dtype=spec.numpy)
    if spec.dims is not None:
        expected = signature.shape(spec.dims, values)
        if array.shape != expected:
            raise InvalidInput(f"{op} gave another shape than the model allows", expected=expected, found=array.shape)
    return array if is_fit(array) else np.require(array, requirements=["C", "A"])


def empty_scan(spec: TensorSpec | None, values: Values, bound: Collection[str]) -> np.ndarray | None:
    """A scan output of no iterations; lengths that only an iteration could tell are 0. None for what is no tensor.

    `bound`: the symbols that count: others may have a value of an earlier run of the same loop.
    """
    if spec is None or not spec.is_tensor:
        return None
    dims = spec.dims or (0,)
    known = [symbols_of(dim) <= set(bound) for dim in dims]
    shape = [evaluate(dim, values) if there else 0 for dim, there in zip(dims, known, strict=True)]
    return np.zeros(shape if 0 in shape else [0, *shape[1:]], spec.numpy)


def short(op: str, results: Sized, expected: int) -> InternalError:
    """The error of an operator that gives too few results."""
    return InternalError(f"{op} gave {len(results)} results", expected=expected)


def size_of(result: Any, axis: int | None, element: int | None, op: str) -> int:
    """The value of a symbol that is read off a result: the length of an axis, or an integer in it."""
    array = np.asarray(result)
    if axis is not None and axis < array.ndim:
        return array.shape[axis]
    if element is not None and element < array.size and array.dtype.kind in "iub":
        return int(array.reshape(-1)[element])
    raise InternalError(f"no dimension can be read off the result of {op}", found=f"{array.dtype} {array.shape}")
