"""GridSample and Resize in plain numpy: onnx.reference has float32 on the way, and other pieces at borders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as _Resize

CUBIC = -0.75


PLACES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


@dataclass(frozen=True)
class _Pick:
    """One place on an axis: its index, moved into the axis, its weight, whether it lay inside (or need not)."""

    index: np.ndarray
    weight: np.ndarray
    inside: np.ndarray


def _reflected(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """x mirrored at the ends until it lies between them."""
    span = max(high - low, 1e-30)
    away = np.maximum(np.maximum(low - x, x - high), 0.0)
    turns = np.floor(away / span)
    rest = away - turns * span
    odd = turns % 2 == 1
    inside = np.where(x < low, np.where(odd, high - rest, low + rest), np.where(odd, low + rest, high - rest))
    return np.where((x < low) | (x > high), inside, x)


def _cubic(s: np.ndarray) -> list[np.ndarray]:
    """Keys' weights of the four neighbours of a place s behind the second."""

    def far(d: np.ndarray) -> np.ndarray:
        return ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC

    def near(d: np.ndarray) -> np.ndarray:
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1

    return [far(s + 1), near(s), near(1 - s), far(2 - s)]


def _picks(g: np.ndarray, n: int, mode: str, padding: str, corners: bool) -> list[_Pick]:
    """What coordinates in [-1, 1] read of an axis of n elements."""
    low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
    x = (g + 1) * (n - 1) / 2 if corners else ((g + 1) * n - 1) / 2
    if mode == "nearest":
        x = np.rint(x)
    if padding == "border" and mode != "cubic":
        x = np.clip(x, 0, n - 1)
    elif padding == "reflection":
        x = _reflected(x, low, high)

    def pick(place: np.ndarray, weight: np.ndarray) -> _Pick:
        inside = (place >= 0) & (place <= n - 1) if padding == "zeros" else np.ones(place.shape, bool)
        if padding == "reflection":
            place = _reflected(place, low, high)
        whole = np.trunc(np.clip(np.nan_to_num(place, nan=0.0), 0, n - 1))
        return _Pick(whole.astype(np.int64), weight, inside)

    if mode == "nearest":  # nothing is multiplied: of a position that is NaN the first element, or what is outside
        return [pick(x, np.ones(x.shape))]
    start = np.floor(x)
    s = x - start
    weights = [1 - s, s] if mode == "linear" else _cubic(s)
    first = 0 if mode == "linear" else -1
    return [pick(start + (first + j), weight) for j, weight in enumerate(weights)]


class GridSample(OpRun):  # type: ignore[misc]
    """Sums of elements times weights; what is outside counts as 0, which a weight of NaN makes NaN."""

    def _run(self, x: np.ndarray, grid: np.ndarray, mode: str = "linear", padding_mode: str = "zeros",
             align_corners: int = 0) -> tuple[np.ndarray]:  # fmt: skip
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode or "linear", mode or "linear")
        if x.dtype.kind in "iub" and mode != "nearest":
            raise ValueError("ONNX does not say how sums are rounded to integers")
        wide, at = x.astype(np.float64), grid.astype(np.float64)
        space = x.ndim - 2
        per_axis = [
            _picks(at[..., space - 1 - i], x.shape[2 + i], mode, padding_mode or "zeros", bool(align_corners))
            for i in range(space)
        ]
        images = np.arange(x.shape[0]).reshape(-1, *[1] * space)
        total = np.zeros((*grid.shape[:-1], x.shape[1]))
        for picks in product(*per_axis):
            values = wide[(images, slice(None), *(p.index for p in picks))]
            inside = np.logical_and.reduce([p.inside for p in picks])
            weight = np.multiply.reduce([p.weight for p in picks])
            total += weight[..., None] * np.where(inside[..., None], values, 0.0)
        return (np.moveaxis(total, -1, 1).astype(x.dtype),)


def _places(mode: str, n: int, resized: int, scale: float) -> np.ndarray:
    """The place in the input of each element of the result along one axis."""
    i = np.arange(resized, dtype=np.float64)
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (n - 1) / (scale * n - 1) if scale * n != 1 else i * 0.0
    half = (i + 0.5) / scale - 0.5
    return half if mode == "half_pixel" or resized > 1 else i * 0.0  # pytorch_half_pixel


def _rounded(mode: str, x: np.ndarray) -> np.ndarray:
    if mode in ("floor", "ceil"):
        return np.floor(x) if mode == "floor" else np.ceil(x)
    return np.ceil(x - 0.5) if mode == "round_prefer_floor" else np.floor(x + 0.5)


class Resize(_Resize):
    """onnx.reference's own sums in float32, and has another place for a single element of pytorch_half_pixel.

    Attributes:
        shift: how far a run with noise moves places, by their array; None: not at all.
    """

    shift: Callable[[np.ndarray], np.ndarray] | None = None

    def _run(self, x: np.ndarray, roi: Any = None, scales: Any = None, sizes: Any = None, **given: Any
             ) -> tuple[np.ndarray]:  # fmt: skip
        mode = given.get("coordinate_transformation_mode") or "half_pixel"
        rare = ("antialias", "axes", "exclude_outside", "keep_aspect_ratio_policy")
        if any(given.get(name) not in (None, 0, "stretch", []) for name in rare) or mode not in PLACES:
            return super()._run(x, roi, scales, sizes, **given)  # type: ignore[no-any-return]
        y, changed = x.astype(np.float64), []
        for axis, n in enumerate(x.shape):
            scale = float(np.asarray(scales, np.float64)[axis]) if sizes is None else int(sizes[axis]) / n
            resized = int(np.floor(np.float32(n) * np.float32(scale))) if sizes is None else int(sizes[axis])
            if resized != n or scale != 1:
                changed.append((axis, resized, scale))
        changed.sort(key=lambda c: c[1] / max(x.shape[c[0]], 1))  # what shrinks first leaves less to do for the others
        for axis, resized, scale in changed:
            y = self._along(y, axis, resized, scale, mode, given)
        return (y.astype(x.dtype),)

    def _along(self, y: np.ndarray, axis: int, resized: int, scale: float, mode: str, given: dict[str, Any]
               ) -> np.ndarray:  # fmt: skip
        n = y.shape[axis]
        at = _places(mode, n, resized, scale)
        if self.shift is not None:
            at = at + n * self.shift(at)
        kind = given.get("mode") or "nearest"
        if kind == "nearest":
            whole = _rounded(given.get("nearest_mode") or "round_prefer_floor", at)
            return np.take(y, np.clip(whole, 0, n - 1).astype(np.int64), axis)
        at = np.clip(at, 0, n - 1) if kind == "linear" else at
        start = np.floor(at)
        s, first = at - start, 0 if kind == "linear" else -1
        total: Any = 0.0
        for j, weight in enumerate([1 - s, s] if kind == "linear" else _cubic(s)):
            taken = np.take(y, np.clip(start + (first + j), 0, n - 1).astype(np.int64), axis)
            total = total + taken * weight.reshape(-1, *[1] * (y.ndim - 1 - axis))
        return np.asarray(total)


OPERATORS = (GridSample, Resize)
