"""Transposed convolutions of bf16 whose filters do not overlap, by matrix registers.

Where the stride is the filter's size, each tap gives output pixels of its own: a product of the input pixels by the
tap's matrix, whose rows lie a stride apart in a line of the result.

    for block of input lines in work items:  copy its pixels
        for tap:  for panel:  for line:  tiles of its pixels
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....ir.ops.geometry import WindowGeometry
from ....ir.types import BF16, prod
from ....kernel_ir.builder import I64PTR, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch
from ...microkernels.table import emitter_of
from ..matmul.blocking import PanelKind, padded_columns, static
from ..matmul.gemm import Operands, RowRange, Step
from ..matmul.matrix_loops import MatrixEmitter, Rows
from ..matmul.matrix_products import copied_elements, plan_matrices
from ..matmul.matrix_tile import LANES
from ..matmul.pack import packed_panels, pad_vector
from ..tail import tail_of
from .transposed_shape import Transposed
from .weights import NamedOperand

ROWS = 128  # of a block, at most, where a line has no more: chosen, not measured
LEAST_BLOCKS = 4  # of an image, so that a few cores find work
LEAST_WIDTH = 8  # pixels of a line: half a register's rows


def serves_lines(g: WindowGeometry) -> bool:
    """Whether taps have output pixels of their own, and lines of the input are long enough."""
    sizes = [n for n in (*g.input, *g.output, *g.pads_begin) if isinstance(n, int)]
    if g.rank != 2 or len(sizes) < 6 or tuple(g.kernel) != tuple(g.strides) or any(d != 1 for d in g.dilations):
        return False
    whole = all(out == n * s for out, n, s in zip(g.output, g.input, g.strides, strict=True))
    return whole and not any(g.pads_begin) and static(g.input[1]) >= LEAST_WIDTH and static(g.input[0]) > 0


def lower_lines(ctx: LowerContext, fusion: Fusion, s: Transposed) -> KernelCall:
    """The kernel call; work items are blocks of lines of an image."""
    g, emitter = s.geometry, emitter_of(ctx.target, BF16).for_depth(s.group_inputs)
    height, width = (static(n) for n in g.input)
    lines = _lines(height, width)
    p = plan_matrices(ctx, 1, lines * width, s.group_outputs, 1, s.group_inputs, BF16, emitter)
    p = replace(p, row_block=lines * width, panels_per_item=p.n_panels)
    assert s.w.data is not None
    taps = s.w.data.reshape(s.group_inputs, s.group_outputs, -1).transpose(2, 0, 1)
    bias = np.zeros(0) if s.b is None or s.b.data is None else s.b.data
    operands: list[NamedOperand] = [
        ("a", PtrType(s.x.tensor.dtype), s.x),
        ("w", PtrType(emitter.b_element), packed_panels(ctx, taps, p.kinds, LANES, emitter=emitter)),
        ("bias", PtrType(emitter.sums), ctx.weights.add(pad_vector(bias, padded_columns(s.group_outputs, 2 * LANES)))),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", PtrType(emitter.sums), Scratch(64)),
        ("copy", PtrType(emitter.element), Scratch(copied_elements(p) * emitter.element.nbytes)),
    ]
    tail = tail_of(fusion, ctx.symbols)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        places = Operands(a=k["copy"], zero=k["copy"], table=k["table"], partial=k["partial"],
                          fill_table=lambda outer, row0, count: None, panel=lambda *_: k["w"],
                          bias=lambda column: k.gep(k["bias"], column), row_base=lambda outer: k.index(0),
                          pitch=s.y.tensor.pitch, row_step=g.strides[1])  # fmt: skip
        LinesEmitter(k, ctx, p, tail, places, source=Rows(k["a"], s.group_inputs), shape=s, lines=lines).emit()
        return k.func

    func = ctx.function("conv_transpose", fusion.node, build, BF16, lines)
    work = s.x.tensor.dims[0] * (height // lines)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), work)


def _lines(height: int, width: int) -> int:
    """Of a block: all blocks have as many."""
    fits = [n for n in range(1, height + 1) if height % n == 0 and n * width <= ROWS and height >= n * LEAST_BLOCKS]
    return max(fits, default=1)


class LinesEmitter(MatrixEmitter):
    """Emits the loops of all taps over blocks of lines; the outer items of its products are taps.

    Args:
        shape: the layer. lines: of a block.
    """

    def __init__(self, *given: Any, source: Rows, shape: Transposed, lines: int) -> None:
        super().__init__(*given, source=source)
        g = shape.geometry
        self.shape, self.lines, self.width = shape, lines, static(g.input[1])
        self.first = self.line = self.k.index(0)  # of the input's lines: a block's, and the one that is computed
        self.o = replace(self.o, fill_table=self.fill, panel=self.panel_of, row_base=self.base)

    def emit(self) -> None:
        """The loop over the kernel's work items."""
        k, taps = self.k, prod(self.shape.geometry.kernel)
        rows = k.index(self.lines * self.width)

        def item(index: KValue, _: list[KValue]) -> None:
            self.first = index * self.lines
            self.begin_block(k.index(0), k.index(0), rows)
            whole = k.index(0), rows, k.index(0), k.index(self.p.n_panels)
            k.for_(0, taps, 1, [], lambda tap, _: self.panels(tap, *whole))

        k.for_(k["begin"], k["end"], 1, [], item)

    def fill(self, outer: KValue, row0: KValue, count: KValue) -> None:
        """Where the block's pixels are: lines of all images follow one another, but images may lie apart."""
        k, strides, height = self.k, self.shape.x.tensor.strides, static(self.shape.geometry.input[0])
        image = k.udiv(self.first, height)
        start = image * k.index(strides[0]) + (self.first - image * height) * k.index(strides[2])

        def line(i: KValue, _: list[KValue]) -> None:
            at = start + i * k.index(strides[2])
            k.for_(0, self.width, 1, [], lambda x, _: k.store(
                self.o.table, i * self.width + x, at + x * k.index(strides[3])))  # fmt: skip

        k.for_(0, self.lines, 1, [], line)

    def panel_of(self, tap: KValue, kind: PanelKind, number: KValue, column: KValue) -> KValue:
        p = self.p
        return self.k.gep(self.k["w"], (tap * padded_columns(self.shape.group_outputs, LANES) + column) *
                          (static(p.kc) * p.emitter.width))  # fmt: skip

    def base(self, tap: KValue) -> KValue:
        """The output pixel of a tap of the first input pixel of a line, as if lines before it in the block were pixels
        before it in its own."""
        k, (below, beside) = self.k, self.shape.geometry.strides
        down = k.udiv(tap, beside)
        line = (self.first + self.line) * below + down
        return line * (self.width * beside) + (tap - down * beside) - self.line * (self.width * beside)

    def each_line(self, emit: Callable[[int, KValue, KValue], None]) -> None:
        """`emit` for the tiles of every line: height, first row of the block, number."""

        def line(i: KValue, _: list[KValue]) -> None:
            self.line = i
            for height, low, tiles in self.heights(i, self.width, self.height(0)):
                emit(height, i * self.width + low, tiles)

        self.k.for_(0, self.lines, 1, [], line)

    def copy(self, count: KValue, known: int | None) -> None:
        self.each_line(self.copy_tiles)

    def tiles(self, rows: RowRange, kind: PanelKind, column: KValue, step: Step) -> None:
        self.each_line(lambda height, low, tiles: self.call(rows, kind, height, column, low, tiles, step))

