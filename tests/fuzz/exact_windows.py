"""Convolutions and pools in plain numpy: onnx.reference skips NaN in windows, and meets it between taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.op_run import OpRun


@dataclass(frozen=True)
class Axis:
    """The windows along one axis: `places` [windows, taps] in the input, which may lie outside; the pads; the steps
    from one window, and from one tap, to the next."""

    places: np.ndarray
    size: int
    begin: int
    end: int
    stride: int
    dilation: int

    @property
    def inside(self) -> np.ndarray:
        """Which taps lie inside the input."""
        return (self.places >= 0) & (self.places < self.size)

    @property
    def padded(self) -> np.ndarray:
        """Which taps lie inside the input or its padding."""
        return (self.places >= -self.begin) & (self.places < self.size + self.end)


def axes_of(sizes: tuple[int, ...], kernel: tuple[int, ...], given: dict[str, Any]) -> list[Axis]:
    """The windows that a node's attributes give."""
    rank = len(sizes)
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    pads, auto = given.get("pads") or [0] * 2 * rank, given.get("auto_pad") or "NOTSET"
    found = []
    for i, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        extent = (k - 1) * d + 1
        begin, end = (pads[i], pads[i + rank]) if auto == "NOTSET" else (0, 0)
        if auto.startswith("SAME"):
            count = -(-n // s)
            total = max((count - 1) * s + extent - n, 0)
            begin = total // 2 if auto == "SAME_UPPER" else -(-total // 2)
            end = total - begin
        else:
            span = n + begin + end - extent
            if span < 0:
                raise ValueError("the window is larger than the padded input")
            # none begins in the padding behind the end
            count = min(-(-span // s) + 1, -(-(n + begin) // s)) if given.get("ceil_mode") else span // s + 1
        places = np.arange(count)[:, None] * s - begin + np.arange(k)[None, :] * d
        found.append(Axis(places, n, begin, end, s, d))
    return found


def _flat(arrays: list[np.ndarray], combine: Any) -> np.ndarray:
    """Arrays [windows, taps] of each axis combined to [windows of all axes…, taps of all axes]."""
    rank, total = len(arrays), np.asarray(combine.identity)
    for i, a in enumerate(arrays):
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = a.shape
        total = combine(total, a.reshape(shape))
    return total.reshape(*(a.shape[0] for a in arrays), int(np.prod([a.shape[1] for a in arrays])))


def windows_of(x: np.ndarray, axes: list[Axis]) -> np.ndarray:
    """[N, C, windows…, taps]: what each window sees; taps outside see any element."""
    rank = len(axes)
    for i, a in enumerate(axes):
        x = np.take(x, np.clip(a.places, 0, max(a.size - 1, 0)), 2 + 2 * i)
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    taps = int(np.prod([a.places.shape[1] for a in axes]))
    return x.transpose(order).reshape(*x.shape[:2], *(a.places.shape[0] for a in axes), taps)


MOST_SEEN = 1 << 22
"""Elements that all windows of one product of matrices may see: 32 MiB in float64."""
NOWHERE = np.iinfo(np.int64).min
"""The place of the greatest element of a window that has none."""


class MaxPool(OpRun):  # type: ignore[misc]
    """NaN wins, the first one; of equal elements the first; windows within the padding have none."""

    def _run(self, x: np.ndarray, kernel_shape: Any = None, storage_order: int = 0, **given: Any
             ) -> tuple[np.ndarray, ...]:  # fmt: skip
        axes = axes_of(x.shape[2:], kernel_shape, given)
        inside = _flat([a.inside for a in axes], np.logical_and)
        seen = windows_of(x.astype(np.float64), axes)
        greatest = np.where(inside, seen, -np.inf).max(-1, keepdims=True)
        y = greatest[..., 0].astype(x.dtype)
        if len(self.onnx_node.output) < 2:
            return (y,)
        first = (inside & ((seen == greatest) | (np.isnan(seen) & np.isnan(greatest)))).argmax(-1)
        sizes = x.shape[2:]
        steps = [int(np.prod(sizes[:i] if storage_order else sizes[i + 1 :])) for i in range(len(sizes))]
        places = _flat([a.places * step for a, step in zip(axes, steps, strict=True)], np.add)
        places = np.broadcast_to(places, seen.shape)
        images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(sizes)) * int(np.prod(sizes))
        chosen = np.take_along_axis(places, first[..., None], -1)[..., 0] + images
        return y, np.where(np.broadcast_to(inside, seen.shape).any(-1), chosen, NOWHERE)


class AveragePool(OpRun):  # type: ignore[misc]
    """The mean of what lies inside the input, or inside its padding too."""

    def _run(self, x: np.ndarray, kernel_shape: Any = None, count_include_pad: int = 0, **given: Any
             ) -> tuple[np.ndarray]:  # fmt: skip
        axes = axes_of(x.shape[2:], kernel_shape, given)
        inside = _flat([a.inside for a in axes], np.logical_and)
        counted = _flat([a.padded for a in axes], np.logical_and) if count_include_pad else inside
        total = np.where(inside, windows_of(x.astype(np.float64), axes), 0.0).sum(-1)
        return ((total / counted.sum(-1)).astype(x.dtype),)


class LpPool(OpRun):  # type: ignore[misc]
    """(sum |x|^p)^(1/p)."""

    def _run(self, x: np.ndarray, kernel_shape: Any = None, p: int = 2, **given: Any) -> tuple[np.ndarray]:
        axes = axes_of(x.shape[2:], kernel_shape, given)
        inside = _flat([a.inside for a in axes], np.logical_and)
        total = np.where(inside, np.abs(windows_of(x.astype(np.float64), axes)) ** p, 0.0).sum(-1)
        return ((total ** (1.0 / p)).astype(x.dtype),)


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, group: int, given: dict[str, Any]) -> np.ndarray:
    """A convolution in float64. Neither the padding nor what lies between the taps is multiplied."""
    axes, wide = axes_of(x.shape[2:], w.shape[2:], given), x.astype(np.float64, copy=False)
    for i, a in enumerate(axes):  # the first and last taps of a large kernel may meet nothing but padding
        met = np.flatnonzero(a.inside.any(0))
        taps = slice(met[0], met[-1] + 1) if met.size else slice(0)
        axes[i], w = replace(a, places=a.places[:, taps]), w[(*[slice(None)] * (2 + i), taps)]
    weights = w.astype(np.float64, copy=False).reshape(group, w.shape[0] // group, *w.shape[1:])
    # 0 times what is not finite is no 0: such weights must not meet the padding's
    multiply = _by_windows if np.isfinite(weights).all() else _by_taps
    y = np.zeros((x.shape[0], w.shape[0], *(a.places.shape[0] for a in axes)))
    for cuts in _parts(axes, x.shape[0] * x.shape[1]):
        part = y[(slice(None), slice(None), *cuts)]
        chosen = [replace(a, places=a.places[cut]) for a, cut in zip(axes, cuts, strict=True)]
        part[...] = multiply(wide, weights, chosen).reshape(part.shape)
    return y if b is None else y + b.astype(np.float64).reshape(-1, *[1] * len(axes))


def _parts(axes: list[Axis], channels: int) -> Iterator[tuple[slice, ...]]:
    """The windows of each axis in parts, of which each sees at most MOST_SEEN elements, or is a single window.

    Args:
        channels: of all images together.
    """
    taps, steps = prod(a.places.shape[1] for a in axes), [a.places.shape[0] for a in axes]
    while channels * taps * prod(steps) > MOST_SEEN and max(steps) > 1:
        widest = steps.index(max(steps))
        steps[widest] = -(-steps[widest] // 2)
    for starts in product(*(range(0, a.places.shape[0], max(n, 1)) for a, n in zip(axes, steps, strict=True))):
        yield tuple(slice(at, at + n) for at, n in zip(starts, steps, strict=True))


def _by_windows(x: np.ndarray, weights: np.ndarray, axes: list[Axis]) -> np.ndarray:
    """[N, group, outputs of a group, windows]: what the windows see, as the rows of one matrix, times the weights
    [group, outputs of a group, inputs of a group, taps…]."""
    images, (group, outputs, inputs), rank = x.shape[0], weights.shape[:3], len(axes)
    count, taps = (prod(a.places.shape[i] for a in axes) for i in (0, 1))
    if not count * taps:
        return np.zeros((images, group, outputs, count))
    ends = [(int(a.places.min()), int(a.places.max()) + 1) for a in axes]
    kept = tuple(slice(max(low, 0), max(high, 0)) for low, high in ends)
    added = [
        (min(high, 0) - min(low, 0), max(high - a.size, 0) - max(low - a.size, 0))
        for a, (low, high) in zip(axes, ends, strict=True)
    ]
    seen = np.pad(x[(..., *kept)], [(0, 0), (0, 0), *added])
    for i, a in enumerate(axes):
        seen = sliding_window_view(seen, int(np.ptp(a.places[0])) + 1, 2 + i)
        seen = seen[(*[slice(None)] * (2 + i), slice(None, None, a.stride), ..., slice(None, None, a.dilation))]
    seen = seen.reshape(images, group, inputs, *seen.shape[2:])
    rows = seen.transpose(1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    matrices = weights.reshape(group, outputs, inputs * taps).swapaxes(1, 2)
    y = rows.reshape(group, images * count, inputs * taps) @ matrices
    return y.reshape(group, images, count, outputs).transpose(1, 0, 3, 2)


def _by_taps(x: np.ndarray, weights: np.ndarray, axes: list[Axis]) -> np.ndarray:
    """The same tap after tap, with weights that may be infinite or NaN."""
    images, (group, outputs, inputs) = x.shape[0], weights.shape[:3]
    y = np.zeros((images, group, outputs, prod(a.places.shape[0] for a in axes)))
    for tap in product(*(range(k) for k in weights.shape[3:])):
        at, inside = x, np.ones((), bool)
        for i, (a, t) in enumerate(zip(axes, tap, strict=True)):
            at = np.take(at, np.clip(a.places[:, t], 0, a.size - 1), 2 + i)
            inside = inside[..., None] & a.inside[:, t]
        products = weights[(..., *tap)] @ at.reshape(images, group, inputs, y.shape[-1])
        y += np.where(inside.ravel(), products, 0.0)
    return y


class Conv(OpRun):  # type: ignore[misc]
    """0 times an infinite weight, in the padding, is left to others."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, group: int = 1, **given: Any
             ) -> tuple[np.ndarray]:  # fmt: skip
        return (convolve(x, w, b, group, given).astype(x.dtype),)


class ConvTranspose(OpRun):  # type: ignore[misc]
    """onnx.reference's own takes the first group's bias for all of them, and fails on some shapes."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, group: int = 1, **given: Any
             ) -> tuple[np.ndarray]:  # fmt: skip
        spans = _spans(x.shape[2:], w.shape[2:], given)
        images, outputs, inputs = x.shape[0], w.shape[1], x.shape[1] // group
        wide = x.astype(np.float64).reshape(images, group, inputs, -1)
        weights = w.astype(np.float64).reshape(group, inputs, *w.shape[1:])
        y = np.zeros((images, group * outputs, *(s.full for s in spans)))
        for tap in product(*(range(k) for k in w.shape[2:])):
            added = np.swapaxes(weights[(..., *tap)], 1, 2) @ wide
            y[(slice(None), slice(None), *np.ix_(*(s.places[:, t] for s, t in zip(spans, tap, strict=True))))] += (
                added.reshape(images, group * outputs, *x.shape[2:]))  # fmt: skip
        y = y[(slice(None), slice(None), *(slice(s.begin, s.full - s.end) for s in spans))]
        if b is not None:
            y += b.astype(np.float64).reshape(-1, *[1] * len(spans))
        return (y.astype(x.dtype),)


@dataclass(frozen=True)
class Span:
    """Where elements go along one axis: `places` [elements, taps] in `full` places, of which the ends are dropped."""

    places: np.ndarray
    full: int
    begin: int
    end: int


def _spans(sizes: tuple[int, ...], kernel: tuple[int, ...], given: dict[str, Any]) -> list[Span]:
    rank, found = len(sizes), []
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    more, shape = given.get("output_padding") or [0] * rank, given.get("output_shape")
    pads, auto = given.get("pads") or [0] * 2 * rank, given.get("auto_pad") or "NOTSET"
    for i, (n, k, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        full = (n - 1) * s + (k - 1) * d + 1 + more[i]
        begin, end = pads[i], pads[i + rank]
        if shape or auto.startswith("SAME"):
            total = full - (shape[i] if shape else n * s)
            if total < 0:
                raise ValueError("a result beyond the last element: implementations differ")
            begin, end = (total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2)
        elif auto == "VALID":
            begin = end = 0
        found.append(Span(np.arange(n)[:, None] * s + np.arange(k)[None, :] * d, full, begin, end))
    return found


OPERATORS = (MaxPool, AveragePool, LpPool, Conv, ConvTranspose)
