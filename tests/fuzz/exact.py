"""onnx.reference with its mistakes mended: what it rounds to float32 on the way, or computes wrong in any type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from parax.compiler.shrinking.graphs import all_nodes

from . import exact_control, exact_recurrent, exact_sampling, exact_windows

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Erf(OpRun):  # type: ignore[misc]
    """onnx.reference's own gives float32 numbers in whatever type."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.asarray(_erf(x.astype(np.float64))).astype(x.dtype),)


class Gelu(OpRun):  # type: ignore[misc]
    """The body that defines it has constants in float32."""

    def _run(self, x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        wide = x.astype(np.float64)
        if approximate == "tanh":
            gate = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
        else:
            gate = np.asarray(_erf(wide / math.sqrt(2)))
        return (np.asarray(0.5 * wide * (1 + gate)).astype(x.dtype),)


class LRN(OpRun):  # type: ignore[misc]
    """onnx.reference's own counts images instead of channels."""

    def _run(
        self, x: np.ndarray, alpha: float = float(np.float32(1e-4)), beta: float = 0.75, bias: float = 1.0,
        size: int = 1,
    ) -> tuple[np.ndarray]:  # fmt: skip
        alpha, beta, bias = float(alpha), float(beta), float(bias)  # np.float32 would round what is made of them
        wide = x.astype(np.float64)
        before, after = (size - 1) // 2, size // 2
        padded = np.pad(wide**2, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        squares = sum((padded[:, i : i + x.shape[1]] for i in range(size)), np.zeros_like(wide))
        return ((wide / (bias + alpha / size * squares) ** beta).astype(x.dtype),)


class MeanVarianceNormalization(OpRun):  # type: ignore[misc]
    """Its definition has constants in float32, which do not go with float64."""

    def _run(self, x: np.ndarray, axes: list[int] | None = None) -> tuple[np.ndarray]:
        over, wide = tuple(axes or (0, 2, 3)), x.astype(np.float64)
        centred = wide - wide.mean(over, keepdims=True)
        return ((centred / (np.sqrt((centred**2).mean(over, keepdims=True)) + 1e-9)).astype(x.dtype),)


class Softsign(OpRun):  # type: ignore[misc]
    """onnx.reference's own cannot do numbers of no axes."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.asarray(x / (1 + np.abs(x)), x.dtype),)


class LogSoftmax(OpRun):  # type: ignore[misc]
    """onnx.reference's own is the logarithm of what may have become 0."""

    def _run(self, x: np.ndarray, axis: int = -1) -> tuple[np.ndarray]:
        wide = x.astype(np.float64)
        shifted = wide - wide.max(axis, keepdims=True, initial=-np.inf)
        return (np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))).astype(x.dtype),)


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """onnx.reference's own drops an axis."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


class PRelu(OpRun):  # type: ignore[misc]
    """onnx.reference's own multiplies 0, by an infinite slope too."""

    def _run(self, x: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray]:
        return (np.where(x < 0, x * slope, x).astype(x.dtype),)


class Mean(OpRun):  # type: ignore[misc]
    """onnx.reference's own adds in place, and fails where a later operand is larger."""

    def _run(self, *xs: np.ndarray) -> tuple[np.ndarray]:
        total = sum((x.astype(np.float64) for x in xs), np.zeros(()))
        return (np.asarray(total / len(xs)).astype(xs[0].dtype),)


class LpNormalization(OpRun):  # type: ignore[misc]
    """onnx.reference's own sums elements instead of their magnitudes."""

    def _run(self, x: np.ndarray, axis: int = -1, p: int = 2) -> tuple[np.ndarray]:
        wide = x.astype(np.float64)
        norm = (np.abs(wide) ** p).sum(axis, keepdims=True) ** (1.0 / p)
        return (np.where(norm == 0, 0.0, wide / norm).astype(x.dtype),)


class GlobalLpPool(OpRun):  # type: ignore[misc]
    """onnx.reference has none."""

    def _run(self, x: np.ndarray, p: int = 2) -> tuple[np.ndarray]:
        total = (np.abs(x.astype(np.float64)) ** p).sum(tuple(range(2, x.ndim)), keepdims=True)
        return ((total ** (1.0 / p)).astype(x.dtype),)


class _Integers(OpRun):  # type: ignore[misc]
    """Sums of integers wrap around; onnx.reference's own widen some of them."""

    def _run(self, x: np.ndarray, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
             ) -> tuple[np.ndarray]:  # fmt: skip
        if axes is None or np.size(axes) == 0:
            if noop_with_empty_axes:
                return (np.asarray(self.mapped(x)),)
            axes = range(x.ndim)
        over = tuple(int(a) for a in np.asarray(list(axes)).ravel())
        return (np.asarray(self.mapped(x).sum(over, keepdims=bool(keepdims), dtype=x.dtype)),)

    def mapped(self, x: np.ndarray) -> np.ndarray:
        """What is summed."""
        return x


