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


@host_op("GatherND")
def gather_nd(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """What the last axis of the indices names, after the first `batch_dims` axes, which both have."""
    data, indices = inputs
    return [data[_places("GatherND", data, indices, int(attributes.get("batch_dims", 0)))]]


def _places(op: str, data: np.ndarray, indices: np.ndarray, batch: int = 0) -> tuple[np.ndarray, ...]:
    """An index array for each axis of the data that the indices name."""
    rows: tuple[np.ndarray, ...] = np.indices(indices.shape[:batch], sparse=True)
    first = [row.reshape(*row.shape, *(1,) * (indices.ndim - 1 - batch)) for row in rows]
    named = [_in_range(op, indices[..., i], data.shape[batch + i]) for i in range(indices.shape[-1])]
    return (*first, *named)


def _scattered(op: str, attributes: Attributes, data: np.ndarray, at: tuple[np.ndarray, ...], updates: Any) -> Any:
    if attributes.get("reduction", "none") not in ("none", None):
        raise InvalidInput(f"{op}: strings cannot be reduced", expected="none", found=attributes["reduction"])
    y = data.copy()
    y[at] = updates
    return [y]


@host_op("ScatterND")
def scatter_nd(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The data with updates where the last axis of the indices says."""
    data, indices, updates = inputs
    return _scattered("ScatterND", attributes, data, _places("ScatterND", data, indices), updates)


@host_op("ScatterElements")
def scatter_elements(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The data with updates, whose place along `axis` the indices say."""
    data, indices, updates = inputs
    axis = int(attributes.get("axis", 0)) % data.ndim
    at = list(np.indices(indices.shape, sparse=True))
    at[axis] = _in_range("ScatterElements", indices, data.shape[axis])
    return _scattered("ScatterElements", attributes, data, tuple(at), updates)


@host_op("Shape")
def shape(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The lengths of the axes from `start` to before `end`."""
    return [np.array(inputs[0].shape[slice(attributes.get("start", 0), attributes.get("end"))], np.int64)]


@host_op("Size")
def size(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The number of elements."""
    return [np.array(inputs[0].size, np.int64)]


@host_op("DepthToSpace")
def depth_to_space(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Blocks of channels as blocks of pixels; in mode CRD the channel comes before the places in a block."""
    x, b = inputs[0], int(attributes["blocksize"])
    n, c, h, w = x.shape
    if attributes.get("mode", "DCR") == "CRD":
        blocks = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        blocks = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    return [blocks.reshape(n, c // (b * b), h * b, w * b)]


@host_op("SpaceToDepth")
def space_to_depth(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Blocks of pixels as blocks of channels, the way back."""
    x, b = inputs[0], int(attributes["blocksize"])
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 1, 3, 5, 2, 4) if attributes.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return [blocks.transpose(order).reshape(n, c * b * b, h // b, w // b)]
