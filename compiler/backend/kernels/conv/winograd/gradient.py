"""The gradient of a convolution's weights by Winograd's algorithms: a third to a quarter of the multiplications.

A tile of dy is the filter of a small correlation whose results are the taps (Lavin and Gray, 2016, of the same F):

    dw = Σ_tiles Aᵀ[(G dy Gᵀ) ⊙ (Bᵀ x B)]A = Aᵀ[Σ_tiles (G dy Gᵀ) ⊙ (Bᵀ x B)]A

    for work item: chunk of input channels
        for block of tiles:
            for tile:      V[ξ, tile, :] = Bᵀ x B,  D[panel, ξ, tile, :] = G dy Gᵀ
            for panel, ξ:  S[panel, ξ] += V[ξ]ᵀ · D[panel, ξ]             input × output channels, sum over tiles
        for panel, channel:  dw = Aᵀ S A

Of one block in all, a panel is finished before the next begins, and S is small. G is bare of the factors of its rows,
which S takes in the end. Padding costs no copy, and dy is 0 beyond its end.

A kernel of one tap has nothing to transform, and V and D are copies: a product of two matrices, both read in the order
of their lines, in blocks that stay in a core's cache.

Error: every product x · dy reaches dw on ways through one pair of points each, as forwards (`lower`, with the same c of
the axes' matrices): at most c · n·u/(1 − n·u) · Σ_tiles (max |x| in the tile's window) · (Σ |dy| in the tile) with n
the tiles of a block and the blocks, as each block's sum begins at 0, plus the roundings of the transforms
(`error_bound`). What is not finite in a window or a tile may make all taps of its channels so, where the direct sum
leaves some; nothing else.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

from .....ir.types import Dim, dim_max, dim_min
from .....kernel_ir.builder import F32, F32PTR, Builder, KValue
from .....kernel_ir.loops import INDEX, KFunc, KType
from ....lowering import LowerContext
from ...matmul.interleave import interleave_function
from ...matmul.pack import copy_function
from ...nest import decode
from ..weight_gradient_sizes import Sizes, place
from .axes import Phase, emit_product
from .gradient_plan import GradientPlan, is_line
from .rows import emit_row_tiles
from .windows import WindowAxis, Windows

UNIT_ROUNDOFF = 2.0**-24
SCRATCH = ("v", "d", "sums", "turned")


def scratch_nbytes(p: GradientPlan, taps: int) -> list[int]:
    """Bytes of each of SCRATCH."""
    sums = p.sum_panels * p.points * p.panel_step
    return [4 * n for n in (p.points * p.x_step, p.points * p.dy_step, sums, p.turned_channels * taps * p.width)]


def error_bound(p: GradientPlan) -> float:
    """Of an element's error: a share of Σ_tiles (max |x| in the tile's window) · (Σ |dy| in the tile)."""
    roundings = p.block + -(-p.n_tiles // p.block) + 4 + sum(axis.roundings for axis in p.axes)
    share = roundings * UNIT_ROUNDOFF
    return math.prod(axis.amplification for axis in p.axes) * share / (1 - share)


def sums_function(ctx: LowerContext, rows: int, vectors: int, interleaved: bool = False) -> KFunc:
    """S[row, width] += Σ_t A[t, row] · B[t, width] for `count` rows; where it is `fresh` it is only written.

    Args:
        rows, vectors: of the register tile. interleaved: A is [t][rows of a tile], tile after tile.
    """
    key = ("winograd_sums", rows, vectors, ctx.lanes, interleaved)
    if key in ctx.functions:
        return ctx.functions[key]
    lanes, width = ctx.lanes, vectors * ctx.lanes
    pointers, numbers = [(n, F32PTR) for n in ("a", "b", "s")], ("a_stride", "depth", "count", "fresh")
    name = f"winograd_sums{vectors}{'_interleaved' if interleaved else ''}"
    k = Builder(name, [*pointers, *((n, INDEX) for n in numbers)], inline="never")
    zero = k.splat(k.const(0.0, F32), lanes)

    def tile(first: KValue, n: int) -> None:
        source = k.gep(k["a"], first * k["depth"] if interleaved else first)
        target, stride = k.gep(k["s"], first * width), k.index(n) if interleaved else k["a_stride"]
        cells = [(i, j, i * width + j * lanes) for i in range(n) for j in range(vectors)]

        def step(t: KValue, acc: list[KValue]) -> list[KValue]:
            b = [k.load(k["b"], t * width + j * lanes, lanes, align=4 * lanes) for j in range(vectors)]
            a = [k.splat(k.load(source, t * stride + i), lanes) for i in range(n)]
            return [k.fma(a[i], b[j], own) for (i, j, _), own in zip(cells, acc, strict=True)]

        sums = k.for_(0, k["depth"], 1, [zero] * len(cells), step, unroll=2)

        def add() -> None:
            for (_, _, at), value in zip(cells, sums, strict=True):
                k.store(target, at, k.load(target, at, lanes, align=4 * lanes) + value, align=4 * lanes)

        def put() -> None:
            for (_, _, at), value in zip(cells, sums, strict=True):
                k.store(target, at, value, align=4 * lanes)

        k.if_(k["fresh"] == 0, add, put)

    emit_row_tiles(k, k["count"], rows, lambda first, _, n: tile(first, n))
    ctx.functions[key] = k.func
    return k.func


class WinogradGradient:
    """Writes the kernel; parameters x, dy, dw, zero and SCRATCH."""

    def __init__(self, ctx: LowerContext, k: Builder, s: Sizes, p: GradientPlan) -> None:
        self.ctx, self.k, self.s, self.p = ctx, k, s, p
        self.images, self.total = s.dy.dims[0], k.index(s.dy.dims[0] * p.tiles[0] * p.tiles[1])
        pads = [pad for pad in s.geometry.pads_begin if isinstance(pad, int)]
        x_axes = [WindowAxis(a.inputs, a.tile * a.stride, pad, [(each.first, a.stride, each.bt) for each in a.phases])
                  for a, pad in zip(p.axes, pads, strict=True)]  # fmt: skip
        dy_axes = [WindowAxis(a.tile, a.tile, 0, [(0, 1, each.bare_g) for each in a.phases]) for a in p.axes]
        self.x_windows = Windows(k, "x", "zero", s.x.strides, self._met(), (x_axes[0], x_axes[1]), p.lanes)
        self.is_line, self.copies = is_line(s), p.points == 1 and not any(s.geometry.pads_begin)
        self.dy_windows = Windows(k, "dy", "zero", s.dy.strides, s.dy.dims[2:], (dy_axes[0], dy_axes[1]), p.lanes)

    def _met(self) -> list[Dim]:
        """How much of x is under dy: a tile's window reads no pixel that the direct sum does not."""
        g = self.s.geometry
        ends = [dim_max(0, (o - 1) * t + n - p) for o, t, n, p in
                zip(g.output, g.strides, g.kernel, g.pads_begin, strict=True)]  # fmt: skip
        return [dim_min(n, end) for n, end in zip(g.input, ends, strict=True)]

    def emit(self) -> None:
        """All work items [begin, end)."""
        k, p = self.k, self.p

        def item(chunk: KValue, _: list[KValue]) -> None:
            c0 = chunk * p.chunk
            if p.is_single:
                self._transform(c0, k.index(0), self.total)
                k.for_(0, p.panels, 1, [], lambda panel, _: self._whole_panel(c0, panel))
                return
            k.for_(0, self.total, p.block, [], lambda first, _: self._block(c0, first))
            k.for_(0, p.panels, 1, [], lambda panel, _: self._finish(c0, panel, self._sums(panel)))

        k.for_(k["begin"], k["end"], 1, [], item)

    def _whole_panel(self, c0: KValue, panel: KValue) -> None:
        self._products(panel, self.k["sums"], self.total, self.k.index(1))
        self._finish(c0, panel, self.k["sums"])

    def _block(self, c0: KValue, first: KValue) -> None:
        k, p = self.k, self.p
        count, fresh = k.min(self.total - first, p.block), k.select(first == 0, k.index(1), k.index(0))
        self._transform(c0, first, count)
        k.for_(0, p.panels, 1, [], lambda panel, _: self._products(panel, self._sums(panel), count, fresh))

    def _sums(self, panel: KValue) -> KValue:
        return self.k.gep(self.k["sums"], panel * (self.p.points * self.p.panel_step))

    def _transform(self, c0: KValue, first: KValue, count: KValue) -> None:
        """V and D of tiles [first, first + count)."""
        k, p, outputs = self.k, self.p, self.s.outputs

        if self.copies:
            self._copy(c0, first, count)
            return

        def tile(t: KValue, _: list[KValue]) -> None:
            where = decode(k, first + t, (self.images, *p.tiles))
            v, d = k.gep(k["v"], t * p.x_pitch - c0), k.gep(k["d"], t * p.width)

            def store_x(point: int, c: KValue, value: KValue) -> None:
                k.store(v, c + point * p.x_step, value, align=4 * p.lanes)

            def store_dy(place_of: KValue, point: int, c: KValue, value: KValue) -> None:
                k.store(d, c + place_of + point * p.dy_step, value, align=4 * p.lanes)

            self.x_windows.emit(where, (c0, c0 + p.chunk), store_x)
            # panels lie apart: column c of panel q is at q · block · width + c − q · width
            k.for_(0, p.panels, 1, [], lambda q, _: self.dy_windows.emit(
                where, (q * p.width, k.min(q * p.width + p.width, outputs)),
                partial(store_dy, q * ((p.block - 1) * p.width))))  # fmt: skip

        k.for_(0, count, 1, [], tile)

    def _copy(self, c0: KValue, first: KValue, count: KValue) -> None:
        """V and D of pixels [first, first + count), of a kernel of one tap and no padding."""
        k, s, p = self.k, self.s, self.p
        if p.interleaved:
            self._interleave(c0, first, count)

        def pixel(t: KValue, _: list[KValue]) -> None:
            zero = k.index(0)
            n, h, w = (zero, zero, first + t) if self.is_line else decode(k, first + t, (self.images, *p.tiles))
            d, other = k.gep(k["d"], t * p.width), self._pixel("dy", n, h, w)
            if not p.interleaved:
                down, right = s.geometry.strides
                v, source = k.gep(k["v"], t * p.x_pitch - c0), self._pixel("x", n, h * down, w * right)
                k.for_(c0, c0 + p.chunk, p.lanes, [],
                       lambda c, _: k.store(v, c, k.load(source, c, p.lanes), align=4 * p.lanes))  # fmt: skip

            def column(q: KValue, c: KValue) -> None:
                k.store(d, c + q * ((p.block - 1) * p.width), k.load(other, c, p.lanes), align=4 * p.lanes)

            k.for_(0, p.panels, 1, [], lambda q, _: k.for_(
                q * p.width, k.min(q * p.width + p.width, s.outputs), p.lanes, [], lambda c, _: column(q, c)) and None)

        k.for_(0, count, 1, [], pixel)

    def _interleave(self, c0: KValue, first: KValue, count: KValue) -> None:
        """V of pixels that follow one another, in the order of `sums_function`'s tiles: a stream for each of them."""
        k, s, p = self.k, self.s, self.p
        n_tiles = -(-p.chunk // p.rows)
        short, n_taller = divmod(p.chunk, n_tiles)
        source = k.gep(self._pixel("x", k.index(0), k.index(0), first), c0)
        for height, low, tiles in ((short + 1, 0, n_taller), (short, n_taller * (short + 1), n_tiles - n_taller)):
            if tiles:
                copy = interleave_function(self.ctx, F32, height, by_columns=True)
                k.call(copy, [k.gep(source, low), k.gep(k["v"], count * low), k.index(tiles), count,
                              k.index(s.x.strides[-1])])  # fmt: skip

    def _pixel(self, name: str, *where: KValue) -> KValue:
        """Where the channels of a pixel of x or dy begin."""
        image, _, *steps = (self.s.x if name == "x" else self.s.dy).strides
        at = self.k.index(0)
        for index, step in zip(where, (image, *steps), strict=True):
            at = at + index * self.k.index(step)
        return self.k.gep(self.k[name], at)

    def _products(self, panel: KValue, sums: KValue, count: KValue, fresh: KValue) -> None:
        k, p = self.k, self.p
        function = sums_function(self.ctx, p.rows, p.vectors, p.interleaved)
        d = k.gep(k["d"], panel * (p.block * p.width))

        def point(number: KValue, _: list[KValue]) -> None:
            k.call(function, [k.gep(k["v"], number * p.x_step), k.gep(d, number * p.dy_step),
                              k.gep(sums, number * p.panel_step), k.index(p.x_pitch), count, k.index(p.chunk),
                              fresh])  # fmt: skip

        k.for_(0, p.points, 1, [], point)

    def _finish(self, c0: KValue, panel: KValue, sums: KValue) -> None:
        """dw = Aᵀ S A of a panel: where output channels lie innermost, at once; else turned round."""
        k, s, p = self.k, self.s, self.p
        m0 = panel * p.width
        valid = k.min(k.index(s.outputs) - m0, p.width)

        def channel(c: KValue, _: list[KValue], inside: KValue, of: KValue) -> None:
            def vector(lane: KValue, _: list[KValue]) -> None:
                source = k.gep(sums, (of + c) * p.width + lane)
                for tap, value in self._taps(source).items():
                    self._store(tap, m0 + lane, c0 + of + c, (c, lane), value)

            k.for_(0, inside, p.lanes, [], vector)

        def several(of: KValue, _: list[KValue]) -> None:
            k.for_(0, p.turned_channels, 1, [], partial(channel, inside=valid, of=of))
            if not self.is_direct:
                self._turn(m0, c0 + of, valid)

        k.for_(0, p.chunk, p.turned_channels, [], several)

    @property
    def is_direct(self) -> bool:
        """Whether output channels lie innermost in the result."""
        return self.s.dw.strides[0] == 1

    def _store(self, tap: int, m: KValue, c: KValue, turned: tuple[KValue, KValue], value: KValue) -> None:
        k, s, p = self.k, self.s, self.p
        if self.is_direct:
            taps = [k.index(t) for t in divmod(tap, s.geometry.kernel[1])]
            k.store(k["dw"], place(k, s, taps, m, c), value)
            return
        channel, lane = turned
        k.store(k["turned"], (channel * math.prod(s.geometry.kernel) + tap) * p.width + lane, value, align=4 * p.lanes)

    def _turn(self, m0: KValue, c: KValue, valid: KValue) -> None:
        k, s, p = self.k, self.s, self.p
        n, apart = p.turned_channels * math.prod(s.geometry.kernel), s.dw.strides[0]
        target = k.gep(k["dw"], m0 * k.index(apart) + c * k.index(s.dw.strides[1]))
        copy = copy_function(self.ctx, F32, "transposed", p.lanes)
        k.call(copy, [k["turned"], target, valid, k.index(n), k.index(1), k.index(p.width), k.index(apart), k.index(n),
                      k.const(1.0, F32)])  # fmt: skip

    def _taps(self, source: KValue) -> dict[int, KValue]:
        """Aᵀ S A of one input channel and a vector of output channels, by the number of the tap."""
        point = 0
        found: dict[int, KValue] = {}
        rows, columns = self.p.axes
        for high, wide in itertools.product(rows.phases, columns.phases):
            at = range(high.first, rows.taps, rows.stride), range(wide.first, columns.taps, columns.stride)
            taps = [i * columns.taps + j for i, j in itertools.product(*at)]
            found.update(zip(taps, self._phase_taps(source, point, high, wide), strict=True))
            point += high.points * wide.points
        return found

    def _phase_taps(self, source: KValue, point: int, high: Phase, wide: Phase) -> list[KValue]:
        """Those of one phase along each axis, whose points begin at `point`."""
        k, p = self.k, self.p
        columns = []
        for j in range(wide.points):
            own = []
            for i in range(high.points):
                at = (point + i * wide.points + j) * p.panel_step
                value, scale = k.load(source, at, p.lanes, align=4 * p.lanes), high.g_factors[i] * wide.g_factors[j]
                own.append(value if scale == 1 else value * k.const(float(scale), KType(F32, p.lanes)))
            columns.append(emit_product(k, high.at, own))
        rows = [[column[i] for column in columns] for i in range(len(high.at))]
        return [value for row in rows for value in emit_product(k, wide.at, row)]
