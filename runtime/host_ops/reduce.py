"""Reductions whose axes only the run knows."""

from __future__ import annotations

import math
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


def _sum(x: np.ndarray, axes: Axes, keepdims: bool) -> np.ndarray:
    """Integers wrap around in their own type, as in kernels; numpy would widen them."""
    return np.asarray(np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype))


def _mean(x: np.ndarray, axes: Axes, keepdims: bool) -> np.ndarray:
    """Sum by count; integers round towards zero, and the mean of none is 0."""
    total, n = _sum(x, axes, keepdims), math.prod(x.shape[a] for a in axes)
    if x.dtype.kind not in "iu":
        return np.asarray(total / x.dtype.type(n))
    count = x.dtype.type(max(1, n))
    whole = total // count
    return np.asarray(whole + ((whole < 0) & (whole * count != total)).astype(x.dtype))


def _through_float(function: Callable[[Any], Any], total: np.ndarray) -> np.ndarray:
    """A float function of sums: of integers it is computed in f64, cut, and kept in the type's range; NaN is 0."""
    if total.dtype.kind not in "iu":
        return np.asarray(function(total))
    y = np.nan_to_num(function(total.astype(np.float64)), posinf=np.inf, neginf=-np.inf)
    limits = np.iinfo(total.dtype)
    low, high = y <= float(limits.min), y >= float(limits.max)
    inside = np.where(low | high, 0, y).astype(total.dtype)
    return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(total.dtype)


KINDS: dict[str, Callable[[np.ndarray, Axes, bool], np.ndarray]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes, keep: np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype),
    "ReduceMax": lambda x, axes, keep: np.max(x, axis=axes, keepdims=keep, initial=_least(x)),
    "ReduceMin": lambda x, axes, keep: np.min(x, axis=axes, keepdims=keep, initial=_greatest(x)),
    "ReduceL1": lambda x, axes, keep: _sum(np.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _through_float(np.sqrt, _sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: _through_float(np.log, _sum(x, axes, keep)),
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
        return [np.asarray(KINDS[attributes["kind"]](wide, axes, bool(attributes.get("keepdims", 1)))).astype(x.dtype)]
