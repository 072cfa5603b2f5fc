"""Resize: each output element a weighted sum of input elements at computed positions.

Loops: those of `nest` over the result. Positions on outer axes are computed once a row, on the innermost axis once a
vector; channels-last, a row is one pixel and its inputs are whole vectors. Coordinates are f32 without contraction, as
in ONNX Runtime, so that ties fall to the same side; f64 tensors compute in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ....ir.graph import Node
from ....ir.ops.resize import Places, Resize, ResizedAxis
from ....ir.types import BOOL, F32, F64, I64, DType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import register_dtype
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, Row, emit_row, emit_rows, iteration_axes, lane_values, store_lane, strided_index, unit_strides
from .strided import bits_of


@dataclass(frozen=True)
class Tap:
    """One input position on an axis: its element offset, its weight (None = 1), whether it counts (None = yes)."""

    offset: KValue
    weight: KValue | None = None
    inside: KValue | None = None


def _cropped_part(k: Builder, a: ResizedAxis, real: DType) -> tuple[KValue | float, KValue | float, KValue | float]:
    """Start, length and middle of what is taken of an axis, as parts of it; differences and sums are made in f64."""
    assert a.roi is not None
    if not isinstance(a.roi, Places):
        return a.roi[0], a.roi[1] - a.roi[0], 0.5 * (a.roi[0] + a.roi[1])
    first, last = (k.cast(k.load(k["roi"], k.index(i)), F64) for i in (a.roi.start, a.roi.end))
    start, length, middle = (k.cast(part, real) for part in (first, last - first, (first + last) * 0.5))
    return start, length, middle


def original_position(k: Builder, op: Resize, a: ResizedAxis, i: KValue, real: DType) -> KValue:
    """The coordinate in x of output position i (i64, scalar or vector)."""
    x = k.cast(i, real)
    size, resized = k.cast(k.index(a.size), real), k.cast(k.index(a.resized), real)
    scale = k.const(a.scale, real) if a.scale is not None else resized / size
    mode = op.coordinate_transformation_mode
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "align_corners":
        spread = scale * size - 1  # not resized - 1: so the conformance tests have it
        return x * (size - 1) / k.select(spread == 0, k.const(1, real), spread)
    if mode == "tf_crop_and_resize":
        start, length, middle = _cropped_part(k, a, real)
        spread = (size - 1) * start + x * length * (size - 1) / k.max(resized - 1, 1)
        return k.select(resized > 1, spread, k.splat((size - 1) * middle, i.lanes))
    half = (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return k.select(resized > 1, half, k.splat(k.const(0, real), i.lanes))
    if mode == "half_pixel_symmetric":
        return half + size / 2 * (1 - resized / (scale * size))
    return half


def _nearest(k: Builder, rounding: str, x: KValue) -> KValue:
    if rounding == "floor":
        return k.floor(x)  # type: ignore[attr-defined]
    if rounding == "ceil":
        return k.ceil(x)  # type: ignore[attr-defined]
    return k.ceil(x - 0.5) if rounding == "round_prefer_floor" else k.floor(x + 0.5)  # type: ignore[attr-defined]


def cubic_weights(a: float, s: KValue) -> list[KValue]:
    """Keys' kernel at distances 1 + s, s, 1 - s, 2 - s (IEEE ASSP 29, 1981)."""

    def far(d: KValue) -> KValue:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    def near(d: KValue) -> KValue:
        return (d * (a + 2) - (a + 3)) * d * d + 1

    return [far(s + 1), near(s), near(1 - s), far(2 - s)]


