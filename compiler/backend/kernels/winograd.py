"""3×3 stride-1 convolution by Winograd's minimal filtering F(4×4, 3×3): 2.25 to 4 times fewer multiplications.

Lavin and Gray, "Fast algorithms for convolutional neural networks" (CVPR 2016), points 0, ±1, ±2, ∞. Channels-last;
weights are transformed at compile time. Work items are (block of tiles × panel of output channels):

    for each tile of the block:  V[ξ, tile, :] = Bᵀ d B        (36 values per channel, once per block)
    for ξ in 36:                 M[ξ] = V[ξ] · U[ξ, panel]      (the register tile's loop)
    for each tile of the block:  y = Aᵀ M A + bias, then the fused tail

A block is sized so that V and M stay in the second-level cache. Error: each output sums products of magnitude up to
~20 times those of the direct sum, so the relative error is near 1e-5 in f32 (bound tested: 2e-5 of the largest output
for channel counts up to 512); `--fp strict` forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.kernel_builder import F32, F32PTR, Builder, KValue
from ...ir.loops import INDEX, KFunc
from ...ir.target import Target
from ...ir.types import Dim, ceil_div
from ..fusion import Epilogue, Fusion
from ..lowering import KernelCall, LowerContext, Scratch
from .conv_weights import ConvShape
from .nest import decode
from .pack import pad_vector
from .tile import most_rows, most_vectors

TILE, INPUT, POINTS = 4, 6, 36
L2_BUDGET = 640 << 10  # bytes of V and M of one block
TRANSFORM_CYCLES = 200  # of one tile and vector of channels, input and output together counted by their channels
CYCLES_PER_BYTE = 0.3  # weights streamed from memory by one core
CACHED_NBYTES = 4 << 20  # transformed weights below this stay in the last-level cache between calls
ROWS_PER_CALL = 2  # images that share one pass over the weights

_G = np.array([[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
               [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]])


@dataclass(frozen=True)
class Plan:
    """Sizes of one layer.

    Attributes:
        tiles: tiles per image and axis. block: tiles of a block. width: columns of a panel. rows: of a register tile.
    """

    tiles: tuple[Dim, Dim]
    block: int
    width: int
    rows: int
    panels: int

    @property
    def per_image(self) -> Dim:
        return self.tiles[0] * self.tiles[1]


def applies(s: ConvShape, target: Target) -> bool:
    """Whether the algorithm can serve a layer at all."""
    g = s.geometry
    return (s.constant and s.rank == 2 and s.groups == 1 and g.kernel == (3, 3) and g.strides == (1, 1)
            and g.dilations == (1, 1) and s.channels_last_input and s.x.tensor.dtype == F32 and s.y.dtype == F32
            and s.group_inputs % target.f32_lanes == 0 and s.group_outputs % target.f32_lanes == 0
            and all(isinstance(p, int) for p in (*g.pads_begin, *g.pads_end)))


def pays(s: ConvShape, lanes: int) -> bool:
    """Whether it is expected to beat the direct convolution, by a count of cycles per image."""
    out = s.geometry.output
    if not all(isinstance(d, int) for d in out):
        return True
    height, width = (int(d) for d in out)  # type: ignore[arg-type]
    tiles = -(-height // TILE) * -(-width // TILE)
    pairs = s.group_inputs * s.group_outputs

    def stream(nbytes: int) -> float:
        return CYCLES_PER_BYTE * nbytes / ROWS_PER_CALL if nbytes > CACHED_NBYTES else 0.0

    transforms = TRANSFORM_CYCLES * tiles * (s.group_inputs + s.group_outputs) / lanes
    ours = POINTS * tiles * pairs / lanes + transforms + stream(4 * POINTS * pairs)
    direct = 9 * height * width * pairs / lanes + stream(4 * 9 * pairs)
    return ours < 0.9 * direct


def plan(s: ConvShape, target: Target) -> Plan:
    """Blocking of a layer."""
    vectors = most_vectors(target, 64)
    width, rows = vectors * target.f32_lanes, most_rows(target, vectors)
    block = L2_BUDGET // (4 * POINTS * (s.group_inputs + width)) // rows * rows
    tiles = (ceil_div(s.geometry.output[0], TILE), ceil_div(s.geometry.output[1], TILE))
    return Plan(tiles, max(2 * rows, min(block, 8 * rows)), width, rows, -(-s.group_outputs // width))


def transform_weights(w: np.ndarray, width: int) -> np.ndarray:
    """[Co, Ci, 3, 3] → G g Gᵀ as [panel, ξ, Ci, width], zeros beyond the last output channel."""
    outputs, inputs = w.shape[:2]
    panels = -(-outputs // width)
    result = np.zeros((panels, POINTS, inputs, width), np.float32)
    both = np.kron(_G, _G)  # vec(G g Gᵀ) = (G ⊗ G) vec(g)
    for panel in range(panels):
        part = w[panel * width : (panel + 1) * width].astype(np.float64)
        u = both @ part.transpose(2, 3, 1, 0).reshape(9, -1)
        result[panel, :, :, : part.shape[0]] = u.reshape(POINTS, inputs, part.shape[0])
    return result


def input_1d(k: Builder, d: list[KValue]) -> list[KValue]:
    """Bᵀ d."""
    a, b = k.fma(d[2], -4.0, d[4]), k.fma(d[1], -4.0, d[3])
    e, f = d[4] - d[2], (d[3] - d[1]) * 2.0
    return [k.fma(d[0], 4.0, k.fma(d[2], -5.0, d[4])), a + b, a - b, e + f, e - f,
            k.fma(d[1], 4.0, k.fma(d[3], -5.0, d[5]))]


def output_1d(k: Builder, m: list[KValue]) -> list[KValue]:
    """Aᵀ m."""
    p, q, r, t = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [m[0] + p + r, k.fma(t, 2.0, q), k.fma(r, 4.0, p), k.fma(t, 8.0, q) + m[5]]


def input_function(ctx: LowerContext) -> KFunc:
    """V[:, c] of one tile for all channels; (h, w) is the tile's first input pixel and may lie in the padding."""
    key = ("winograd_input", ctx.lanes)
    if key in ctx.functions:
        return ctx.functions[key]
    numbers = ("h", "w", "height", "width", "row_stride", "column_stride", "channels", "point_stride")
    k = Builder("winograd_input", [("x", F32PTR), ("v", F32PTR), *((n, INDEX) for n in numbers)], inline="never")
    lanes = ctx.lanes
    origin = k["h"] * k["row_stride"] + k["w"] * k["column_stride"]

    def vector(c: KValue, masks: list[list[KValue | None]]) -> None:
        columns = []
        for j in range(INPUT):
            at = [origin + k["row_stride"] * i + k["column_stride"] * j + c for i in range(INPUT)]
            columns.append(input_1d(k, [k.load(k["x"], at[i], lanes, masks[i][j]) for i in range(INPUT)]))
        for i in range(INPUT):
            for j, value in enumerate(input_1d(k, [columns[j][i] for j in range(INPUT)])):
                k.store(k["v"], k["point_stride"] * (i * INPUT + j) + c, value)

    def whole() -> None:
        none: list[list[KValue | None]] = [[None] * INPUT for _ in range(INPUT)]
        k.for_(0, k["channels"], lanes, [], lambda c, _: vector(c, none))

    def border() -> None:
        on, off = k.tail_mask(k.index(lanes), lanes), k.tail_mask(k.index(0), lanes)
        rows = [_inside(k, k["h"] + i, k["height"]) for i in range(INPUT)]
        columns = [_inside(k, k["w"] + j, k["width"]) for j in range(INPUT)]
        masks: list[list[KValue | None]] = [[k.select(r & c, on, off) for c in columns] for r in rows]
        k.for_(0, k["channels"], lanes, [], lambda c, _: vector(c, masks))

    inner = ((k["h"] >= 0) & (k["w"] >= 0) & (k["h"] + INPUT <= k["height"]) & (k["w"] + INPUT <= k["width"]))
    k.if_(inner, whole, border)
    ctx.functions[key] = k.func
    return k.func


