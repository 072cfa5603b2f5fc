"""Sliding windows of convolutions and pools: pads, strides and output size resolved, for symbolic sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import InvalidModel
from ..types import Dim, Shape, at_least, ceil_div, dim_max, dim_min, exact_min, floor_div
from .attributes import Ints
from .context import InferContext

LARGER_WINDOW = "the window is larger than the padded input"


@dataclass(frozen=True)
class WindowGeometry:
    """One entry per spatial axis. Pads are ints unless auto_pad meets a symbolic size at a stride > 1."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads_begin: Shape
    pads_end: Shape
    input: Shape
    output: Shape

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def extent(self) -> Ints:
        """Input positions that a window spans: (kernel - 1) * dilation + 1."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_pointwise(self) -> bool:
        """A 1x1 window of stride 1 without pads."""
        pads = (*self.pads_begin, *self.pads_end)
        return all(k == 1 for k in self.kernel) and all(s == 1 for s in self.strides) and all(p == 0 for p in pads)


def per_axis(values: Sequence[int] | None, rank: int, default: int, what: str, at_least: int = 1) -> Ints:
    """An attribute with one int per spatial axis, or the default for each. Raises InvalidModel."""
    if values is None:
        return (default,) * rank
    if len(values) != rank or any(v < at_least for v in values):
        raise InvalidModel(f"malformed {what}", expected=f"{rank} integers >= {at_least}", found=list(values))
    return tuple(values)


def window_geometry(
    spatial: Shape,
    kernel: Ints,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> WindowGeometry:
    """Resolves a window over `spatial` input sizes, as ONNX's Conv and pools define it. Raises InvalidModel.

    With `ceil_mode`, windows that would start in the end padding are left out (ONNX 19 and ONNX Runtime).
    """
    rank = len(spatial)
    kernel = per_axis(kernel, rank, 1, "kernel_shape")
    strides = per_axis(strides, rank, 1, "strides")
    dilations = per_axis(dilations, rank, 1, "dilations")
    begin: list[Dim] = []
    end: list[Dim] = []
    if auto_pad in ("NOTSET", ""):
        if pads is not None and (len(pads) != 2 * rank or any(p < 0 for p in pads)):
            raise InvalidModel("malformed pads", expected=f"{2 * rank} integers >= 0", found=list(pads))
        given = tuple(pads) if pads is not None else (0,) * (2 * rank)
        begin, end = list(given[:rank]), list(given[rank:])
    elif auto_pad == "VALID":
        begin, end = [0] * rank, [0] * rank
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
            total = same_padding(size, k, s, d)
            low = floor_div(total, 2) if auto_pad == "SAME_UPPER" else ceil_div(total, 2)
            begin.append(low)
            end.append(total - low)
    else:
        raise InvalidModel("unknown auto_pad", expected="NOTSET, VALID, SAME_UPPER or SAME_LOWER", found=auto_pad)
    if auto_pad.startswith("SAME"):
        output = tuple(ceil_div(size, s) for size, s in zip(spatial, strides, strict=True))
    else:
        output = tuple(
            _output_size(spatial[i], kernel[i], strides[i], dilations[i], begin[i], end[i], ceil_mode)
            for i in range(rank)
        )
    return WindowGeometry(kernel, strides, dilations, tuple(begin), tuple(end), spatial, output)


def require_windows(ctx: InferContext, geometry: WindowGeometry, auto_pad: str) -> None:
    """Constrains symbols: the padded input must hold a window. SAME pads it until it does."""
    if auto_pad.startswith("SAME"):
        return
    sizes = zip(geometry.input, geometry.pads_begin, geometry.pads_end, geometry.extent, strict=True)
    for size, begin, end, extent in sizes:
        padded = size + begin + end
        if not at_least(padded, extent):
            ctx.equal(exact_min(padded, extent), extent, LARGER_WINDOW)


def same_padding(size: Dim, kernel: int, stride: int, dilation: int) -> Dim:
    """Total padding of an axis so that the output has ceil(size / stride) positions."""
    extent = (kernel - 1) * dilation + 1
    return dim_max((ceil_div(size, stride) - 1) * stride + extent - size, 0)


def _output_size(size: Dim, kernel: int, stride: int, dilation: int, begin: Dim, end: Dim, ceil_mode: bool) -> Dim:
    extent = (kernel - 1) * dilation + 1
    span = size + begin + end - extent
    if isinstance(span, int) and span < 0:
        raise InvalidModel(LARGER_WINDOW, expected=f"at least {extent}", found=span + extent)
    if not ceil_mode:
        return floor_div(span, stride) + 1
    # the last window must start inside the input or the padding before it
    return dim_min(ceil_div(span, stride) + 1, ceil_div(size + begin, stride))
