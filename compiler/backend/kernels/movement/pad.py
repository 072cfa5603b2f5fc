"""Pad: rows of the result, each a vector copy of the middle between two margins.

Loops: `for each row of y: find the source row by mapping its outer indices; left margin; copy; right margin`. Margins
of a constant are stored in vectors, mirrored or repeated ones element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.dim import exact_max
from ....ir.graph import Node
from ....ir.ops.slicing import Pad, kept_size
from ....ir.types import Dim, TensorType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import decode, emit_span, strided_index
from .strided import bits_of


@dataclass(frozen=True)
class PadAxis:
    """Sizes in x and y, the width before x in y, and the element strides."""

    x: Dim
    y: Dim
    before: Dim
    x_stride: Dim
    y_stride: Dim

    @property
    def is_padded(self) -> bool:
        return self.before != 0 or self.x != self.y

    def joins(self, inner: PadAxis, constant: bool) -> bool:
        """Whether this axis and the next inner one are one: a margin of whole inner rows is fine if it is constant."""
        dense = self.x_stride == inner.x_stride * inner.x and self.y_stride == inner.y_stride * inner.y
        return dense and not inner.is_padded and (constant or not self.is_padded)

    def join(self, inner: PadAxis) -> PadAxis:
        return PadAxis(self.x * inner.x, self.y * inner.y, self.before * inner.x, inner.x_stride, inner.y_stride)


def pad_axes(x: TensorType, y: TensorType, widths: Sequence[tuple[Dim, Dim]], constant: bool) -> list[PadAxis]:
    """The axes in y's memory order, joined where possible; without what is cropped, where margins repeat the rest."""
    axes: list[PadAxis] = []
    for a in y.axis_order:
        before, after = widths[a]
        size = x.dims[a]
        if not constant:
            size = kept_size(size, before, after)
            before = exact_max(before, 0)
        axis = PadAxis(size, y.dims[a], before, x.strides[a], y.strides[a])
        if axis.x == 1 and not axis.is_padded:
            continue
        if axes and axes[-1].joins(axis, constant):
            axes[-1] = axes[-1].join(axis)
        else:
            axes.append(axis)
    return axes or [PadAxis(1, 1, 0, 1, 1)]


def first_kept(x: TensorType, widths: Sequence[tuple[Dim, Dim]]) -> Dim:
    """The offset of the first element that is not cropped."""
    return sum((exact_max(-before, 0) * stride for (before, _), stride in zip(widths, x.strides)), start=0)


def source_position(k: Builder, mode: str, i: KValue, n: KValue) -> KValue:
    """The position in [0, n) that a position in the margin repeats."""
    if mode == "edge":
        return k.max(k.min(i, n - 1), 0)
    period = n if mode == "wrap" else k.max(n * 2 - 2, 1)
    phase = k.binary("rem", k.binary("rem", i, period) + period, period)
    return phase if mode == "wrap" else k.select(phase < n, phase, period - phase)


@lowers(Pad)
def lower_pad(ctx: LowerContext, node: Node) -> KernelCall:
    """One kernel for all modes."""
    assert isinstance(node.op, Pad)
    mode, context = node.op.mode, node.context()
    x, y = node.operands[0], node.output
    value = node.inputs[2] if len(node.inputs) > 2 else None
    widths = node.op.widths(context)
    axes = pad_axes(x.tensor, y.tensor, widths, mode == "constant")
    origin = 0 if mode == "constant" else first_kept(x.tensor, widths)
    bits = bits_of(x.tensor.dtype)
    lanes = ctx.lanes * 4 // max(4, bits.nbytes)

    def build(name: str) -> KFunc:
        names = ("x", "y", "value") if value is not None else ("x", "y")
        k = ctx.kernel(name, [(n, PtrType(bits)) for n in names])
        fill = k.load(k["value"], 0) if value is not None else k.const(0, bits)
        k.for_(k["begin"], k["end"], 1, [], lambda work, _: _row(k, axes, origin, mode, lanes, fill, work))
        return k.func

    func = ctx.function("pad", node, build, (*axes, origin))
    operands = (x, y, value) if value is not None else (x, y)
    return KernelCall(func, operands, prod(a.y for a in axes[:-1]), node.name, nbytes=2 * y.tensor.nbytes)


def _row(
    k: Builder, axes: list[PadAxis], origin: Dim, mode: str, lanes: int, fill: KValue, work: KValue
) -> None:  # fmt: skip
    x_at, y_at = k.index(origin), k.index(0)
    inside: KValue | None = None
    for a, i in zip(axes[:-1], decode(k, work, [a.y for a in axes[:-1]]) if len(axes) > 1 else ()):
        y_at = y_at + i * k.index(a.y_stride)
        source = i - k.index(a.before)
        if a.is_padded and mode == "constant":
            here = (source >= 0) & (source < k.index(a.x))
            inside = here if inside is None else inside & here
        elif a.is_padded:
            source = source_position(k, mode, source, k.index(a.x))
        x_at = x_at + source * k.index(a.x_stride)
    inner = axes[-1]
    size, before = k.index(inner.y), k.index(inner.before)
    low = k.min(k.max(before, 0), size)
    high = k.max(k.min(before + k.index(inner.x), size), low)

    def copy(i: KValue, n: int, mask: KValue | None) -> None:
        at = x_at + (i - before) * k.index(inner.x_stride)
        if inner.x_stride == 1 or n == 1:
            value = k.load(k["x"], at, n, mask)
        else:
            value = k.gather(k["x"], strided_index(k, at, inner.x_stride, n), mask)
        k.store(k["y"], y_at + i, value, mask)

    def margin(begin: KValue, end: KValue) -> None:
        if mode == "constant":
            emit_span(k, begin, end, lanes, lambda i, n, mask: k.store(k["y"], y_at + i, k.splat(fill, n), mask))
            return

        def one(i: KValue, _: list[KValue]) -> None:
            at = source_position(k, mode, i - before, k.index(inner.x))
            k.store(k["y"], y_at + i, k.load(k["x"], x_at + at * k.index(inner.x_stride)))

        k.for_(begin, end, 1, [], one)

    def row() -> None:
        if inner.is_padded:
            margin(k.index(0), low)
        emit_span(k, low, high, lanes, copy)
        if inner.is_padded:
            margin(high, size)

    if inside is None:
        row()
    else:
        k.if_(inside, row, lambda: margin(k.index(0), size))
