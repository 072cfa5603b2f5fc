"""Data movement on tensors that native code does not hold: strings. One numpy expression per operator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...errors import InvalidInput
from .base import HOST_OPS, Attributes, HostOp, host_op
from .shaping import KINDS


def _shaped(kind: str, attributes: Attributes) -> HostOp:
    return partial(_run_shaped, kind, attributes)


def _run_shaped(kind: str, attributes: Attributes, inputs: list[Any]) -> list[Any]:
    result = KINDS[kind](attributes, *inputs)
    return result if isinstance(result, list) else [np.asarray(result)]


for _kind in ("Slice", "Pad", "Expand", "Tile", "Reshape", "Squeeze", "Unsqueeze", "OneHot"):
    HOST_OPS["", _kind] = partial(_shaped, _kind)


def _in_range(what: str, indices: Any, size: int) -> np.ndarray:
    array = np.asarray(indices, np.int64)
    if array.size and not -size <= array.min() <= array.max() < size:
        raise InvalidInput(f"{what}: index out of range", expected=f"[{-size}, {size})")
    return array


@host_op("Gather")
def gather(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The slices along `axis` that the indices name."""
    axis = attributes.get("axis", 0)
    return [np.take(inputs[0], _in_range("Gather", inputs[1], inputs[0].shape[axis]), axis)]


@host_op("GatherElements")
def gather_elements(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Elements along `axis`, an index for each result."""
    axis = attributes.get("axis", 0)
    data, indices = inputs
    picked = _in_range("GatherElements", indices, data.shape[axis])
    inside = tuple(slice(None) if a == axis % data.ndim else slice(0, d) for a, d in enumerate(picked.shape))
    return [np.take_along_axis(data[inside], picked, axis)]


@host_op("Concat")
def concat(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """One after the other."""
    return [np.concatenate(inputs, attributes["axis"])]


@host_op("Split")
def split(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Parts of the given sizes, or `num_outputs` equal ones with a smaller last one."""
    x, axis = inputs[0], attributes.get("axis", 0)
    if len(inputs) > 1 and inputs[1] is not None:
        return KINDS["Split"](attributes, x, inputs[1])
    part = -(-x.shape[axis] // attributes["num_outputs"])
    return list(np.split(x, [part * i for i in range(1, attributes["num_outputs"])], axis))


@host_op("Transpose")
def transpose(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Axes in the order `perm`."""
    return [np.transpose(inputs[0], attributes.get("perm"))]


@host_op("Flatten")
def flatten(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """A matrix."""
    x, axis = inputs[0], attributes.get("axis", 1)
    rows = int(np.prod(x.shape[: axis + x.ndim if axis < 0 else axis], dtype=np.int64))
    return [x.reshape(rows, x.size // rows if rows else 0)]


@host_op("Where")
def where(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """x where the condition holds, else y."""
    return [np.where(*inputs)]


@host_op("ReverseSequence")
def reverse_sequence(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The first sequence_lens[b] steps of every sequence b reversed."""
    batch, time = attributes.get("batch_axis", 1), attributes.get("time_axis", 0)
    x = np.moveaxis(inputs[0], (batch, time), (0, 1)).copy()
    for b, n in enumerate(np.asarray(inputs[1]).tolist()):
        if not 0 <= n <= x.shape[1]:
            raise InvalidInput("ReverseSequence: length out of range", expected=f"[0, {x.shape[1]}]", found=n)
        x[b, :n] = x[b, :n][::-1]
    return [np.ascontiguousarray(np.moveaxis(x, (0, 1), (batch, time)))]