def _inside(k: Builder, at: KValue, size: KValue) -> KValue:
    return (at >= 0) & (at < size)


def product_function(ctx: LowerContext, rows: int, vectors: int) -> KFunc:
    """C[rows, width] = A[rows, depth] · B[depth, width]; A's rows are `stride` apart, C's follow each other."""
    key = ("winograd_product", rows, vectors, ctx.lanes)
    if key in ctx.functions:
        return ctx.functions[key]
    lanes, width = ctx.lanes, vectors * ctx.lanes
    k = Builder(f"winograd_product{rows}", [("a", F32PTR), ("b", F32PTR), ("c", F32PTR), ("stride", INDEX),
                                            ("depth", INDEX)], inline="never")
    starts = [k.gep(k["a"], k["stride"] * i) for i in range(rows)]
    zero = k.splat(k.const(0.0, F32), lanes)

    def step(kk: KValue, acc: list[KValue]) -> list[KValue]:
        b = [k.load(k["b"], kk * width + j * lanes, lanes, align=4 * lanes) for j in range(vectors)]
        out = []
        for i in range(rows):
            a = k.splat(k.load(starts[i], kk), lanes)
            out += [k.fma(a, b[j], acc[i * vectors + j]) for j in range(vectors)]
        return out

    acc = k.for_(0, k["depth"], 1, [zero] * (rows * vectors), step, unroll=4)
    for n, value in enumerate(acc):
        k.store(k["c"], n * lanes, value, align=4 * lanes)
    ctx.functions[key] = k.func
    return k.func


