"""Where matrix registers read the pixels of a convolution: in a copy of the rows under a block, with their padding.

Owns the geometry and the copy, which has each input pixel once, not once for every tap. Output pixels of a row, or of
an equal part of one, see input pixels that are evenly spaced under every tap, so that a register is loaded at once; a
tap is an offset from there, the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ....ir.ops.geometry import WindowGeometry
from ....ir.types import Dim, ceil_div
from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.matrix_registers import MOST_ROWS
from ...microkernels.emitter import Emitter
from .weights import ConvShape

# Of a register: products take a cycle a row, and those of fewer wait for B. On an Emerald Rapids with busy neighbours
# (`python -m benchmarks.kernels matrices`, 2026-11-27, both in turn) layers of 56², 28², 14² pixels in registers of 14
# rows were 10 to 20 % faster than with every tap copied, and 7² in registers of 7 rows 35 % slower.
FEWEST_ROWS = 12


@dataclass(frozen=True)
class Region:
    """The input pixels under a block of whole output rows of one image.

    Attributes:
        shape: the layer, of whose taps each is a run of the copy: an input pixel's channels, or a line's pixels.
        emitter: of steps that such runs are made of. inputs: channels of a pixel of the copy. width: of its rows.
        segment: output pixels of a row that go together, at most a register's rows.
    """

    shape: ConvShape
    emitter: Emitter
    inputs: int
    width: int
    segment: int

    @property
    def channels(self) -> int:
        """Of a pixel of the input."""
        return _static(self.shape.x.tensor.dims[1])

    @property
    def left(self) -> int:
        """Pixels of padding before a row."""
        return _static(self.shape.geometry.pads_begin[1])

    @property
    def pixels(self) -> int:
        """Of a row of the input."""
        return _static(self.shape.geometry.input[1])

    @property
    def n_steps(self) -> int:
        """Of a sum."""
        return self.shape.taps * ceil_div(self.shape.group_inputs, self.emitter.k_step)

    @property
    def row_pitch(self) -> int:
        """Elements between the inputs of neighbouring output pixels."""
        return self.shape.geometry.strides[1] * self.inputs

    def taps(self) -> np.ndarray:
        """Elements from an output pixel's first tap to each of them."""
        g = self.shape.geometry
        offsets = [(h * g.dilations[0] * self.width + w * g.dilations[1]) * self.inputs
                   for h in range(g.kernel[0]) for w in range(g.kernel[1])]  # fmt: skip
        return np.array(offsets, np.int64)

    def block(self, rows: int) -> int:
        """Output pixels of a block of about so many: whole rows of an image."""
        height, width = self.output
        return ceil_div(height, ceil_div(height, max(1, round(rows / width)))) * width

    @property
    def output(self) -> tuple[int, int]:
        height, width = self.shape.geometry.output
        assert isinstance(height, int) and isinstance(width, int)
        return height, width

    def elements(self, block: int) -> int:
        """Of the copy of a block of output pixels."""
        return self.rows_under(block // self.output[1]) * self.width * self.inputs + _BEHIND

    def rows_under(self, rows: int) -> int:
        """Input rows under so many output rows."""
        g = self.shape.geometry
        return (rows - 1) * g.strides[0] + (g.kernel[0] - 1) * g.dilations[0] + 1


def region_of(s: ConvShape, emitter: Emitter) -> Region | None:
    """How a layer's rows are copied, None where every tap is; `emitter`: of any steps."""
    if s.taps == 1 or s.groups > 1 or s.rank != 2:
        return None
    best = best_region((s.lines(), s), emitter, s.group_inputs)
    copied = s.taps * ceil_div(s.group_inputs, emitter.k_step)
    return best if best is not None and best.n_steps <= copied else None


def best_region(ways: Iterable[ConvShape], emitter: Emitter, inputs: int) -> Region | None:
    """Of the fewest steps. ways: to read a layer, by its taps; inputs: channels of a pixel of the copy."""
    regions = []
    for s in ways:
        segment, steps = segment_of(s.geometry), _steps(emitter, s.group_inputs)
        if segment and steps is not None and all(isinstance(n, int) for n in s.x.tensor.strides[2:]):
            g = s.geometry
            width = sum(_static(n) for n in (g.pads_begin[1], g.input[1], g.pads_end[1]))
            regions.append(Region(s, steps, inputs, width, segment))
    return min(regions, key=lambda region: region.n_steps, default=None)


def segment_of(g: WindowGeometry) -> int:
    """Output pixels of a row that go together; 0: there are too few that do, or sizes are unknown."""
    sizes = [n for n in (*g.input, *g.output, *g.pads_begin, *g.pads_end) if isinstance(n, int)]
    if len(sizes) < 4 * g.rank or min(sizes) < 0:
        return 0
    segment = max((n for n in range(1, MOST_ROWS + 1) if _static(g.output[1]) % n == 0), default=0)
    return segment if segment >= FEWEST_ROWS else 0


def _steps(emitter: Emitter, run: int) -> Emitter | None:
    """Of steps that make up a run. Whole numbers may follow it, which zeros are multiplied by, but nothing that may be
    an infinity or NaN."""
    return emitter.dividing(run) if emitter.sums.is_float else emitter.for_depth(run)


class RegionReader:
    """Emits what begins a block: the copy, and where its segments start.

    Args:
        x, copy, table: the input, room for the copy, and the table of offsets of the block's pixels.
        margin: what padding consists of.
    """

    def __init__(self, k: Builder, region: Region, x: KValue, copy: KValue, table: KValue, margin: int = 0) -> None:
        self.k, self.region, self.x, self.copy, self.table = k, region, x, copy, table
        self.margin = k.cast(k.splat(k.const(margin, F32), _LANES), copy.dtype)

    def begin(self, _: KValue, row0: KValue, count: KValue) -> None:
        """For `count` pixels from number `row0` on, whole output rows of one image."""
        k, r = self.k, self.region
        height, width = r.output
        image = k.udiv(row0, height * width)
        top = k.udiv(row0 - image * (height * width), width) * r.shape.geometry.strides[0]
        rows = k.udiv(count, width)
        self.fill(image * k.index(r.shape.x.tensor.strides[0]), top - k.index(r.shape.geometry.pads_begin[0]), rows)
        self.place(rows)

    def place(self, rows: KValue) -> None:
        """Offsets of the segments of each output row."""
        k, r = self.k, self.region
        width, below = r.output[1], r.shape.geometry.strides[0] * r.width * r.inputs

        def row(i: KValue, _: list[KValue]) -> None:
            for at in range(0, width, r.segment):
                k.store(self.table, i * width + at, i * below + at * r.row_pitch)

        k.for_(0, rows, 1, [], row)

    def fill(self, start: KValue, top: KValue, rows: KValue) -> None:
        """The input rows from `top` on, with the padding around them."""
        k, r, g = self.k, self.region, self.region.shape.geometry
        needed = (rows - 1) * g.strides[0] + ((g.kernel[0] - 1) * g.dilations[0] + 1)

        def row(i: KValue, _: list[KValue]) -> None:
            place = k.gep(self.copy, i * (r.width * r.inputs))
            inside = (top + i >= 0) & (top + i < k.index(g.input[0]))
            k.if_(inside, lambda: self.line(start, top + i, place), lambda: self.pad(place, 0, r.width))

        k.for_(0, needed, 1, [], row)

    def line(self, start: KValue, row: KValue, place: KValue) -> None:
        """One row of the image between its padding."""
        k, r = self.k, self.region
        t, left, pixels = r.shape.x.tensor, r.left, r.pixels
        pitch = _static(t.strides[3])
        self.pad(place, 0, left)
        self.pad(place, left + pixels, r.width)
        source = k.gep(self.x, start + row * k.index(t.strides[2]))
        run, n = (pixels * r.inputs, 1) if pitch == r.inputs else (r.inputs, pixels)
        whole = run // _LANES * _LANES

        def pixel(i: KValue, _: list[KValue]) -> None:
            own, to = k.gep(source, i * pitch), k.gep(place, (i + left) * r.inputs)
            k.for_(0, whole, _LANES, [], lambda at, _: k.store(to, at, k.load(own, at, _LANES)))
            if whole < run:
                mask = k.tail_mask(k.index(run - whole), _LANES)
                k.store(to, whole, k.load(own, whole, _LANES, mask), mask)

        k.for_(0, n, 1, [], pixel)

    def pad(self, place: KValue, first: int, last: int) -> None:
        """Pixels [first, last), and some of what is behind them and filled later."""
        k, inputs = self.k, self.region.inputs
        k.for_(first * inputs, last * inputs, _LANES, [], lambda at, _: k.store(place, at, self.margin))


_LANES = 32  # of the copy: a whole step of 16-bit inputs, half of one of bytes
_BEHIND = 128  # elements: of what is stored, or read and multiplied by zeros


def _static(d: Dim) -> int:
    assert isinstance(d, int)
    return d
