"""The axes of a Pad as kernels walk them: in the result's memory order, joined where one loop serves for several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.dim import exact_max
from ....ir.ops.slicing import kept_size
from ....ir.types import Dim, TensorType


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


__all__ = ["PadAxis", "first_kept", "pad_axes"]