class ReduceSum(_Integers):
    """Of x."""


class ReduceSumSquare(_Integers):
    """Of x²."""

    def mapped(self, x: np.ndarray) -> np.ndarray:
        return x * x


class ReduceL1(_Integers):
    """Of |x|."""

    def mapped(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x)


class ReduceMean(_Integers):
    """Of integers, towards 0. onnx.reference's own divides in float64, which has no room for large ones."""

    def _run(self, x: np.ndarray, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
             ) -> tuple[np.ndarray]:  # fmt: skip
        (total,) = super()._run(x, axes, keepdims, noop_with_empty_axes)
        n = x.size // total.size if total.size else 1
        if x.dtype.kind not in "iu" or n == 0:
            with np.errstate(all="ignore"):
                return (np.asarray(total.astype(np.float64) / n).astype(x.dtype),)
        wide = total if x.dtype == np.uint64 else total.astype(np.int64)
        whole = wide // wide.dtype.type(n)
        return ((whole + ((whole < 0) & (whole * n != wide)).astype(wide.dtype)).astype(x.dtype),)


class ReduceLogSumExp(OpRun):  # type: ignore[misc]
    """onnx.reference's own makes no arrays of scalars, and NaN of -inf alone."""

    def _run(self, x: np.ndarray, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
             ) -> tuple[np.ndarray]:  # fmt: skip
        if axes is None or np.size(axes) == 0:
            if noop_with_empty_axes:
                return (np.asarray(x),)
            axes = range(x.ndim)
        over, wide = tuple(int(a) for a in np.asarray(list(axes)).ravel()), np.asarray(x, np.float64)
        greatest = wide.max(over, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(greatest), greatest, 0.0)
        total = np.log(np.exp(wide - shift).sum(over, keepdims=True)) + shift
        return (np.asarray(total if keepdims else np.squeeze(total, over)).astype(x.dtype),)


class DynamicQuantizeLinear(OpRun):  # type: ignore[misc]
    """ONNX's formula, in float32. Others give what is all zeros a scale of their own."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        x = x.astype(np.float32)
        low, high = (np.float32(f(0, g(x, initial=0))) for f, g in ((np.minimum, np.min), (np.maximum, np.max)))
        scale = np.float32((high - low) / np.float32(255))
        zero = np.uint8(np.nan_to_num(np.clip(np.rint(-low / scale), 0, 255)))
        y = np.clip(np.rint(x / scale) + np.float32(zero), 0, 255)
        return np.nan_to_num(y).astype(np.uint8), np.asarray(scale), np.asarray(zero)


def _along_axis(v: np.ndarray | None, x: np.ndarray, axis: int, block_size: int) -> np.ndarray:
    """A scale or a zero point, to be broadcast to x."""
    if v is None:
        return np.zeros(())
    if block_size:
        return np.repeat(v, block_size, axis)[tuple(map(slice, x.shape))]
    return v if v.ndim == 0 else v.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])


class QuantizeLinear(OpRun):  # type: ignore[misc]
    """onnx.reference has none for older operator sets."""

    def _run(self, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, axis: int = 1,
             block_size: int = 0, output_dtype: int = 0, **_: Any) -> tuple[np.ndarray]:  # fmt: skip
        made = zero.dtype if zero is not None else onnx.helper.tensor_dtype_to_np_dtype(output_dtype or 2)
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
        ratio = np.rint(wide / _along_axis(scale.astype(wide.dtype), x, axis, block_size))
        limits = np.iinfo(made)  # of other types: ValueError, nobody is asked
        y = np.clip(ratio + _along_axis(zero, x, axis, block_size).astype(np.float64), limits.min, limits.max)
        return (np.nan_to_num(y).astype(made),)


class DequantizeLinear(OpRun):  # type: ignore[misc]
    """As QuantizeLinear."""

    def _run(self, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, axis: int = 1,
             block_size: int = 0, **_: Any) -> tuple[np.ndarray]:  # fmt: skip
        np.iinfo(x.dtype)
        number = x.astype(np.float64) - _along_axis(zero, x, axis, block_size).astype(np.float64)
        return ((number * _along_axis(scale, x, axis, block_size).astype(np.float64)).astype(scale.dtype),)


class Pad(OpRun):  # type: ignore[misc]
    """onnx.reference's own cannot take anything away."""

    def _run(self, data: np.ndarray, pads: np.ndarray, value: np.ndarray | None = None, axes: np.ndarray | None = None,
             mode: str = "constant") -> tuple[np.ndarray]:  # fmt: skip
        kind = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}.get(mode or "constant", "constant")
        chosen = list(range(data.ndim)) if axes is None else [int(a) % data.ndim for a in axes]
        ends = [(0, 0)] * data.ndim
        for i, axis in enumerate(chosen):
            ends[axis] = (int(pads[i]), int(pads[i + len(chosen)]))
        kept = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(ends, data.shape, strict=True))
        added = [(max(a, 0), max(b, 0)) for a, b in ends]
        more = {} if kind != "constant" else {"constant_values": 0 if value is None else np.asarray(value).item()}
        return (np.pad(data[kept], added, kind, **more).astype(data.dtype),)  # type: ignore[call-overload]