def taps(k: Builder, op: Resize, a: ResizedAxis, stride: KValue, i: KValue, real: DType) -> list[Tap]:
    """The input positions that make output position i of one axis."""
    x = original_position(k, op, a, i, real)
    last = k.index(a.size) - 1
    top = k.cast(last, real)
    inside = (x >= 0) & (x <= top) if a.roi is not None else None

    def at(position: KValue) -> KValue:
        return k.clip(k.cast(position, I64), 0, last) * k.splat(stride, i.lanes)

    if op.mode == "nearest":
        return [Tap(at(_nearest(k, op.nearest_mode, x)), None, inside)]
    if op.mode == "linear":
        x = k.clip(x, 0, top)
        low = k.floor(x)  # type: ignore[attr-defined]
        s = x - low
        return [Tap(at(low), 1 - s, inside), Tap(at(low + 1), s, inside)]
    low = k.floor(x)  # type: ignore[attr-defined]
    weights = cubic_weights(op.cubic_coeff_a, x - low)
    positions = [low + (j - 1) for j in range(4)]
    if op.exclude_outside:
        weights = [k.select((p >= 0) & (p <= top), w, 0) for p, w in zip(positions, weights)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return [Tap(at(p), w, inside) for p, w in zip(positions, weights)]


@lowers(Resize, windows="any")
def lower_resize(ctx: LowerContext, node: Node) -> KernelCall:
    """One kernel for all modes."""
    assert isinstance(node.op, Resize)
    op, x, y = node.op, node.operands[0].tensor, node.output.tensor
    resized = op.resized_axes(node.context())
    moved = {a.axis for a in resized}
    strides = [y.strides, tuple(0 if a in moved else s for a, s in enumerate(x.strides)),
               *(unit_strides(x.rank, a.axis) for a in resized)]
    axes = iteration_axes(y, strides)
    weighted = op.mode != "nearest" and bool(resized)
    dtype = x.dtype if weighted or op.coordinate_transformation_mode == "tf_crop_and_resize" else bits_of(x.dtype)
    lanes = ctx.lanes if dtype.nbytes >= 4 or all(row[-1] == 0 for row in axes.strides[2:]) else 1
    site = _Site(op, resized, tuple(x.strides[a.axis] for a in resized), dtype, F64 if x.dtype == F64 else F32)

    roi = [node.operands[1]] if any(isinstance(a.roi, Places) for a in resized) else []

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("x", PtrType(dtype)), *(("roi", PtrType(v.tensor.dtype)) for v in roi),
                              ("y", PtrType(dtype))])  # fmt: skip
        k.func.exact = not weighted

        def row(r: Row) -> None:
            fixed = {j: site.taps(k, j, r.bases[2 + j]) for j in range(len(resized)) if axes.strides[2 + j][-1] == 0}
            emit_row(k, axes, lanes, lambda lane: site.element(k, lane, fixed), r, 1)

        emit_rows(k, axes, row)
        return k.func

    func = ctx.function("resize", node, build, tuple(resized))
    return KernelCall(func, (node.operands[0], *roi, node.output), axes.work, node.name, nbytes=x.nbytes + y.nbytes)


@dataclass(frozen=True)
class _Site:
    """What one Resize computes; lane operands are y, x, and the coordinates on the resized axes."""

    op: Resize
    resized: Sequence[ResizedAxis]
    strides: tuple
    dtype: DType
    real: DType

    def taps(self, k: Builder, j: int, i: KValue) -> list[Tap]:
        return taps(k, self.op, self.resized[j], k.index(self.strides[j]), i, self.real)

    def element(self, k: Builder, lane: Lane, fixed: dict[int, list[Tap]]) -> None:
        """Sum the taps' products and store."""
        per_axis = [fixed[j] if j in fixed else self.taps(k, j, lane_values(k, lane, 2 + j))
                    for j in range(len(self.resized))]
        total: KValue | None = None
        for combination in product(*per_axis):
            value = self._load(k, lane, combination)
            weight: KValue | None = None
            for tap in combination:
                if tap.weight is not None:
                    weight = tap.weight if weight is None else k.binary("mul", weight, tap.weight)
            if weight is not None:
                value = k.cast(value, self._sum_type())
                weight = k.splat(k.cast(weight, value.dtype), lane.lanes)
                total = weight * value if total is None else k.fma(weight, value, total)
            else:
                total = value
        assert total is not None
        store_lane(k, k["y"], lane, 0, self._extrapolated(k, total, per_axis))

    def _sum_type(self) -> DType:
        wide = register_dtype(self.dtype)
        return wide if wide.is_float else F32

    def _load(self, k: Builder, lane: Lane, combination: Sequence[Tap]) -> KValue:
        scalar, vector = lane.offsets[1], None
        for tap in combination:
            if tap.offset.lanes > 1:
                vector = tap.offset if vector is None else vector + tap.offset
            else:
                scalar = scalar + tap.offset
        step = lane.steps[1]
        if vector is not None:
            return k.gather(k["x"], vector + k.splat(scalar, lane.lanes), lane.mask)
        if lane.lanes == 1 or step == 0:
            return k.splat(k.load(k["x"], scalar), lane.lanes)
        if step == 1:
            return k.load(k["x"], scalar, lane.lanes, lane.mask)
        return k.gather(k["x"], strided_index(k, scalar, step, lane.lanes), lane.mask)

    def _extrapolated(self, k: Builder, total: KValue, per_axis: Sequence[Sequence[Tap]]) -> KValue:
        """The result as the output's type; `extrapolation_value` where a coordinate lies outside."""
        for tap in (t[0] for t in per_axis if t[0].inside is not None):
            total = k.cast(total, self._sum_type()) if self.dtype != BOOL else total
            assert tap.inside is not None
            inside = k.splat(tap.inside, total.lanes)
            total = k.select(inside, total, k.splat(k.const(self.op.extrapolation_value, total), total.lanes))
        return k.cast(total, self.dtype)
