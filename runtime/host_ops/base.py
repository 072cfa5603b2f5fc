"""The registry of operators that Python executes between native segments. Knows no plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...errors import InvalidInput

Attributes = Mapping[str, Any]
HostOp = Callable[[list[Any]], list[Any]]  # inputs (numpy arrays, None where omitted) → outputs

HOST_OPS: dict[tuple[str, str], Callable[[Attributes], HostOp]] = {}


def one_number(what: str, tensor: Any) -> Any:
    """The element of a tensor that holds one; raises InvalidInput for another count."""
    array = np.asarray(tensor)
    if array.size != 1:
        raise InvalidInput(f"{what} must be one number", expected="1 element", found=list(array.shape))
    return array.reshape(-1)[0]


def host_op(name: str, domain: str = "") -> Callable[[Callable[[Attributes, list[Any]], list[Any]]], Any]:
    """Register a function (attributes, inputs) → outputs under an ONNX operator's name.

    Attributes are JSON values under ONNX's names, absent ones take ONNX's defaults; strings are object arrays.
    """

    def register(function: Callable[[Attributes, list[Any]], list[Any]]) -> Any:
        HOST_OPS[domain, name] = lambda attributes: partial(function, attributes)
        return function

    return register


def prepared_host_op(name: str, domain: str = "") -> Callable[[Callable[[Attributes], HostOp]], Any]:
    """Register what makes a host operator of its attributes, once a plan, under an ONNX operator's name.

    An operator whose results share nothing with its inputs, nor with results of other calls, says so by an attribute
    `makes_new` that is true.
    """

    def register(prepare: Callable[[Attributes], HostOp]) -> Any:
        HOST_OPS[domain, name] = prepare
        return prepare

    return register