class Slice(OpRun):  # type: ignore[misc]
    """onnx.reference's own takes starts and ends as numpy does, not clamped as ONNX has it."""

    def _run(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None,
             steps: np.ndarray | None = None) -> tuple[np.ndarray]:  # fmt: skip
        kept = [np.arange(n) for n in data.shape]
        axes = np.arange(len(starts)) if axes is None else axes
        steps = np.ones(len(starts), np.int64) if steps is None else steps
        for axis, start, end, step in zip(*(map(int, v) for v in (axes, starts, ends, steps)), strict=True):
            n = data.shape[axis]
            low, high = (0, n) if step > 0 else (-1, n - 1)
            start = min(max(start + n * (start < 0), 0), high)
            end = min(max(end + n * (end < 0), low), high)
            kept[axis] = np.arange(start, end, step)
        return (data[np.ix_(*kept)] if kept else data,)


class GatherElements(OpRun):  # type: ignore[misc]
    """onnx.reference's own refuses indices that are smaller than the data along other axes."""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
        axis %= data.ndim
        kept = tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))
        places = np.where(indices < 0, indices + data.shape[axis], indices)
        return (np.take_along_axis(data[kept], places, axis),)


class QLinearConv(OpRun):  # type: ignore[misc]
    """onnx.reference's own adds the bias along another axis where there is one axis of space."""

    def _run(self, x: np.ndarray, x_scale: np.ndarray, x_zero: np.ndarray, w: np.ndarray, w_scale: np.ndarray,
             w_zero: np.ndarray, y_scale: np.ndarray, y_zero: np.ndarray, b: np.ndarray | None = None,
             group: int = 1, **given: Any) -> tuple[np.ndarray]:  # fmt: skip
        def along(v: np.ndarray, axis: int) -> np.ndarray:
            return np.asarray(v).reshape([-1 if a == axis else 1 for a in range(x.ndim)])

        left, right = x.astype(np.float64) - x_zero, w.astype(np.float64) - along(w_zero, 0)
        total = exact_windows.convolve(left, right, None if b is None else b.astype(np.float64), group, given)
        x_scale, w_scale, y_scale = (np.asarray(v, np.float64) for v in (x_scale, w_scale, y_scale))
        scaled = total * (x_scale * along(w_scale, 1) / y_scale)
        limits = np.iinfo(y_zero.dtype)
        return (np.clip(np.rint(scaled) + y_zero, limits.min, limits.max).astype(y_zero.dtype),)


class Gemm(OpRun):  # type: ignore[misc]
    """onnx.reference's own multiplies integers by alpha as floats."""

    def _run(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, alpha: float = 1.0, beta: float = 1.0,
        transA: int = 0, transB: int = 0,
    ) -> tuple[np.ndarray]:  # fmt: skip
        if a.dtype.kind in "iu":
            if alpha != 1.0 or (c is not None and beta != 1.0):
                raise ValueError("ONNX does not say how an integer times alpha is rounded")
            product = (a.T if transA else a) @ (b.T if transB else b)
            return ((product if c is None else product + c).astype(a.dtype),)
        left, right = a.astype(np.float64), b.astype(np.float64)
        product = alpha * ((left.T if transA else left) @ (right.T if transB else right))
        return ((product if c is None or beta == 0.0 else product + beta * c.astype(np.float64)).astype(a.dtype),)


OPERATORS = (
    Erf, Gelu, LRN, LogSoftmax, MeanVarianceNormalization, Softsign, GlobalMaxPool, Gemm, exact_control.Loop,
    exact_control.Scan, PRelu, Mean, LpNormalization, GlobalLpPool, ReduceMean, ReduceSum, ReduceSumSquare, ReduceL1,
    ReduceLogSumExp, DynamicQuantizeLinear, QuantizeLinear, DequantizeLinear, Pad, Slice, GatherElements, QLinearConv,
    *exact_recurrent.OPERATORS, *exact_sampling.OPERATORS, *exact_windows.OPERATORS,
)  # fmt: skip


def evaluator(model: onnx.ModelProto) -> Any:
    """An onnx.reference evaluator of the model."""
    return ReferenceEvaluator(_named(model), new_ops=list(OPERATORS))


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name for every result: onnx.reference hands one without to operands that are left out."""
    if all(all(node.output) for node in all_nodes(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for number, node in enumerate(all_nodes(copy.graph)):
        node.output[:] = [name or f"unused_{number}_{i}" for i, name in enumerate(node.output)]
    return copy


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's outputs."""
    session = evaluator(model)
    return dict(zip(session.output_names, session.run(None, feeds), strict=True))