def lower_winograd(ctx: LowerContext, fusion: Fusion, s: ConvShape) -> KernelCall:
    """The kernel call of a layer that `applies`."""
    p = plan(s, ctx.target)
    assert s.w.data is not None
    bias = np.zeros(p.panels * p.width, np.float32)
    constant_bias = s.b is None or s.b.data is not None
    if s.b is not None and s.b.data is not None:
        bias = pad_vector(s.b.data.astype(np.float32), p.panels * p.width)
    operands = [s.x, ctx.weights.add(transform_weights(s.w.data, p.width)),
                ctx.weights.add(bias) if constant_bias else s.b,
                Scratch(4 * POINTS * p.block * s.group_inputs), Scratch(4 * POINTS * p.block * p.width)]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, F32PTR) for n in ("x", "u", "bias", "v", "m")] + fusion.params())
        _Kernel(ctx, k, fusion, s, p).emit()
        return k.func

    func = ctx.function("winograd", fusion.node, build, p)
    tiles = s.x.tensor.dims[0] * p.per_image
    return KernelCall(func, (*operands, *fusion.operands()), ceil_div(tiles, p.block) * p.panels)  # type: ignore[arg-type]


class _Kernel:
    """Writes the layer's kernel."""

    def __init__(self, ctx: LowerContext, k: Builder, fusion: Fusion, s: ConvShape, p: Plan) -> None:
        self.ctx, self.k, self.s, self.p = ctx, k, s, p
        self.epilogue = Epilogue(k, fusion)
        self.total = k.index(s.x.tensor.dims[0] * p.per_image)
        self.buffer = k.alloca(F32, TILE * TILE * ctx.lanes)

    def emit(self) -> None:
        """All work items [begin, end)."""
        k, p = self.k, self.p

        def item(work: KValue, _: list[KValue]) -> None:
            block, panel = k.udiv(work, p.panels), k.urem(work, p.panels)
            first = block * p.block
            count = k.min(self.total - first, p.block)
            k.if_((work == k["begin"]) | (panel == 0), lambda: self._inputs(first, count))
            self._products(panel, count)
            k.for_(0, count, 1, [], lambda t, _: self._output(first + t, t, panel))

        k.for_(k["begin"], k["end"], 1, [], item)

    def _inputs(self, first: KValue, count: KValue) -> None:
        k, s, p = self.k, self.s, self.p
        (height, width), strides = s.geometry.input, s.x.tensor.strides
        function, (top, left) = input_function(self.ctx), s.geometry.pads_begin

        def tile(t: KValue, _: list[KValue]) -> None:
            n, th, tw = decode(k, first + t, (s.x.tensor.dims[0], *p.tiles))
            k.call(function, [k.gep(k["x"], n * k.index(strides[0])), k.gep(k["v"], t * s.group_inputs),
                              th * TILE - k.index(top), tw * TILE - k.index(left),
                              k.index(height), k.index(width), k.index(strides[2]), k.index(strides[3]),
                              k.index(s.group_inputs), k.index(p.block * s.group_inputs)])

        k.for_(0, count, 1, [], tile)

    def _products(self, panel: KValue, count: KValue) -> None:
        k, p, depth = self.k, self.p, self.s.group_inputs
        vectors = p.width // self.ctx.lanes

        def rows_from(row: KValue, n: int, point: KValue) -> None:
            at = point * p.block + row
            weights = k.gep(k["u"], (panel * POINTS + point) * (depth * p.width))
            k.call(product_function(self.ctx, n, vectors),
                   [k.gep(k["v"], at * depth), weights, k.gep(k["m"], at * p.width), k.index(depth), k.index(depth)])

        def one_point(point: KValue, _: list[KValue]) -> None:
            main = k.udiv(count, p.rows) * p.rows
            k.for_(0, main, p.rows, [], lambda row, _: rows_from(row, p.rows, point))
            rest, half = count - main, max(1, p.rows // 2)
            k.if_(rest > half, lambda: rows_from(main, p.rows, point))
            k.if_((rest > 0) & (rest <= half), lambda: rows_from(main, half, point))

        k.for_(0, POINTS, 1, [], one_point)

    def _output(self, tile: KValue, t: KValue, panel: KValue) -> None:
        k, s, p, lanes = self.k, self.s, self.p, self.ctx.lanes
        out_h, out_w = (k.index(d) for d in s.geometry.output)
        n, th, tw = decode(k, tile, (s.x.tensor.dims[0], *p.tiles))
        h, w = th * TILE, tw * TILE
        columns = k.min(k.index(s.group_outputs) - panel * p.width, p.width)

        def vector(c: KValue, _: list[KValue]) -> None:
            column = panel * p.width + c
            at = [(t + i * p.block) * p.width + c for i in range(POINTS)]
            m = [k.load(k["m"], a, lanes) for a in at]
            rows = [output_1d(k, [m[i * INPUT + j] for i in range(INPUT)]) for j in range(INPUT)]
            bias = k.load(k["bias"], column, lanes)
            for i in range(TILE):
                for j, value in enumerate(output_1d(k, [rows[j][i] for j in range(INPUT)])):
                    k.store(self.buffer, (i * TILE + j) * lanes, value + bias, align=4 * lanes)

            def pixel_row(i: KValue, _: list[KValue]) -> None:
                start = (n * out_h + h + i) * out_w + w
                k.for_(0, k.min(out_w - w, TILE), 1, [], lambda j, _: self.epilogue.apply(
                    start + j, column, k.load(self.buffer, (i * TILE + j) * lanes, lanes)))

            k.for_(0, k.min(out_h - h, TILE), 1, [], pixel_row)

        k.for_(0, columns, lanes, [], vector)
