"""Resize where only the run knows sizes or scales: step by step as the kernels (kernels/movement/resize.py), so that
integers are cut off at the same places; where antialias is asked for, which no kernel does, by the weights of
onnx.reference and with its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford, afford_tensor

Real = type[np.float32] | type[np.float64]
MODES = ("nearest", "linear", "cubic")
Tap = tuple[np.ndarray, np.ndarray]
ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}  # fmt: skip


def resize(settings: Mapping[str, Any], x: np.ndarray, roi: Any, scales: Any, sizes: Any) -> np.ndarray:
    """`x` resampled; operands and attributes are Resize-19's. Raises InvalidInput for impossible ones."""
    axes = [a % x.ndim for a in settings.get("axes") or range(x.ndim)]
    if (scales is None) == (sizes is None):
        raise InvalidInput("Resize: exactly one of scales and sizes must be given")
    given = np.asarray(scales if sizes is None else sizes).reshape(-1)
    if given.size != len(axes) or not (np.isfinite(given).all() and (given > 0 if sizes is None else given >= 0).all()):
        raise InvalidInput("Resize: impossible scales or sizes", expected=f"{len(axes)} numbers", found=given.tolist())
    mode = settings.get("mode", "nearest")
    if mode not in MODES:
        raise InvalidInput("Resize: unknown mode", expected=", ".join(MODES), found=mode)
    real: Real = np.float64 if x.dtype == np.float64 else np.float32
    factors, lengths = _factors(settings, [x.shape[a] for a in axes], given, sizes is None, real)
    result = dict(enumerate(x.shape)) | dict(zip(axes, lengths))
    afford_tensor(list(result.values()), x.itemsize, "Resize")
    crop = settings.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    ends = _region(roi, len(axes)) if crop else np.zeros((2, len(axes)))
    out = x if x.dtype.kind in "fiub" and x.dtype.itemsize > 2 else x.astype(np.float32)
    outside: list[tuple[int, np.ndarray]] = []
    weighted: dict[int, list[Tap]] = {}
    for i, (axis, scale, length) in enumerate(zip(axes, factors, lengths)):
        if scale == 1 and length == x.shape[axis] and (not crop or tuple(ends[:, i]) == (0, 1)):
            continue
        at = _positions(settings, x.shape[axis], length, scale, ends[:, i], real)
        if crop:
            outside.append((axis, (at < 0) | (at > x.shape[axis] - 1)))
        if mode == "nearest" or length == 0:  # nothing to weigh
            out = _nearest(settings, out, axis, at)
        elif settings.get("antialias", 0):
            out = _antialiased(settings, out, axis, at, scale)
        else:
            weighted[axis] = _taps(settings, out.shape[axis], at)
    out = _interpolated(out, weighted) if weighted else out
    for axis, beyond in outside:
        np.moveaxis(out, axis, 0)[beyond] = settings.get("extrapolation_value", 0.0)
    if x.dtype.kind in "iu" and out.dtype.kind == "f":  # cubic weights may be negative: kernels saturate
        out = np.rint(out) if settings.get("antialias", 0) else out
        out = np.clip(out.astype(np.float64), np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    return out.astype(x.dtype)


def _region(roi: Any, rank: int) -> np.ndarray:
    """[2, rank]: where each axis starts and ends, as parts of its length."""
    ends = np.asarray([] if roi is None else roi, np.float64).reshape(-1)
    if ends.size != 2 * rank or not np.isfinite(ends).all():
        raise InvalidInput("Resize: impossible roi", expected=f"{2 * rank} finite numbers", found=ends.tolist())
    return ends.reshape(2, rank)


def _factors(settings: Mapping[str, Any], have: list[int], given: np.ndarray, are_scales: bool, real: Real
             ) -> tuple[Any, Any]:  # fmt: skip
    """Scale and length of every axis."""
    if are_scales:
        with np.errstate(over="ignore"):  # more than any memory holds
            lengths = [math.floor(min(float(np.float32(n) * np.float32(s)), 2.0**63)) for n, s in zip(have, given)]
        return [real(s) for s in given.astype(np.float32)], lengths
    policy = settings.get("keep_aspect_ratio_policy", "stretch")
    if any(h == 0 and (w > 0 or policy != "stretch") for h, w in zip(have, given)):
        raise InvalidInput("Resize: an empty axis cannot be resized", expected="1 element or more", found=have)
    ratios = [Fraction(int(w), max(h, 1)) for h, w in zip(have, given)]
    if policy == "stretch":
        return [real(float(ratio)) for ratio in ratios], [int(w) for w in given]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [real(float(scale))] * len(have), [math.floor(scale * h + Fraction(1, 2)) for h in have]


def _positions(settings: Mapping[str, Any], size: int, length: int, scale: Any, roi: np.ndarray, real: Real
               ) -> np.ndarray:  # fmt: skip
    """The coordinate in x of every output position; step by step as the kernels
    (kernels/movement/resize.py) and in their type, so that ties fall to the same side."""
    i, n, resized, one, half = np.arange(length, dtype=real), real(size), real(length), real(1), real(0.5)
    mode = settings.get("coordinate_transformation_mode", "half_pixel")
    centred = (i + half) / scale - half
    if mode == "asymmetric":
        return np.asarray(i / scale)
    if mode == "tf_half_pixel_for_nn":
        return np.asarray((i + half) / scale)
    if mode == "align_corners":
        return np.asarray(i * (n - one) / ((scale * n - one) or one))
    if mode == "pytorch_half_pixel":
        return centred if length > 1 else np.zeros(length, real)
    if mode == "half_pixel_symmetric":
        return np.asarray(centred + n / real(2) * (one - resized / (scale * n)))
    if mode == "tf_crop_and_resize":
        start, end = float(roi[0]), float(roi[1])
        if length == 1:
            return np.full(1, (n - one) * real(0.5 * (start + end)))
        return np.asarray((n - one) * real(start) + i * real(end - start) * (n - one) / max(resized - one, one))
    return np.asarray(centred)


def _nearest(settings: Mapping[str, Any], x: np.ndarray, axis: int, at: np.ndarray) -> np.ndarray:
    rounding = settings.get("nearest_mode", "round_prefer_floor")
    if rounding not in ROUNDINGS:
        raise InvalidInput("Resize: unknown nearest_mode", expected=", ".join(ROUNDINGS), found=rounding)
    return np.take(x, np.clip(ROUNDINGS[rounding](at), 0, x.shape[axis] - 1).astype(np.int64), axis)


def _taps(settings: Mapping[str, Any], size: int, at: np.ndarray) -> list[Tap]:
    """The input positions that make each output position of an axis, and their weights, in the coordinates' type."""
    top = at.dtype.type(size - 1)
    if settings["mode"] == "linear":
        at = np.clip(at, 0, top)
        low = np.floor(at)
        s = at - low
        taps = [(low, 1 - s), (low + 1, s)]
    else:
        low = np.floor(at)
        s, a = at - low, at.dtype.type(settings.get("cubic_coeff_a", -0.75))
        taps = [(low - 1, _far(a, s + 1)), (low, _near(a, s)), (low + 1, _near(a, 1 - s)), (low + 2, _far(a, 2 - s))]
        if settings.get("exclude_outside", 0):
            taps = [(p, np.where((p >= 0) & (p <= top), w, at.dtype.type(0))) for p, w in taps]
            total = taps[0][1] + taps[1][1] + taps[2][1] + taps[3][1]
            taps = [(p, w / total) for p, w in taps]
    return [(np.clip(p, 0, size - 1).astype(np.int64), w) for p, w in taps]


def _interpolated(x: np.ndarray, weighted: Mapping[int, list[Tap]]) -> np.ndarray:
    """Σ weight · element over the combinations of taps, one after the other, as fused multiply-adds."""
    wide = np.float64 if x.dtype == np.float64 else np.float32
    total: np.ndarray | None = None
    for combination in product(*weighted.values()):
        value, weight = x, np.ones((), wide)
        for axis, (index, factor) in zip(weighted, combination):
            value = np.take(value, index, axis)
            weight = weight * factor.astype(wide).reshape(-1, *(1,) * (x.ndim - 1 - axis))
        term = weight.astype(np.float64) * value.astype(wide).astype(np.float64)
        total = (term if total is None else term + total.astype(np.float64)).astype(wide)
    assert total is not None
    return total


def _near(a: Any, d: np.ndarray) -> Any:
    """Keys' kernel up to a distance of 1."""
    return (d * (a + 2) - (a + 3)) * d * d + 1


def _far(a: Any, d: np.ndarray) -> Any:
    """Keys' kernel at distances of 1 to 2."""
    return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a


def _antialiased(settings: Mapping[str, Any], x: np.ndarray, axis: int, at: np.ndarray, scale: float) -> np.ndarray:
    size, mode = x.shape[axis], settings["mode"]
    shrink = min(scale, 1.0)
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / shrink) + 1
    afford(16 * (2 - 2 * first) * len(at), "Resize")
    steps = np.arange(first, 2 - first if mode == "cubic" else first + 2 - 2 * first)
    low = np.floor(at)
    distance = np.abs((steps[None, :] - (at - low)[:, None]) * shrink)
    a = settings.get("cubic_coeff_a", -0.75)
    weights = np.clip(1 - distance, 0, 1) if mode == "linear" else _cubic(a, distance)
    index = low[:, None].astype(np.int64) + steps[None, :]
    if settings.get("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= size), 0, weights)
    weights /= weights.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, size - 1)
    begin = index[:, :1]
    window = np.zeros_like(weights)  # what falls outside counts for the last element inside
    np.add.at(window, (np.arange(len(at))[:, None], index - begin), weights)
    total = np.zeros((*x.shape[:axis], len(at), *x.shape[axis + 1 :]))
    for i, weight in enumerate(window.T):
        factor = weight.reshape(-1, *(1,) * (x.ndim - 1 - axis))
        value = np.take(x, np.minimum(begin[:, 0] + i, size - 1), axis)
        total += factor * np.where(factor == 0, 0, value)  # what is not read may be infinite
    return total


def _cubic(a: float, d: np.ndarray) -> np.ndarray:
    """Keys' kernel."""
    return np.where(d <= 1, _near(a, d), np.where(d < 2, _far(a, d), 0.0))
