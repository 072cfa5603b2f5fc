"""The loops of a Winograd convolution: transform inputs, multiply point by point, transform outputs.

Owns the kernel's text for any pair of axis algorithms; which layers get it, and with which, is `winograd`'s. Work items
are (block of tiles × panel of output channels):

    for each tile of the block:  V[tile, ξ, :] = Bᵀ d B         (once per block and core)
    for ξ in points:             M[:, ξ, :] = V[:, ξ, :] · U[panel, ξ]
    for each tile of the block:  y = Aᵀ M A + bias, then the fused tail

V and M keep the points of a tile together, so that the transforms stay within a few pages.
"""

from __future__ import annotations

from collections.abc import Callable

from .....ir.types import BF16
from .....kernel_ir.builder import Builder, KValue
from .....kernel_ir.loops import INDEX, KFunc, PtrType
from ....fusion import Epilogue, Fusion
from ....lowering import LowerContext
from ....microkernels.emitter import SINGLE, Emitter
from ...nest import decode
from ...tail import tail_of
from ..weights import ConvShape
from .axes import Phase, emit_product
from .plan import LINE, LINE_NBYTES, UNROLL, Plan
from .rows import emit_row_tiles
from .weights import ComputedWeights
from .windows import WindowAxis, Windows


def product_function(ctx: LowerContext, rows: int, vectors: int, lines: int, emitter: Emitter = SINGLE) -> KFunc:
    """C[row, width] = A[row, depth] · B[depth, width] for `count` rows `a_stride` and `c_stride` apart.

    Args:
        rows, vectors: of the register tile. lines: of the panel after B to ask for while UNROLL steps run.
        emitter: of the tile, whose steps `depth` counts.
    """
    key = ("winograd_product", rows, vectors, lines, ctx.lanes, emitter)
    if key in ctx.functions:
        return ctx.functions[key]
    lanes, width, each = ctx.lanes, vectors * ctx.lanes, emitter.width
    elements = {"a": emitter.element, "b": emitter.b_element, "c": emitter.sums, "b_ahead": emitter.b_element}
    pointers = [(n, PtrType(element)) for n, element in elements.items()]
    numbers = ("a_stride", "c_stride", "depth", "count")
    k = Builder(f"winograd_product{vectors}_{lines}", [*pointers, *((n, INDEX) for n in numbers)], inline="never")
    zero = k.splat(k.const(0, emitter.sums), lanes)

    multiply_add = emitter.multiply_add
    assert multiply_add is not None

    def tile(first: KValue, number: KValue, n: int) -> None:
        ahead = k.gep(k["b_ahead"], number * k["depth"] * (lines * (LINE // UNROLL) * each))
        starts = [k.gep(k["a"], (first + i) * k["a_stride"]) for i in range(n)]

        def step(kk: KValue, acc: list[KValue]) -> list[KValue]:
            places = [kk * (width * each) + j * lanes * each for j in range(vectors)]
            b = [emitter.columns(k, k["b"], at, lanes, None, 4 * lanes) for at in places]
            out = []
            for i in range(n):
                a = emitter.splat(k, starts[i], kk * each, lanes)
                out += [multiply_add(k, a, b[j], acc[i * vectors + j], True) for j in range(vectors)]
            return out

        def several(kk: KValue, acc: list[KValue]) -> list[KValue]:
            for line in range(lines):
                k.prefetch(ahead, kk * (lines * (LINE // UNROLL) * each) + line * LINE * each, level=2)
            for u in range(UNROLL):
                acc = step(kk + u, acc)
            return acc

        acc = k.for_(0, k["depth"], UNROLL, [zero] * (n * vectors), several)
        for i in range(n):
            at = (first + i) * k["c_stride"]
            for j in range(vectors):
                k.store(k["c"], at + j * lanes, acc[i * vectors + j], align=4 * lanes)

    emit_row_tiles(k, k["count"], rows, tile)
    ctx.functions[key] = k.func
    return k.func


class WinogradKernel:
    """Writes one layer's kernel; parameters x, bias, zero, v, m, those of the weights and the fusion's."""

    def __init__(self, ctx: LowerContext, k: Builder, fusion: Fusion, s: ConvShape, p: Plan) -> None:
        self.ctx, self.k, self.s, self.p = ctx, k, s, p
        self.epilogue = Epilogue(k, fusion)
        tail = tail_of(fusion, ctx.symbols)
        self.heavy, self.kinds = tail.heavy, tail.kinds
        self.images = s.x.tensor.dims[0]
        self.total = k.index(self.images * p.per_image)
        self.buffer = k.alloca(p.emitter.sums, p.axes[0].outputs * p.axes[1].outputs * p.lanes)

    def emit(self) -> None:
        """All work items [begin, end)."""
        k, p = self.k, self.p
        self.computed = None if self.s.constant else ComputedWeights(self.ctx, k, self.s, p, p.work(self.images))
        if self.computed:
            self.computed.emit()

        def item(work: KValue, _: list[KValue]) -> None:
            block, panel = k.udiv(work, p.panels), k.urem(work, p.panels)
            first = block * p.block
            count = k.min(self.total - first, p.block)
            k.if_((work == k["begin"]) | (panel == 0), lambda: self._inputs(first, count))
            self._products(first, panel, count)
            k.for_(0, count, 1, [], lambda t, _: self._output(first + t, t, panel))

        k.for_(k["begin"], k["end"], 1, [], item)

    def _phases(self) -> list[tuple[Phase, Phase, int]]:
        """Pairs of phases and the number of their first point."""
        out, first = [], 0
        for high in self.p.axes[0].phases:
            for wide in self.p.axes[1].phases:
                out.append((high, wide, first))
                first += high.points * wide.points
        return out

    def _inputs(self, first: KValue, count: KValue) -> None:
        k, s, p = self.k, self.s, self.p
        axes = [WindowAxis(axis.inputs, axis.outputs * axis.stride, pad,
                           [(phase.first, axis.stride, phase.bt) for phase in axis.phases])
                for axis, pad in zip(p.axes, s.geometry.pads_begin, strict=True) if isinstance(pad, int)]  # fmt: skip
        source, element = p.emitter.source, p.emitter.element
        lanes = p.lanes * 4 // source.nbytes
        windows = Windows(k, "x", "zero", s.x.tensor.strides, s.geometry.input, (axes[0], axes[1]), lanes, source)

        def tile(t: KValue, _: list[KValue]) -> None:
            target = k.gep(k["v"], t * (p.points * s.group_inputs))

            def store(point: int, c: KValue, value: KValue) -> None:
                stored = k.round_to_bf16(value) if element == BF16 else value
                k.store(target, c + point * s.group_inputs, stored, align=element.nbytes * lanes)

            windows.emit(decode(k, first + t, (self.images, *p.tiles)), (0, s.group_inputs), store)

        k.for_(0, count, 1, [], tile)

    def _products(self, first: KValue, panel: KValue, count: KValue) -> None:
        k, p, depth = self.k, self.p, self.s.group_inputs
        size = depth * p.width
        weights = self.computed.of_panel(panel) if self.computed else k.gep(k["u"], panel * (p.points * size))
        steps, l2_nbytes = depth // p.emitter.k_step, self.ctx.target.l2_nbytes
        function = product_function(self.ctx, p.rows, p.vectors, p.lines_ahead(steps, l2_nbytes), p.emitter)

        def one_point(point: KValue, _: list[KValue]) -> None:
            low, high = (k.udiv(number * count, p.points) for number in (point, point + 1))
            k.for_(low, high, 1, [], lambda t, _: self._ahead(first + t, first + count + t, panel))
            u = k.gep(weights, point * size)
            k.call(function, [k.gep(k["v"], point * depth), u, k.gep(k["m"], point * p.width), k.gep(u, size),
                              p.points * depth, p.points * p.width, steps, count])  # fmt: skip

        k.for_(0, p.points, 1, [], one_point)

    def _ahead(self, tile: KValue, later: KValue, panel: KValue) -> None:
        """Ask for the memory of a tile's outputs and residuals, and of the inputs of a later one.

        Transforms touch memory in short pieces, which no hardware prefetcher follows; the products have time for it.
        """
        k, s, p = self.k, self.s, self.p
        rows, columns = p.axes
        out_h, out_w = (k.index(d) for d in s.geometry.output)
        n, th, tw = decode(k, tile, (self.images, *p.tiles))
        corner = (n * out_h + th * rows.outputs) * out_w + tw * columns.outputs
        pointers = [k[f"y{i}"] for i in range(len(self.epilogue.fusion.outputs))]
        pointers += [k[f"x{i}"] for i, kind in enumerate(self.kinds) if kind == "full"]
        for i in range(rows.outputs):
            at = (corner + out_w * i) * s.y.pitch + panel * p.width

            def line(c: KValue, _: list[KValue], at: KValue = at) -> None:
                for ptr in pointers:
                    for j in range(columns.outputs):
                        k.prefetch(ptr, at + c + j * s.y.pitch, level=2)

            k.for_(0, p.width, LINE, [], line)
        strides = [k.index(d) for d in s.x.tensor.strides]
        n, th, tw = decode(k, later, (self.images, *p.tiles))
        h = th * (rows.outputs * rows.stride) - k.index(s.geometry.pads_begin[0])
        w = tw * (columns.outputs * columns.stride) - k.index(s.geometry.pads_begin[1])
        for i in range(rows.inputs):
            base = n * strides[0] + (h + i) * strides[2] + w * strides[3]

            def pixel(c: KValue, _: list[KValue], base: KValue = base) -> None:
                for j in range(columns.inputs - columns.outputs * columns.stride, columns.inputs):
                    k.prefetch(k["x"], base + strides[3] * j + c, level=2)

            k.for_(0, s.group_inputs, LINE_NBYTES // s.x.tensor.dtype.nbytes, [], pixel)

    def _output(self, tile: KValue, t: KValue, panel: KValue) -> None:
        k, s, p = self.k, self.s, self.p
        rows, columns = p.axes
        out_h, out_w = (k.index(d) for d in s.geometry.output)
        n, th, tw = decode(k, tile, (self.images, *p.tiles))
        h, w = th * rows.outputs, tw * columns.outputs
        corner = (n * out_h + h) * out_w + w
        valid = k.min(k.index(s.group_outputs) - panel * p.width, p.width)
        source = k.gep(k["m"], t * (p.points * p.width))

        def vectors(finish: Callable[[KValue, list[list[KValue]]], None]) -> None:
            def vector(c: KValue, _: list[KValue]) -> None:
                column = panel * p.width + c
                bias = k.load(k["bias"], column, p.lanes)
                finish(column, [[self.begun(value, bias) for value in row] for row in self._outputs_of(source, c)])

            k.for_(0, valid, p.lanes, [], vector)

        def straight(column: KValue, values: list[list[KValue]]) -> None:
            for i, row in enumerate(values):
                for j, value in enumerate(row):
                    self.epilogue.apply(corner + out_w * i + j, column, value)

        def buffered(column: KValue, values: list[list[KValue]]) -> None:
            for n, value in enumerate(v for row in values for v in row):
                k.store(self.buffer, n * p.lanes, value, align=4 * p.lanes)

            def pixel(i: KValue, j: KValue) -> None:
                value = k.load(self.buffer, (i * columns.outputs + j) * p.lanes, p.lanes, align=4 * p.lanes)
                self.epilogue.apply(corner + out_w * i + j, column, value)

            k.for_(0, k.min(out_h - h, rows.outputs), 1, [], lambda i, _: k.for_(
                0, k.min(out_w - w, columns.outputs), 1, [], lambda j, _: pixel(i, j)) and None)  # fmt: skip

        if self.heavy:
            vectors(buffered)
        elif all(isinstance(d, int) and d % a.outputs == 0 for d, a in zip(s.geometry.output, p.axes, strict=True)):
            vectors(straight)
        else:
            whole = (h + rows.outputs <= out_h) & (w + columns.outputs <= out_w)
            k.if_(whole, lambda: vectors(straight), lambda: vectors(buffered))

    def begun(self, value: KValue, bias: KValue) -> KValue:
        """An output with its bias."""
        return value + bias

    def _outputs_of(self, source: KValue, c: KValue) -> list[list[KValue]]:
        """Aᵀ M A of one tile and vector of channels."""
        k, p = self.k, self.p
        total: list[list[KValue]] = []
        partial: dict[Phase, list[list[KValue]]] = {}  # phase of the width → [its point][output row]
        for high, wide, point in self._phases():
            sums = []
            for j in range(wide.points):
                at = [(point + i * wide.points + j) * p.width for i in range(high.points)]
                sums.append(emit_product(k, high.at, [k.load(source, c + a, p.lanes, align=4 * p.lanes) for a in at]))
            partial[wide] = _added(partial.get(wide), sums)
        for wide, sums in partial.items():
            rows = [[sums[j][i] for j in range(wide.points)] for i in range(p.axes[0].outputs)]
            total = _added(total or None, [emit_product(k, wide.at, row) for row in rows])
        return total


def _added(total: list[list[KValue]] | None, more: list[list[KValue]]) -> list[list[KValue]]:
    if total is None:
        return more
    return [[x + y for x, y in zip(a, b, strict=True)] for a, b in zip(total, more, strict=True)]
