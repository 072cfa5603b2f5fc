"""Data movement whose parameters only the run knows: numpy does the work, ONNX's rules are checked here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford_tensor
from .base import Attributes, host_op, one_number
from .fourier import dft, stft
from .resample import resize
from .select import top_k

Settings = Mapping[str, Any]


def _numbers(array: Any) -> list[int]:
    return [int(v) for v in np.asarray(array).reshape(-1)]


def _checked(what: str, shape: Sequence[int], itemsize: int = 1) -> tuple[int, ...]:
    """The shape; raises InvalidInput if it is negative, ResourceLimit if such a tensor does not fit into memory."""
    if any(d < 0 for d in shape):
        raise InvalidInput(f"{what}: impossible shape", expected="dimensions >= 0", found=list(shape))
    afford_tensor(shape, itemsize, what)
    return tuple(shape)


def _axes(what: str, given: Any, rank: int, count: int) -> list[int]:
    axes = list(range(count)) if given is None else [a + rank if a < 0 else a for a in _numbers(given)]
    if len(set(axes)) != len(axes) or not all(0 <= a < rank for a in axes):
        raise InvalidInput(f"{what}: bad axes", expected=f"distinct, in [{-rank}, {rank})", found=axes)
    return axes


def _slice(settings: Settings, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = _numbers(starts), _numbers(ends)
    step = [1] * len(first) if steps is None else _numbers(steps)
    where = _axes("Slice", axes, x.ndim, len(first))
    if not len(first) == len(last) == len(step) == len(where) or 0 in step:
        raise InvalidInput("Slice: bad bounds", expected="equal lengths, no step of 0", found=[first, last, step])
    index = [slice(None)] * x.ndim
    for a, s, e, p in zip(where, first, last, step):
        # backward from before the first element, ONNX begins at that one, numpy nowhere
        index[a] = slice(max(s, -x.shape[a]) if p < 0 else s, e, p)
    return x[tuple(index)]


def _pad(settings: Settings, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    widths = _numbers(pads)
    where = _axes("Pad", axes, x.ndim, x.ndim)
    if len(widths) != 2 * len(where):
        raise InvalidInput("Pad: two widths for each axis", expected=2 * len(where), found=len(widths))
    both = [(0, 0)] * x.ndim
    for i, a in enumerate(where):
        both[a] = (widths[i], widths[i + len(where)])
    shape = _checked("Pad", [d + before + after for d, (before, after) in zip(x.shape, both)], x.itemsize)
    x = x[tuple(slice(max(0, -b), max(0, d + min(0, a))) for d, (b, a) in zip(x.shape, both))]
    # a side that is cut by more than there is takes the rest from what the other side adds
    first = [min(max(0, b), n) for n, (b, _) in zip(shape, both)]
    grow = [(b, n - d - b) for n, d, b in zip(shape, x.shape, first)]
    mode = settings.get("mode", "constant")
    if mode != "constant":
        if any(d == 0 and width != (0, 0) for d, width in zip(x.shape, grow)):
            raise InvalidInput("Pad: an empty axis has nothing to repeat", expected="1 element or more", found=x.shape)
        return np.pad(x, grow, mode)
    fill = ("" if x.dtype == object else 0) if value is None else one_number("Pad: the value", value)
    return np.pad(x, grow, constant_values=np.asarray(fill, x.dtype))


def _expand(settings: Settings, x: Any, shape: Any) -> Any:
    wanted = _checked("Expand", _numbers(shape))
    try:
        result = np.broadcast_shapes(x.shape, wanted)
    except ValueError:
        raise InvalidInput("Expand: shapes do not broadcast", expected=x.shape, found=wanted) from None
    return np.broadcast_to(x, _checked("Expand", result, x.itemsize))


def _tile(settings: Settings, x: Any, repeats: Any) -> Any:
    counts = _numbers(repeats)
    if len(counts) != x.ndim:
        raise InvalidInput("Tile: a count for each axis", expected=x.ndim, found=len(counts))
    _checked("Tile", counts)
    _checked("Tile", [d * c for d, c in zip(x.shape, counts)], x.itemsize)
    return np.tile(x, counts)


def _reshape(settings: Settings, x: Any, shape: Any) -> Any:
    wanted = _numbers(shape)
    if not settings.get("allowzero", 0):
        if any(d == 0 and i >= x.ndim for i, d in enumerate(wanted)):
            raise InvalidInput("Reshape: 0 has no dimension to copy", found=wanted)
        wanted = [x.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    if any(d < -1 for d in wanted):
        raise InvalidInput("Reshape: a size is negative", expected="-1 at most once, else 0 or more", found=wanted)
    try:
        return x.reshape(wanted)
    except ValueError:
        raise InvalidInput("Reshape: the shapes do not agree", expected=f"{x.size} elements", found=wanted) from None


def _squeeze(settings: Settings, x: Any, axes: Any = None) -> Any:
    where = _axes("Squeeze", axes, x.ndim, 0) if axes is not None else [a for a, d in enumerate(x.shape) if d == 1]
    if any(x.shape[a] != 1 for a in where):
        raise InvalidInput("Squeeze: dimensions must be 1", found=[x.shape[a] for a in where])
    return np.squeeze(x, tuple(where))


def _unsqueeze(settings: Settings, x: Any, axes: Any) -> Any:
    count = np.asarray(axes).size
    return np.expand_dims(x, tuple(_axes("Unsqueeze", axes, x.ndim + count, count)))


def _range(settings: Settings, start: Any, limit: Any, delta: Any) -> Any:
    dtype = np.asarray(start).dtype
    first, last, step = (one_number("Range: an operand", v) for v in (start, limit, delta))
    exact = float if dtype.kind not in "iu" else int
    if step == 0 or not all(math.isfinite(exact(v)) for v in (first, last, step)):
        raise InvalidInput("Range: impossible numbers", expected="finite ones, delta not 0",
                           found=[exact(v) for v in (first, last, step)])
    wide, stride = exact(last) - exact(first), exact(step)
    # where f64 overflows, more than any memory holds
    count = -(-wide // stride) if exact is int else math.ceil(max(0.0, min(wide / stride, 2.0**63)))
    (count,) = _checked("Range", [max(0, int(count))], 8 + 2 * dtype.itemsize)
    wider = np.float64 if dtype.kind not in "iu" else dtype
    return (np.asarray(first, wider) + np.arange(count).astype(wider) * np.asarray(step, wider)).astype(dtype)


def _one_hot(settings: Settings, indices: Any, depth: Any, values: Any) -> Any:
    length = one_number("OneHot: depth", depth)
    axis = settings.get("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    if not (math.isfinite(length) and length >= 1):
        raise InvalidInput("OneHot: depth must be positive", found=length)
    if np.shape(values) != (2,):
        raise InvalidInput("OneHot: values must be [off, on]", expected=(2,), found=np.shape(values))
    n = int(length)
    _checked("OneHot", [n, *indices.shape], 1 + np.asarray(values).itemsize)
    index = np.asarray(indices).astype(np.int64)
    index = np.expand_dims(np.where((index < 0) & (indices < 0), index + n, index), axis)  # u64 may wrap
    positions = np.arange(n).reshape([-1 if a == axis else 1 for a in range(index.ndim)])
    return np.where(index == positions, values[1], values[0])


def _split(settings: Settings, x: Any, split: Any) -> list[Any]:
    sizes, axis = _numbers(split), settings.get("axis", 0)
    if any(s < 0 for s in sizes) or sum(sizes) != x.shape[axis]:
        raise InvalidInput("Split: sizes must add up", expected=x.shape[axis], found=sizes)
    return list(np.split(x, np.cumsum(sizes)[:-1], axis))


def _top_k(settings: Settings, x: Any, k: Any) -> list[Any]:
    return top_k(settings, [x, k])


def _resize(settings: Settings, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    given = [None if v is None or np.asarray(v).size == 0 else v for v in (roi, scales, sizes)]
    return resize(settings, x, *given)


def _col2im(settings: Settings, x: Any, image_shape: Any, block_shape: Any) -> Any:
    image, block = _numbers(image_shape), _numbers(block_shape)
    rank = len(image)
    dilations, strides = (settings.get(name) or [1] * rank for name in ("dilations", "strides"))
    pads = settings.get("pads") or [0] * (2 * rank)
    padded = _checked("Col2Im", [d + pads[i] + pads[i + rank] for i, d in enumerate(image)])
    counts = [(p - d * (b - 1) - 1) // s + 1 for p, b, d, s in zip(padded, block, dilations, strides)]
    taps = math.prod(block)
    if min((*block, *counts)) < 1 or x.ndim != 3 or x.shape[1] % taps or x.shape[2] != math.prod(counts):
        raise InvalidInput("Col2Im: shapes do not fit", expected=[taps, counts], found=x.shape)
    blocks = x.reshape(x.shape[0], -1, *block, *counts)
    out = np.zeros(_checked("Col2Im", (*blocks.shape[:2], *padded), x.itemsize), x.dtype)
    for at in np.ndindex(*block):
        whole: list[Any] = [slice(None), slice(None)]
        where = [slice(b * d, b * d + s * n, s) for b, d, s, n in zip(at, dilations, strides, counts)]
        out[tuple(whole + where)] += blocks[tuple(whole + list(at))]
    inside = [slice(pads[i], pads[i] + d) for i, d in enumerate(image)]
    return out[tuple([slice(None), slice(None), *inside])]


def _max_unpool(settings: Settings, x: Any, indices: Any, output_shape: Any) -> Any:
    kernel, rank = settings["kernel_shape"], x.ndim - 2
    strides, pads = settings.get("strides") or [1] * rank, settings.get("pads") or [0] * (2 * rank)
    spatial = [(d - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i] for i, d in enumerate(x.shape[2:])]
    shape = _checked("MaxUnpool", [*x.shape[:2], *spatial], x.itemsize)
    out = np.zeros(math.prod(shape), x.dtype)
    if indices.shape != x.shape:
        raise InvalidInput("MaxUnpool: an index for each element", expected=x.shape, found=indices.shape)
    if indices.size and not 0 <= indices.min() <= indices.max() < out.size:
        raise InvalidInput("MaxUnpool: an index is out of range", expected=f"[0, {out.size})")
    out[indices.reshape(-1)] = x.reshape(-1)
    wanted = _checked("MaxUnpool", _numbers(output_shape), x.itemsize)
    if any(w < d for w, d in zip(wanted, shape, strict=True)):
        raise InvalidInput("MaxUnpool: output_shape is too small", expected=f"at least {shape}", found=wanted)
    return _pad({}, out.reshape(shape), [*[0] * len(shape), *(w - d for w, d in zip(wanted, shape, strict=True))])


KINDS: dict[str, Callable[..., Any]] = {
    "Slice": _slice, "Pad": _pad, "Expand": _expand, "Tile": _tile, "Reshape": _reshape, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Range": _range, "OneHot": _one_hot, "Split": _split, "TopK": _top_k, "Resize": _resize,
    "Col2Im": _col2im, "MaxUnpool": _max_unpool, "DFT": dft, "STFT": stft,
}  # fmt: skip


@host_op("AtRuntime", "parax")
def at_runtime(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The ONNX operator `kind` with the attributes in `settings`.

    Raises:
        InvalidInput: parameters that are against the operator's rules.
    """
    dtype = np.asarray(inputs[2 if attributes["kind"] == "OneHot" else 0]).dtype
    result = KINDS[attributes["kind"]](json.loads(attributes.get("settings") or "{}"), *inputs)
    if isinstance(result, list):
        return [np.ascontiguousarray(r) for r in result]
    return [np.ascontiguousarray(result, dtype).reshape(np.shape(result))]
