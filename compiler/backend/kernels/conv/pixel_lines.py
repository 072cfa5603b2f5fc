"""The loops of a convolution whose output pixels lie along the registers; `conv_narrow` says which and how it is cut.

    tile:  acc[o][v] = bias[o]
           for line tap:  for input channel:  for shift:  for output o that it feeds:
               acc[o][:] += w · plane[line][channel][pixels + shift]

It must not know which operator it computes.
"""

from __future__ import annotations

from functools import partial

from ....ir.types import ceil_div
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ...fusion import evaluate_body, load, store
from ...lowering import LowerContext
from ..matmul.pack import transpose_square
from ..tail import Tail
from .pixel_shape import Chunk, Narrow, Sizes

LEAST_SQUARE = 4  # lanes of the registers that are transposed


def square_of(rows: int, lanes: int) -> int:
    """Side of the squares in which [rows][pixels] is transposed."""
    side = LEAST_SQUARE
    while side < min(rows, lanes):
        side *= 2
    return side


def staged_nelements(rows: int, pixels: int, lanes: int) -> int:
    """Elements that `Lines.interleave` may write."""
    return pixels * rows + square_of(rows, lanes)


def tile_function(name: str, chunk: Chunk, lanes: int, vectors: int, has_fma: bool) -> KFunc:
    """The sums of a chunk's outputs over `vectors` registers of pixels, stored [output][pixel]."""
    pointers: list[tuple[str, KType | PtrType]] = [(n, F32PTR) for n in ("plane", "w", "bias", "sums")]
    numbers: list[tuple[str, KType | PtrType]] = [
        (n, INDEX) for n in ("taps", "channels", "line_step", "channel_step", "row_step")
    ]
    k = Builder(name, pointers + numbers, inline="never")
    at = range(vectors)
    acc = [k.splat(k.load(k["bias"], channel), lanes) for _, channel in chunk.outputs for _ in at]

    def channel(c: KValue, sums: list[KValue], tap: KValue) -> list[KValue]:
        sums = list(sums)
        plane = k.gep(k["plane"], tap * k["line_step"] + c * k["channel_step"])
        w = k.gep(k["w"], (tap * k["channels"] + c) * len(chunk.feeds))
        feed = 0
        for shift, outputs in chunk.reads:
            few = len(outputs) < vectors  # the fewer ones of weights and pixels stay in registers
            pixels = [partial(k.load, plane, shift + v * lanes, lanes) for v in at]
            weights = [partial(_splat, k, w, feed + i, lanes) for i in range(len(outputs))]
            held = [get() for get in (weights if few else pixels)]
            for i, get in enumerate(pixels if few else weights):
                value = get()
                for j, other in enumerate(held):
                    n = outputs[j] * vectors + i if few else outputs[i] * vectors + j
                    sums[n] = k.fma(value, other, sums[n]) if has_fma else sums[n] + value * other
            feed += len(outputs)
        return sums

    def tap(t: KValue, sums: list[KValue]) -> list[KValue]:
        return k.for_(0, k["channels"], 1, sums, partial(channel, tap=t))

    if chunk.reads:
        acc = k.for_(0, k["taps"], 1, acc, tap)
    for o, (row, _) in enumerate(chunk.outputs):
        for v in at:
            k.store(k["sums"], row * k["row_step"] + v * lanes, acc[o * vectors + v])
    return k.func


def _splat(k: Builder, ptr: KValue, at: int, lanes: int) -> KValue:
    return k.splat(k.load(ptr, at), lanes)


