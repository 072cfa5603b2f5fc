"""Reductions whose axes only the run knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import InvalidInput
from .base import Attributes, host_op

Axes = tuple[int, ...]


def _log_sum_exp(x: np.ndarray, axes: Axes, keepdims: bool) -> np.ndarray:
    greatest = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    m = np.where(np.isinf(greatest), 0, greatest)
    total = np.log(np.sum(np.exp(x - m), axis=axes, keepdims=True)) + m
    return total if keepdims else np.squeeze(total, axes)


def _least(x: np.ndarray) -> Any:
    return False if x.dtype == bool else -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _greatest(x: np.ndarray) -> Any:
    return True if x.dtype == bool else np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


_KINDS: dict[str, Callable[[np.ndarray, Axes, bool], np.ndarray]] = {
    "ReduceSum": lambda x, axes, keep: np.sum(x, axis=axes, keepdims=keep),
    "ReduceMean": lambda x, axes, keep: np.mean(x, axis=axes, keepdims=keep),
    "ReduceProd": lambda x, axes, keep: np.prod(x, axis=axes, keepdims=keep),
    "ReduceMax": lambda x, axes, keep: np.max(x, axis=axes, keepdims=keep, initial=_least(x)),
    "ReduceMin": lambda x, axes, keep: np.min(x, axis=axes, keepdims=keep, initial=_greatest(x)),
    "ReduceL1": lambda x, axes, keep: np.sum(np.abs(x), axis=axes, keepdims=keep),
    "ReduceL2": lambda x, axes, keep: np.sqrt(np.sum(x * x, axis=axes, keepdims=keep)),
    "ReduceSumSquare": lambda x, axes, keep: np.sum(x * x, axis=axes, keepdims=keep),
    "ReduceLogSum": lambda x, axes, keep: np.log(np.sum(x, axis=axes, keepdims=keep)),
    "ReduceLogSumExp": _log_sum_exp,
}


@host_op("ReduceAtRuntime", "parax")
def reduce_at_runtime(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The reduction `kind` of inputs[0] along the axes inputs[1]; half precisions are combined in f32."""
    x, given = inputs
    axes = tuple(int(a) + x.ndim if a < 0 else int(a) for a in given)
    if len(set(axes)) != len(axes) or not all(0 <= a < x.ndim for a in axes):
        raise InvalidInput(f"{attributes['kind']}: bad axes", expected=f"distinct, in [{-x.ndim}, {x.ndim})",
                           found=[int(a) for a in given])
    wide = x.astype(np.float32) if x.dtype.kind not in "iub" and x.dtype.itemsize == 2 else x
    with np.errstate(all="ignore"):
        return [np.asarray(_KINDS[attributes["kind"]](wide, axes, bool(attributes.get("keepdims", 1)))).astype(x.dtype)]
