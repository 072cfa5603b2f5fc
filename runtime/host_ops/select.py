"""Operators that pick elements: how many depends on the values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford
from .base import Attributes, host_op, one_number


@host_op("Identity")
def identity(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The input; lets a plan bind symbols to the values of a tensor."""
    return [inputs[0]]


@host_op("Copy", "parax")
def copy(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Strings that an output shares with an input, a constant or another output, in an array of their own."""
    return [np.array(inputs[0])]


@host_op("NonZero")
def non_zero(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """i64[rank, n]: the index of every element that is not zero, in row-major order. A scalar counts as one axis."""
    afford(16 * max(1, inputs[0].ndim) * int(np.count_nonzero(inputs[0])), "NonZero")
    return [np.array(np.nonzero(np.atleast_1d(inputs[0])), dtype=np.int64)]


@host_op("Compress")
def compress(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The slices along `axis` (flat elements without one) whose condition is true, up to the condition's length."""
    data, condition = inputs
    axis = attributes.get("axis")
    length = data.size if axis is None else data.shape[axis]
    if condition.size > length:
        raise InvalidInput("Compress: condition too long", expected=f"at most {length}", found=condition.size)
    return [np.compress(condition, data, axis=axis)]


@host_op("TopK")
def top_k(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The k largest (or smallest) along `axis`, sorted, and their indices; equal values by lower index."""
    data, k_tensor = inputs
    axis = int(attributes.get("axis", -1))
    k, length = int(one_number("TopK: k", k_tensor)), data.shape[axis]
    if not 0 <= k <= length:
        raise InvalidInput("TopK: k out of range", expected=f"0 to {length}", found=k)
    if attributes.get("largest", 1):
        # a stable ascending sort of the reversed axis, read backwards, keeps lower indices first among equals
        order = np.flip(length - 1 - np.argsort(np.flip(data, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(data, axis, kind="stable")
    indices = np.take(order, np.arange(k), axis).astype(np.int64)
    return [np.take_along_axis(data, indices, axis), indices]


@host_op("Unique")
def unique(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The distinct elements (or slices along `axis`), first positions, inverse and counts, sorted or as first met."""
    data, axis = inputs[0], attributes.get("axis")
    if axis is None:
        data = data.reshape(-1)
    table = None
    if data.dtype == object and axis is not None:  # numpy compares slices of numbers only
        table, codes = np.unique(data, return_inverse=True)
        data = codes.reshape(data.shape)
    values, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    values = values if table is None else table[values]
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values, first, inverse, counts = np.take(values, order, axis or 0), first[order], rank[inverse], counts[order]
    return [values, *(part.astype(np.int64) for part in (first, inverse, counts))]


@host_op("ChosenBoxes", "parax")
def chosen_boxes(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """i64[n, 3]: (batch, class, box) of the first counts[batch, class] of every class's boxes, class after class."""
    picks, counts = inputs
    n = counts.reshape(-1)
    total = int(n[0]) if n.size == 1 else int(n.sum())
    afford(4 * 24 * total, "NonMaxSuppression")
    if n.size == 1:
        found = np.zeros((total, 3), np.int64)
        found[:, 2] = picks.reshape(-1)[:total]
        return [found]
    label = np.repeat(np.arange(n.size), n)
    found = np.empty((total, 3), np.int64)
    found[:, 0], found[:, 1] = np.divmod(label, max(1, counts.shape[1]))
    within = np.arange(total) - np.repeat(np.cumsum(n) - n, n)
    found[:, 2] = picks.reshape(-1)[label * picks.shape[2] + within]
    return [found]