class Lines:
    """Emits the loops of one layer into a kernel with the operands x, w, bias, phases, planes, sums and staged.

    Args:
        parts: the outputs of a line. runs: its tiles, as (vectors, how many).
    """

    def __init__(
        self,
        k: Builder,
        ctx: LowerContext,
        n: Narrow,
        sizes: Sizes,
        tail: Tail,
        parts: list[Chunk],
        runs: list[tuple[int, int]],
    ) -> None:
        self.k, self.ctx, self.n, self.sizes, self.tail, self.parts, self.runs = k, ctx, n, sizes, tail, parts, runs
        self.channels = n.inputs if n.pointwise else n.groups * n.inputs  # that the planes hold together
        self.line_size = sizes.pitch * self.channels
        self.rows = len(n.columns) * n.outputs

    def emit(self) -> None:
        """The loop over blocks of lines, of all images."""
        k, n, sizes = self.k, self.n, self.sizes
        n_blocks = ceil_div(n.n_lines, sizes.block)

        def item(index: KValue, _: list[KValue]) -> None:
            image = k.udiv(index, n_blocks)
            first = (index - image * n_blocks) * sizes.block
            count = k.min(n.n_lines - first, sizes.block)
            x_image = image * k.index(n.x.tensor.strides[0])
            top = first + sizes.first
            if not n.pointwise:
                held = count + (sizes.span - 1)
                k.for_(0, held, 1, [], lambda i, _: self.fill(i * self.line_size, top + i, x_image))

            def lines(i: KValue, _: list[KValue]) -> None:
                def phase(r: KValue, _: list[KValue]) -> None:
                    y_line = (first + i) * len(n.lines) + r
                    y_at = (image * n.out_height + y_line) * (n.out_width * n.outputs)
                    k.if_(y_line < n.out_height, lambda: self.line(i, r, top + i, x_image, y_at))

                k.for_(0, len(n.lines), 1, [], phase)

            k.for_(0, count, 1, [], lines)

        k.for_(k["begin"], k["end"], 1, [], item)

    def fill(self, target: KValue, line: KValue, x_at: KValue) -> None:
        """A line of the planes from input line `line` of the channels at `x_at`; lines beside the image are zeros."""
        k, n, lanes = self.k, self.n, self.ctx.lanes
        zero = k.splat(k.const(0.0, F32), lanes)

        def zeros(low: KValue | int, high: KValue | int, to: KValue) -> None:
            k.for_(low, high, lanes, [], lambda at, _: k.store(k["planes"], to + at, zero, align=4 * lanes))

        def copy() -> None:
            source, after = x_at + line * n.line_step, self.sizes.left + ceil_div(n.width, lanes) * lanes

            def around(c: KValue, _: list[KValue]) -> None:
                zeros(0, self.sizes.left, target + c * self.sizes.pitch)
                zeros(after, self.sizes.pitch, target + c * self.sizes.pitch)

            k.for_(0, self.channels, 1, [], around)
            whole = n.width // lanes * lanes
            k.for_(0, whole, lanes, [], lambda pixel, _: self.fill_pixels(pixel, lanes, source, target))
            if whole < n.width:
                self.fill_pixels(k.index(whole), n.width - whole, source, target)

        k.if_((line >= 0) & (line < n.height), copy, lambda: zeros(0, self.line_size, target))

    def fill_pixels(self, pixel: KValue, n_pixels: int, source: KValue, target: KValue) -> None:
        """All channels of `n_pixels` pixels, at most a register."""
        k, n, lanes = self.k, self.n, self.ctx.lanes
        half, whole = lanes // 2, self.channels // lanes * lanes
        zero = k.splat(k.const(0.0, F32), half)

        def square(c: KValue, count: int) -> None:
            at, to = source + pixel * n.pixel_step + c, target + c * self.sizes.pitch + self.sizes.left + pixel
            for j in range(n_pixels if n.pointwise else 0):  # the next group's, while this one's are multiplied
                k.prefetch(k["x"], at + (j * n.pixel_step + n.inputs), level=2)
            for low in range(0, count, half):
                mask = k.tail_mask(k.index(count - low), half) if count - low < half else None
                parts = [k.load(k["x"], at + (j * n.pixel_step + low), half, mask) for j in range(n_pixels)]
                parts += [zero] * (lanes - n_pixels)
                rows = [k.shuffle(parts[j], parts[j + half], range(lanes)) for j in range(half)]
                for j, row in enumerate(transpose_square(k, rows)[: count - low]):
                    k.store(k["planes"], to + (low + j) * self.sizes.pitch, row, align=4 * lanes)

        k.for_(0, whole, lanes, [], lambda c, _: square(c, lanes))
        if whole < self.channels:
            square(k.index(whole), self.channels - whole)

    def line(self, i: KValue, phase: KValue, x_line: KValue, x_image: KValue, y_at: KValue) -> None:
        """One line of the result, line `i` of the block's of its phase, group by group."""
        k, n, sizes = self.k, self.n, self.sizes
        first, taps = k.load(k["phases"], phase * 2), k.load(k["phases"], phase * 2 + 1)
        own = 0 if n.pointwise else (i + (first - sizes.first)) * self.line_size

        def group(g: KValue, _: list[KValue]) -> None:
            if n.pointwise:
                self.fill(k.index(0), x_line, x_image + g * n.inputs)
            plane = own if n.pointwise else own + g * (n.inputs * sizes.pitch)
            self.tiles(phase * n.groups + g, g * n.weights.shape[1], plane + k.index(sizes.left), taps)

        k.for_(0, n.groups, 1, [], group)
        self.finish()
        self.write(y_at)

    def tiles(self, number: KValue, channel: KValue, plane: KValue, taps: KValue) -> None:
        """The sums of one group and line; `number`: of its filters. channel: its first output's."""
        k, n, sizes = self.k, self.n, self.sizes
        per_feed = n.most_line_taps * n.inputs
        w = number * (per_feed * sum(len(chunk.feeds) for chunk in self.parts))

        def tile(pixel: KValue, _: list[KValue], chunk: Chunk, vectors: int, w: KValue) -> None:
            sums = (channel + chunk.row) * sizes.pixels + pixel
            pointers = [
                ("planes", plane + chunk.shift + pixel),
                ("w", w),
                ("bias", channel + chunk.channel),
                ("sums", sums),
            ]
            numbers = [taps, n.inputs, n.line_shift * self.line_size, sizes.pitch, sizes.pixels]
            k.call(self.tile_for(chunk, vectors), [*(k.gep(k[name], at) for name, at in pointers), *numbers])

        for chunk in self.parts:
            start = 0
            for vectors, count in self.runs:
                step = vectors * sizes.lanes
                one = partial(tile, chunk=chunk, vectors=vectors, w=w)
                k.for_(start, start + count * step, step, [], one)
                start += count * step
            w = w + per_feed * len(chunk.feeds)

    def tile_for(self, chunk: Chunk, vectors: int) -> KFunc:
        """The tile function, built once per plan for all chunks alike."""
        key = ("narrow tile", self.sizes.lanes, vectors, chunk.outputs, chunk.reads)
        functions = self.ctx.functions
        if key not in functions:
            name = f"narrow{len(chunk.outputs)}x{vectors * self.sizes.lanes}_{len(functions)}"
            functions[key] = tile_function(name, chunk, self.sizes.lanes, vectors, self.ctx.target.has_fma)
        return functions[key]

    def finish(self) -> None:
        """The tail, on the sums where they lie."""
        k, f, lanes, pixels = self.k, self.tail.fusion, self.ctx.lanes, self.sizes.pixels
        if not f.tail:
            return

        def channel(row: KValue, c: KValue) -> None:
            extras = {}
            for number, (inner, _) in enumerate(f.extras):
                value = load(k, k[f"x{number}"], c if self.tail.kinds[number] == "column" else 0, 1)
                extras[inner] = k.splat(value, lanes)

            def vector(at: KValue, _: list[KValue]) -> None:
                own = row * pixels + at
                values = {**extras, **f.rooted(k, k.load(k["sums"], own, lanes))}
                evaluate_body(k, f.tail, values)
                k.store(k["sums"], own, k.splat(k.cast(values[f.outputs[0][0]], F32), lanes))

            k.for_(0, pixels, lanes, [], vector)

        def phase(r: KValue, _: list[KValue]) -> None:
            k.for_(0, self.n.outputs, 1, [], lambda c, _: channel(r * self.n.outputs + c, c))

        k.for_(0, len(self.n.columns), 1, [], phase)

    def write(self, y_at: KValue) -> None:
        """The finished sums as a channels-last line."""
        k, lanes = self.k, self.ctx.lanes
        count = self.n.out_width * self.n.outputs
        source, done = k["sums"] if self.rows == 1 else k["staged"], 0
        if self.rows > 1:
            side = square_of(self.rows, lanes)
            if k["y0"].dtype == F32:  # squares that end before the line does need no way round
                done = max(0, count - side) // self.rows // side * side
                self.interleave(0, done, k["y0"], y_at)
            self.interleave(done, self.sizes.pixels, source, k.index(-done * self.rows))
        rest = count - done * self.rows
        whole = rest // lanes * lanes

        def piece(at: KValue, mask: KValue | None) -> None:
            store(k, k["y0"], y_at + done * self.rows + at, k.load(source, at, lanes, mask), mask)

        k.for_(0, whole, lanes, [], lambda at, _: piece(at, None))
        if whole < rest:
            piece(k.index(whole), k.tail_mask(k.index(rest - whole), lanes))

    def interleave(self, first: int, last: int, to: KValue, to_at: KValue) -> None:
        """[output][pixel] → [pixel][output] for pixels [first, last), square by square.

        What a square writes beyond the last output of a pixel is the next pixel's, and written over after it.
        """
        k, rows, pixels = self.k, self.rows, self.sizes.pixels
        side = square_of(rows, self.ctx.lanes)
        whole = rows // side * side

        def square(row: KValue, n_rows: int, pixel: KValue) -> None:
            own = [k.load(k["sums"], (row + j) * pixels + pixel, side) for j in range(n_rows)]
            own += [k.splat(k.const(0.0, F32), side)] * (side - n_rows)
            for j, vector in enumerate(transpose_square(k, own)):
                k.store(to, to_at + (pixel + j) * rows + row, vector)

        def block(pixel: KValue, _: list[KValue]) -> None:
            if whole < rows:
                square(k.index(whole), rows - whole, pixel)
            k.for_(0, whole, side, [], lambda row, _: square(row, side, pixel))

        k.for_(first, last, side, [], block)
