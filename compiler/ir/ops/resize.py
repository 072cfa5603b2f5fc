"""Resize: samples of a tensor on a finer or coarser grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ....errors import ResourceLimit, UnsupportedOp
from ..types import F64, Dim, SymDim, TensorType, exact_min, lower_bound, upper_bound
from . import layout_policies, row_rules, work_rules
from .base import Any, Attr, Float, Float2, In, InferContext, Int64, Ints, Operator, Opt, Rows, op

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_half_pixel_for_nn", "tf_crop_and_resize")  # fmt: skip
MODES = ("nearest", "linear", "cubic")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")
MOST = 2**40  # a longer axis is a mistake
MOST_TRIED = 2**16  # sizes for which a fraction is compared with a scale


@dataclass(frozen=True)
class Places:
    """Where the operand roi, which only the run knows, says where an axis starts and ends."""

    start: int
    end: int


@dataclass(frozen=True)
class ResizedAxis:
    """One axis. `scale`: output per input size, None = their ratio when running; `roi`: start and end, in [0, 1]."""

    axis: int
    size: Dim
    resized: Dim
    scale: float | None
    roi: tuple[float, float] | Places | None = None


def _scaled(ctx: InferContext, size: Dim, scale: float) -> Dim:
    """floor(size * scale), in f32 as ONNX Runtime. Symbols are constrained to sizes for which a fraction gives it."""
    if scale == 1:
        return size
    product = float(np.float32(lower_bound(size)) * np.float32(scale))
    if product > MOST:
        raise ResourceLimit("resized beyond all measure", expected=f"at most {MOST} elements", found=product)
    if not isinstance(size, SymDim):
        return math.floor(product)
    fraction, most, most_whole = _as_fraction(scale)
    limited: list[tuple[Dim, int, str]] = [(size, most, "a size")]
    if most_whole < most:
        is_whole = 1 - exact_min(size % fraction.denominator, 1)
        limited.append((size * is_whole, most_whole, f"a multiple of {fraction.denominator}"))
    for part, bound, what in limited:
        message = f"{what} that is scaled by {scale} must be at most {bound}, or fixed when compiling"
        ctx.equal(exact_min(part, bound), part, message)
    return size * fraction.numerator // fraction.denominator


@lru_cache
def _as_fraction(scale: float) -> tuple[Fraction, int, int]:
    """A fraction that gives the floor of a size's f32 product with `scale`: up to which size, and up to which one
    that its denominator divides, where the f32 product may round up to the next whole number, or not.

    Products below 2**24, counted in units of the last binary digit of `scale`, are not rounded.
    """
    exact = Fraction(scale)
    unrounded = 2**24 // (exact.numerator // (exact.numerator & -exact.numerator))
    if unrounded >= MOST_TRIED:
        return exact, unrounded, unrounded
    sizes = range(1, MOST_TRIED + 1)
    products = np.floor(np.array(sizes, np.float32) * np.float32(scale)).tolist()
    found = []
    for fraction in (exact, exact.limit_denominator(1000)):
        p, q = fraction.numerator, fraction.denominator
        wrong = [n for n, product in zip(sizes, products, strict=True) if n * p // q != product]
        most, most_whole = (next((n for n in wrong if (n % q == 0) == whole), MOST_TRIED + 1) - 1 for whole in (0, 1))
        found.append((fraction, most, most_whole))
    return max(found, key=lambda entry: min(entry[1:]))


@op(since=19)
class Resize(Operator):
    """y[i] = x at the position that coordinate_transformation_mode assigns to i, interpolated according to `mode`."""

    x: In[Any]
    roi: Opt[Float]
    scales: Opt[Float2]
    sizes: Opt[Int64]
    antialias: Attr[int] = 0
    axes: Attr[Ints | None] = None
    coordinate_transformation_mode: Attr[str] = "half_pixel"
    cubic_coeff_a: Attr[float] = -0.75
    exclude_outside: Attr[int] = 0
    extrapolation_value: Attr[float] = 0.0
    keep_aspect_ratio_policy: Attr[str] = "stretch"
    mode: Attr[str] = "nearest"
    nearest_mode: Attr[str] = "round_prefer_floor"
    layout_policy = layout_policies.FollowFirst()
    work = work_rules.moves
    fusion_root = False

    def resized_axes(self, ctx: InferContext) -> list[ResizedAxis]:
        """The axes that change; one whose scale is 1 is left out unless it is cropped."""
        rank = ctx.rank(0)
        axes = ctx.axes(self.axes, rank) if self.axes is not None else tuple(range(rank))
        found = self._by_sizes(ctx, axes) if ctx.has(3) else self._by_scales(ctx, axes)
        if self.coordinate_transformation_mode == "tf_crop_and_resize":
            return self._cropped(ctx, found)
        return [a for a in found if a.size != a.resized or a.scale != 1]

    def _by_scales(self, ctx: InferContext, axes: Sequence[int]) -> list[ResizedAxis]:
        if not ctx.has(2):
            ctx.fail("scales or sizes must be given")
        scales = ctx.data(2)
        if scales is None:
            ctx.unsupported("scales must be known at compile time", found=ctx.types[2])
        if scales.size != len(axes):
            ctx.fail("scales must have a number for each axis", expected=len(axes), found=scales.size)
        if not (np.isfinite(scales).all() and (scales > 0).all()):
            ctx.fail("scales must be positive numbers", found=scales.tolist())
        found = []
        for axis, scale in zip(axes, scales.reshape(-1).astype(np.float32).tolist(), strict=True):
            size = ctx.shape(0)[axis]
            found.append(ResizedAxis(axis, size, _scaled(ctx, size, scale), scale))
        return found

    def _by_sizes(self, ctx: InferContext, axes: Sequence[int]) -> list[ResizedAxis]:
        sizes = ctx.dims(3, "sizes")
        shape = ctx.shape(0)
        if ctx.has(2):
            ctx.fail("only one of scales and sizes may be given")
        if len(sizes) != len(axes):
            ctx.fail("sizes must have a number for each axis", expected=len(axes), found=len(sizes))
        if any(upper_bound(s) < 0 for s in sizes):
            ctx.fail("negative size", found=sizes)
        if self.keep_aspect_ratio_policy != "stretch":
            return self._kept_aspect(ctx, axes, sizes)
        found = []
        for axis, size in zip(axes, sizes, strict=True):
            scale: float | None = 1.0 if size == shape[axis] else None
            have = shape[axis]
            if isinstance(size, int) and isinstance(have, int) and have:
                scale = self._ratio(ctx, Fraction(size, have))
            found.append(ResizedAxis(axis, have, size, scale))
        return found

    def _kept_aspect(self, ctx: InferContext, axes: Sequence[int], sizes: Sequence[Dim]) -> list[ResizedAxis]:
        lengths = [(a, ctx.shape(0)[a]) for a in axes]
        ratios = [Fraction(size, have) for (_, have), size in zip(lengths, sizes, strict=True)
                  if isinstance(size, int) and isinstance(have, int) and have]
        if len(ratios) != len(axes):
            raise UnsupportedOp("keep_aspect_ratio_policy needs sizes known when compiling")
        scale = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        return [ResizedAxis(a, have, math.floor(scale * have + Fraction(1, 2)), self._ratio(ctx, scale))
                for a, have in lengths if isinstance(have, int)]

    @staticmethod
    def _ratio(ctx: InferContext, scale: Fraction) -> float:
        """A scale that nobody wrote as f32: as exact as the coordinates are, f64 for f64 tensors."""
        return float(scale) if ctx.tensor(0).dtype == F64 else float(np.float32(float(scale)))

    def _cropped(self, ctx: InferContext, found: list[ResizedAxis]) -> list[ResizedAxis]:
        """The axes that change or are cropped: all, where only the run knows the roi."""
        count, roi = len(found), ctx.data(1)
        message = "roi must have a start and an end for each axis"
        if not ctx.has(1) or ctx.rank(1) != 1:
            ctx.fail(message, expected=2 * count, found=ctx.types[1] if ctx.has(1) else "nothing")
        ctx.equal(ctx.shape(1)[0], 2 * count, message)
        if roi is None:
            return [replace(a, roi=Places(i, i + count)) for i, a in enumerate(found)]
        flat = roi.tolist()
        ends = zip(flat[:count], flat[count:], strict=True)
        return [replace(a, roi=roi) for a, roi in zip(found, ends, strict=True) if a.scale != 1 or roi != (0, 1)]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        for name, known in (("coordinate_transformation_mode", COORDINATES), ("mode", MODES),
                            ("nearest_mode", ROUNDINGS), ("keep_aspect_ratio_policy", POLICIES)):  # fmt: skip
            if getattr(self, name) not in known:
                ctx.fail(f"unknown {name}", expected=", ".join(known), found=getattr(self, name))
        t = ctx.tensor(0)
        shape = list(ctx.shape(0))
        for a in self.resized_axes(ctx):
            ctx.require_elements((a.size,), (a.resized,), "an empty axis cannot be resized")
            if self.antialias and self.mode != "nearest" and (a.scale is None or a.scale < 1):
                raise UnsupportedOp("antialias where the result is smaller")
            shape[a.axis] = a.resized
        return [TensorType(t.dtype, tuple(shape), t.layout)]

    def row_axis(self, rows: Rows) -> int | None:
        if any(resized.axis == 0 for resized in self.resized_axes(rows.ctx)):
            raise rows.interact("makes rows out of neighbouring rows")
        return row_rules.batch_first(self, rows)
