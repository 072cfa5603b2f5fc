"""A convolution as stride-1 convolutions side by side, and what of it one tile of pixels computes.

Outputs o = stride · i + phase of an axis of a transposed convolution read consecutive inputs for consecutive i: each
phase is a convolution of stride 1 with taps of its own (the sub-pixel view: Shi et al., "Is the deconvolution layer the
same as a convolutional layer?", 2016). A plain convolution of stride 1 has a single phase. Owns which layers can be
seen so; whether it pays, and the loops, are `conv_narrow`'s and `narrow_lines`'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....ir.graph import Value
from ....ir.ops.geometry import WindowGeometry
from ....ir.types import BF16, F16, F32, TensorType, ceil_div
from ...fusion import Fusion
from ..tail import tail_of
from .weights import ConvShape

REGISTER = 16  # pixels, at most
L1_NBYTES = 24 << 10  # for the planes of a group's line
LEAST_WIDTH = 64  # pixels of a line, where the image has as many


@dataclass(frozen=True)
class Phase:
    """The taps that meet the outputs of one phase of an axis; tap `taps[n]` reads input i + `shifts[n]`, ascending."""

    taps: tuple[int, ...]
    shifts: tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """Outputs of a group and line that one tile computes.

    Attributes:
        row, channel: the first output's, among the line's outputs [phase][channel of all groups] and of the group.
        shift: added to those of `reads`.
        outputs: (row, channel) of each, relative to the first. reads: shifts, each with the outputs that it feeds.
        feeds: (phase, channel, number of its tap) in the order of `reads`.
    """

    row: int
    channel: int
    shift: int
    outputs: tuple[tuple[int, int], ...]
    reads: tuple[tuple[int, tuple[int, ...]], ...]
    feeds: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of(columns: tuple[Phase, ...], pairs: list[tuple[int, int]], n_channels: int) -> Chunk:
        """The outputs `pairs` of (phase, channel of the group), of `n_channels` in all groups."""
        uses: dict[int, list[tuple[int, int]]] = {}
        for number, (phase, _) in enumerate(pairs):
            for at, shift in enumerate(columns[phase].shifts):
                uses.setdefault(shift, []).append((number, at))
        low = min(uses, default=0)
        phase0, channel0 = pairs[0]
        return Chunk(
            phase0 * n_channels + channel0,
            channel0,
            low,
            tuple(((phase - phase0) * n_channels + c - channel0, c - channel0) for phase, c in pairs),
            tuple((shift - low, tuple(number for number, _ in own)) for shift, own in sorted(uses.items())),
            tuple((*pairs[number], at) for _, own in sorted(uses.items()) for number, at in own),
        )


@dataclass(frozen=True)
class Sizes:
    """How the work is cut.

    Attributes:
        lanes, vectors: of a tile's pixels. left: zeros before a line's first column. pitch: columns of a plane's line.
        block: lines of each phase in a work item. span: input lines under one output line. first: the input line under
            output line 0 of any phase. pixels: of a phase's line, in whole registers.
    """

    lanes: int
    vectors: int
    left: int
    pitch: int
    block: int
    span: int
    first: int
    pixels: int


@dataclass(frozen=True)
class Narrow:
    """A layer as stride-1 convolutions, side by side.

    Attributes:
        weights: the model's as [group, output, input, line tap, column tap]. bias: per channel. lines, columns: the
            axes' phases.
        height, width: of the input; line_step, pixel_step: elements between its lines and its pixels.
        out_height, out_width: of the result, whose lines follow each other.
    """

    x: Value
    y: TensorType
    weights: np.ndarray
    bias: np.ndarray | None
    lines: tuple[Phase, ...]
    columns: tuple[Phase, ...]
    height: int
    width: int
    line_step: int
    pixel_step: int
    out_height: int
    out_width: int

    @property
    def groups(self) -> int:
        return self.weights.shape[0]

    @property
    def inputs(self) -> int:
        """Channels of a group."""
        return self.weights.shape[2]

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return self.groups * self.weights.shape[1]

    @property
    def pixels(self) -> int:
        """Of a line and phase."""
        return ceil_div(self.out_width, len(self.columns))

    @property
    def n_lines(self) -> int:
        """Of a phase."""
        return ceil_div(self.out_height, len(self.lines))

    @property
    def pointwise(self) -> bool:
        """Whether an output reads one pixel: nothing of a line's planes is read for the next one."""
        return all(len(axis) == 1 and len(axis[0].taps) == 1 for axis in (self.lines, self.columns))

    @property
    def most_line_taps(self) -> int:
        return max(len(p.taps) for p in self.lines)

    @property
    def line_shift(self) -> int:
        """Input lines between consecutive line taps of a phase: the same in all of them."""
        return next((p.shifts[1] - p.shifts[0] for p in self.lines if len(p.shifts) > 1), 1)

    @property
    def multiply_adds(self) -> int:
        """Of one image, with every phase's lines and pixels taken as whole."""
        taps = sum(len(p.taps) for p in self.lines) * sum(len(p.taps) for p in self.columns)
        return self.n_lines * self.pixels * taps * self.outputs * self.inputs


def conv_phase(kernel: int, dilation: int, pad: int) -> tuple[Phase, ...]:
    """The one phase of an axis of a convolution of stride 1."""
    return (Phase(tuple(range(kernel)), tuple(t * dilation - pad for t in range(kernel))),)


def transposed_phases(kernel: int, stride: int, dilation: int, pad: int) -> tuple[Phase, ...]:
    """Output stride · i + r takes tap t from input i + (r + pad - t · dilation) / stride, where that is whole."""
    phases = []
    for r in range(stride):
        pairs = [
            ((r + pad - t * dilation) // stride, t) for t in range(kernel) if (r + pad - t * dilation) % stride == 0
        ]
        phases.append(Phase(tuple(t for _, t in sorted(pairs)), tuple(shift for shift, _ in sorted(pairs))))
    return tuple(phases)


def narrow_conv(fusion: Fusion, s: ConvShape) -> Narrow | None:
    """A convolution of stride 1, None where its sizes are not known or it is not one that this kernel can serve."""
    g = s.geometry
    ready = s.tiled and s.constant and s.channels_last_input and s.merged == 1
    if not ready or any(n != 1 for n in g.strides) or not _served(fusion, s.x, s.b, g):
        return None
    phases = [conv_phase(*sizes) for sizes in zip(g.kernel, g.dilations, g.pads_begin)]  # type: ignore[arg-type]
    assert s.w.data is not None
    w = s.w.data.reshape(s.groups, s.group_outputs, s.group_inputs, *g.kernel)
    return _flattened(_narrow(s.x, s.y, s.b, g, w, phases), s.pointwise)


def narrow_transposed(
    fusion: Fusion, x: Value, w: Value, b: Value | None, g: WindowGeometry, groups: int
) -> Narrow | None:
    """The same of a transposed convolution with constant weights, channels-last."""
    if not _served(fusion, x, b, g):
        return None
    sizes = zip(g.kernel, g.strides, g.dilations, g.pads_begin)
    phases = [transposed_phases(*n) for n in sizes]  # type: ignore[arg-type]
    assert w.data is not None
    n_in, n_out, *taps = w.data.shape
    weights = w.data.reshape(groups, n_in // groups, n_out, *taps).swapaxes(1, 2)
    return _narrow(x, fusion.result.tensor, b, g, weights, phases)


def _served(fusion: Fusion, x: Value, b: Value | None, g: WindowGeometry) -> bool:
    """Whether types, sizes and tail are what the loops can do."""
    y = fusion.result.tensor
    sizes = (*g.input, *g.output, *g.pads_begin, *x.tensor.strides[2:])  # an input's channels may be a symbol
    static = all(isinstance(n, int) and n >= 0 for n in sizes) and g.rank <= 2
    if not static or x.tensor.dtype != F32 or len(fusion.outputs) != 1 or 0 in (*g.input, *g.output):
        return False
    if fusion.outputs[0][1].tensor.dtype not in (F32, F16, BF16) or y.pitch != y.dims[1]:
        return False
    constant_bias = b is None or (b.data is not None and b.producer is None)
    return constant_bias and all(kind in ("column", "scalar") for kind in tail_of(fusion, ()).kinds)


def _narrow(
    x: Value, y: TensorType, b: Value | None, g: WindowGeometry, weights: np.ndarray, phases: list[tuple[Phase, ...]]
) -> Narrow:
    """One or two axes, as lines and columns."""
    sizes, outputs, steps = list(g.input), list(g.output), list(x.tensor.strides[2:])
    if g.rank == 1:
        weights, phases = weights[..., None, :], [(Phase((0,), (0,)),), *phases]
        sizes, outputs, steps = [1, *sizes], [1, *outputs], [sizes[0] * steps[0], *steps]
    bias = None if b is None or b.data is None else b.data.astype(np.float32)
    numbers = [int(n) for n in (*sizes, *steps, *outputs)]  # type: ignore[arg-type]
    return Narrow(x, y, weights, bias, phases[0], phases[1], *numbers)


def _flattened(n: Narrow, pointwise: bool) -> Narrow:
    """Pixels of an image without windows, cut into lines that fill registers and whose planes stay in L1."""
    pixels = n.height * n.width
    widths = [w for w in range(REGISTER, pixels + 1, REGISTER) if pixels % w == 0]
    if not pointwise or not widths or n.line_step != n.width * n.pixel_step:
        return n
    wide = [w for w in widths if w >= LEAST_WIDTH] or widths[-1:]
    width = max((w for w in wide if 4 * w * n.inputs <= L1_NBYTES), default=wide[0])
    height = pixels // width
    return replace(n, height=height, width=width, line_step=width * n.pixel_step, out_height=height, out_width=width)
