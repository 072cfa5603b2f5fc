"""Attention without a matrix of scores in memory: the online softmax of Milakov and Gimelshein (2018), tiled as in
FlashAttention (Dao et al., 2022), on the register tile's loop.

    for (head, group of queries) in work items:
        pack k [panels of keys][D][width] and v [panels of columns][S][width]
        for block of queries:                                  # copied side by side, times scale
            for block of keys:                                 # at most KEYS; few heads see more than one
                p = q kᵀ;  p += mask;  top' = max(top, max p)
                p = e^(p - top');  sum = sum · e^(top - top') + Σ p;  out *= e^(top - top')
                out += p v
            y = out / sum

Scores and masks are never larger than the model makes them: many masks are the lowest number there is, and rows may be
masked whole. A block of scores stays in L2 together with k and v of its head. The plain form is
`DotProductAttention.expand`. Where a call brings few queries, as a token that is generated does, `few.py` reads k and v
where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....ir.graph import Node
from ....ir.ops.attention import DotProductAttention
from ....ir.ops.bf16_products import Bf16Attention
from ....ir.types import BF16, Dim, TensorType, ceil_div
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, Operand, Scratch, lowers
from ...microkernels.emitter import SINGLE
from ..matmul.blocking import PanelKind, static
from ..matmul.pack import copy_function
from ..plain import decompose
from . import few
from .heads import Heads, plan_heads
from .products import pack_function, product_function
from .shared import LOG2E, LOWEST


@lowers(DotProductAttention)
@lowers(Bf16Attention)
def lower_attention(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call; the result's last axis must be innermost in memory."""
    q, kt, v = node.operands[:3]
    mask = node.operands[3] if len(node.operands) > 3 else None
    y = node.output
    assert y.tensor.strides[-1] == 1
    h = plan_heads(ctx, q.tensor, v.tensor)
    a, b = PtrType(h.emitter.element), PtrType(h.emitter.b_element)
    scratch: list[tuple[str, PtrType, Dim]] = [
        ("kpack", b, h.n_panels * (4 * h.width * h.score_depth)),
        ("vpack", b, h.key_steps * (4 * h.out_pitch)),
        ("qpack", a, h.rows * h.q_pitch * 4),
        ("scores", F32PTR, h.rows * h.score_pitch * 4),
        ("out", F32PTR, h.rows * h.out_pitch * 4),
        ("top", F32PTR, h.rows * 4),
        ("sum", F32PTR, h.rows * 4),
        *([("weights", a, h.rows * h.score_pitch * 2)] if h.paired else []),
    ]
    given = ("q", q), ("kt", kt), ("v", v), *([("mask", mask)] if mask is not None else []), ("y", y)
    operands: list[tuple[str, PtrType, Operand]] = [(name, PtrType(x.tensor.dtype), x) for name, x in given]
    operands += [(name, kind, Scratch(nbytes)) for name, kind, nbytes in scratch]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands])
        _Kernel(ctx, k, node, h).emit()
        return k.func

    func = ctx.function("attention", node, build)
    flops = 2 * h.n_outer * h.queries * h.keys * (h.depth + h.columns)
    nbytes = sum((o.tensor.nbytes for o in (*node.operands, y)), start=0)
    return KernelCall(func, tuple(o for _, _, o in operands), h.n_outer * h.n_groups, node.name, flops, nbytes)


class _Kernel:
    """Writes the kernel of one call."""

    def __init__(self, ctx: LowerContext, k: Builder, node: Node, h: Heads) -> None:
        self.ctx, self.k, self.h = ctx, k, h
        self.q, self.kt, self.v = (x.tensor for x in node.operands[:3])
        self.y = node.output.tensor
        self.scale: float = node.op.scale  # type: ignore[attr-defined]
        self.mask = node.operands[3].tensor if len(node.operands) > 3 else None
        self.one_block = isinstance(h.keys, int) and h.keys <= h.block

    def emit(self) -> None:
        """All work items [begin, end)."""
        k, h = self.k, self.h

        def item(index: KValue, _: list[KValue]) -> None:
            head = k.udiv(index, k.index(h.n_groups))
            first = (index - head * k.index(h.n_groups)) * k.index(h.group)
            last = k.min(first + k.index(h.group), k.index(h.queries))
            at = decompose(k, head, h.outer, self.y.dims)

            def packed() -> None:
                self.pack(at)
                k.for_(first, last, h.rows, [], lambda row, _: self.queries(at, row, k.min(last - row, h.rows)))

            if not h.paired and few.reads(self.q, self.kt, self.v):
                k.if_(last - first <= few.MOST, lambda: k.for_(first, last, 1, [], lambda r, _: few.query(self, at, r)),
                      packed)
            else:
                packed()

        k.for_(k["begin"], k["end"], 1, [], item)

    def base(self, at: list[KValue], t: TensorType) -> KValue:
        """Offset of a head in an operand; axes of size 1 are shared."""
        k, lead, total = self.k, self.y.rank - t.rank, self.k.index(0)
        for a in self.h.outer:
            if a >= lead and t.dims[a - lead] != 1:
                total = total + at[a] * k.index(t.strides[a - lead])
        return total

    def copy(self, source: KValue, into: KValue, rows: tuple[KValue, Dim], columns: tuple[KValue, Dim],
             pitch: KValue | int, fill: KValue | int, scale: float = 1.0) -> None:  # fmt: skip
        """rows × columns, each a count and a stride, side by side from `into` on."""
        k = self.k
        emitter = self.h.emitter if into.dtype == BF16 else SINGLE
        turned = rows[1] == 1 and emitter.k_step == 1
        mode = "rows" if columns[1] == 1 else "transposed" if turned else "strided"
        numbers = [rows[0], columns[0], k.index(rows[1]), k.index(columns[1]), k.index(pitch), k.index(fill)]
        copy = copy_function(self.ctx, source.dtype, mode, self.h.lanes, emitter)
        k.call(copy, [source, into, *numbers, k.const(scale, F32)])

    def pack_panel(self, source: KValue, into: KValue, rows: tuple[KValue, Dim], columns: tuple[KValue, Dim],
                   width: KValue) -> None:  # fmt: skip
        """A panel of B from rows × columns, each a count and a stride."""
        k = self.k
        if not self.h.paired:
            self.copy(source, into, rows, columns, width, width)
            return
        function = pack_function(self.ctx, rows[1], columns[1], self.h.together_steps)
        k.call(function, [source, into, rows[0], columns[0], k.index(rows[1]), k.index(columns[1]), width])

    def pack(self, at: list[KValue]) -> None:
        """k and v of a head."""
        k, h, keys, each = self.k, self.h, self.k.index(self.h.keys), self.h.emitter.width
        source = k.gep(k["kt"], self.base(at, self.kt))
        d_step, s_step = self.kt.strides[-2:]

        def panel(key: KValue, width: KValue) -> None:
            self.pack_panel(k.gep(source, key * k.index(s_step)), k.gep(k["kpack"], key * (h.score_depth * each)),
                            (k.index(h.depth), d_step), (k.min(keys - key, width), s_step), width)  # fmt: skip

        self.key_panels(keys, lambda key, vectors: panel(key, k.index(vectors * h.lanes)))
        source = k.gep(k["v"], self.base(at, self.v))
        s_step, e_step = self.v.strides[-2:]
        for kind, column in self.v_panels():
            width = kind.vectors * h.lanes
            place = k.gep(k["vpack"], k.index(h.key_steps) * (column * each))
            columns = k.index(min(width, h.columns - column))
            self.pack_panel(k.gep(source, column * k.index(e_step)), place, (keys, s_step), (columns, e_step),
                            k.index(width))  # fmt: skip

    def key_panels(self, count: KValue, panel: Callable[[KValue, int], None]) -> None:
        """`panel` for each panel of so many keys, with its first and its vectors: the last has what it needs."""
        k, h = self.k, self.h
        whole = k.udiv(count + (h.lanes - 1), h.width) * h.width
        k.for_(0, whole, h.width, [], lambda key, _: panel(key, h.width // h.lanes))
        steps = k.udiv(count - whole + (h.lanes - 1), h.lanes)
        for vectors in range(1, h.width // h.lanes):
            k.if_(steps == vectors, partial(panel, whole, vectors))

    def v_panels(self) -> list[tuple[PanelKind, int]]:
        """Every panel of v with its first column."""
        return [
            (kind, static(kind.column) + i * kind.vectors * self.h.lanes)
            for kind in self.h.kinds
            for i in range(static(kind.count))
        ]

    def queries(self, at: list[KValue], row: KValue, count: KValue) -> None:
        """One block of queries."""
        k, h = self.k, self.h
        m_step, d_step = self.q.strides[-2:]
        source = k.gep(k["q"], self.base(at, self.q) + row * k.index(m_step))
        scale = 1.0 if h.paired else self.scale  # numbers that are rounded are not scaled: their scores are
        self.copy(source, k["qpack"], (count, m_step), (k.index(h.depth), d_step), h.q_pitch,
                  h.q_pitch if h.matrices else h.depth, scale)  # fmt: skip
        tiles = k.udiv(count + (h.tile - 1), h.tile)
        n_blocks = 1 if self.one_block else k.max(k.index(ceil_div(h.keys, h.block)), 1)  # without keys sums are 0, too
        k.for_(0, n_blocks, 1, [], lambda n, _: self.keys(at, row, count, tiles, n))
        y = k.gep(k["y"], self.base(at, self.y) + row * k.index(self.y.strides[-2]))

        def finish(i: KValue, _: list[KValue]) -> None:
            total = k.select(k.index(h.keys) == 0, 1.0, k.load(k["sum"], i))
            factor = k.splat(k.const(1.0, F32) / total, h.lanes)

            def vector(c: KValue, mask: KValue | None) -> None:
                value = k.load(k["out"], i * h.out_pitch + c, h.lanes) * factor
                value = k.round_to_bf16(value) if self.y.dtype == BF16 else value
                k.store(y, i * k.index(self.y.strides[-2]) + c, value, mask)

            self.each_vector(k.index(h.columns), vector)

        k.for_(0, count, 1, [], finish)

    def each_vector(self, count: KValue, body: Callable[[KValue, KValue | None], None]) -> None:
        k, lanes = self.k, self.h.lanes
        whole = k.udiv(count, lanes) * lanes
        k.for_(0, whole, lanes, [], lambda c, _: body(c, None))
        k.for_(whole, count, lanes, [], lambda c, _: body(c, k.tail_mask(count - c, lanes)))

    def fold(
        self, count: KValue, start: float, body: Callable[[KValue, list[KValue], KValue | None], list[KValue]]
    ) -> list[KValue]:
        """A vector for each of `together` rows, carried over `count` elements."""
        k, lanes = self.k, self.h.lanes
        whole = k.udiv(count, lanes) * lanes
        carried = [k.splat(k.const(start, F32), lanes)] * self.h.together
        carried = k.for_(0, whole, lanes, carried, lambda c, s: body(c, s, None))
        return k.for_(whole, count, lanes, carried, lambda c, s: body(c, s, k.tail_mask(count - c, lanes)))

    def keys(self, at: list[KValue], row: KValue, count: KValue, tiles: KValue, number: KValue) -> None:
        """One block of keys for a block of queries."""
        k, h = self.k, self.h
        start = number * h.block
        n = k.min(k.index(h.keys) - start, h.block)
        each = h.emitter.width

        def panel(key: KValue, vectors: int) -> None:
            score = product_function(self.ctx, h.tile, vectors, h.emitter)
            b, into = k.gep(k["kpack"], (start + key) * (h.score_depth * each)), k.gep(k["scores"], key)
            k.call(score, [k["qpack"], b, into, h.q_pitch, h.score_pitch, h.score_depth, 1, tiles])

        self.key_panels(n, panel)
        k.for_(0, count, h.together, [], lambda i, _: self.softmax(at, row, i, start, n, number))
        step, whole = h.emitter.k_step, h.whole_steps
        steps = k.udiv(n + (whole - 1), whole) * h.together_steps
        before = k.udiv(start, step)  # blocks are whole panels, of even widths
        for kind, column in self.v_panels():
            add = product_function(self.ctx, h.tile, kind.vectors, h.emitter)
            b = k.gep(k["vpack"], (k.index(h.key_steps) * column + before * (kind.vectors * h.lanes)) * each)
            into = k.gep(k["out"], column)
            first = k.cast(number == 0, number.dtype) if not self.one_block else k.index(1)
            k.call(add, [self.weights, b, into, h.score_pitch, h.out_pitch, steps, first, tiles])

    @property
    def weights(self) -> KValue:
        """What v's rows are multiplied by, as tiles read it."""
        return self.k["weights"] if self.h.paired else self.k["scores"]

    def softmax(self, at: list[KValue], row: KValue, i: KValue, start: KValue, n: KValue, number: KValue) -> None:
        """The exponentials of a few rows of scores, and what they change for the blocks before."""
        k, h = self.k, self.h
        rows = range(h.together)
        scores, weights = ([k.gep(base, (i + r) * h.score_pitch) for r in rows] for base in (k["scores"], self.weights))
        scale = self.scale if h.paired else 1.0
        zero = k.splat(k.const(0.0, F32), h.lanes)

        def greatest(c: KValue, top: list[KValue], on: KValue | None) -> list[KValue]:
            found = []
            for r in rows:
                value = k.load(scores[r], c, h.lanes)
                if scale != 1.0:
                    value = value * scale
                if self.mask is not None:
                    query = k.min(row + i + r, k.index(h.queries) - 1)
                    value = value + self.mask_at(at, query, start + c, on)
                if self.mask is not None or scale != 1.0:
                    k.store(scores[r], c, value)
                greater = value > top[r] if on is None else (value > top[r]) & on
                found.append(k.select(greater, value, top[r]))
            return found

        tops = [k.reduce("max", top) for top in self.fold(n, LOWEST, greatest)]
        if not self.one_block:
            old = [k.select(number == 0, k.const(LOWEST, F32), k.load(k["top"], i + r)) for r in rows]
            tops = [k.select(a > b, a, b) for a, b in zip(old, tops, strict=True)]

        def powers(c: KValue, total: list[KValue], on: KValue | None) -> list[KValue]:
            found = []
            for r in rows:
                value = k.math("exp2", (k.load(scores[r], c, h.lanes) - tops[r]) * LOG2E)
                value = value if on is None else k.select(on, value, zero)  # a pair may lack its second one
                k.store(weights[r], c, k.round_to_bf16(value) if h.paired else value)
                found.append(total[r] + value)
            return found

        parts = self.fold(n, 0.0, powers)
        if h.matrices:  # what the last steps lack
            for r in rows:
                k.for_(k.udiv(n + (h.lanes - 1), h.lanes) * h.lanes, k.udiv(n + (h.whole_steps - 1), h.whole_steps) *
                       h.whole_steps, h.lanes, [], partial(self.clear, weights[r]))  # fmt: skip
        for r, part in enumerate(parts):
            total = k.reduce("add", part)
            if not self.one_block:
                factor = k.select(number == 0, k.const(0.0, F32), k.math("exp2", (old[r] - tops[r]) * LOG2E))
                total = total + k.select(number == 0, k.const(0.0, F32), k.load(k["sum"], i + r) * factor)
                k.store(k["top"], i + r, tops[r])
                k.if_(number != 0, lambda r=r, factor=factor: self.rescale(i + r, factor))  # type: ignore[misc]
            k.store(k["sum"], i + r, total)

    def clear(self, row: KValue, c: KValue, _: list[KValue]) -> None:
        """A vector of zeros of bf16."""
        self.k.store(row, c, self.k.cast(self.k.splat(self.k.const(0.0, F32), self.h.lanes), BF16))

    def rescale(self, i: KValue, factor: KValue) -> None:
        """out[i] *= factor."""
        k, h = self.k, self.h
        for c in range(0, h.out_pitch, h.lanes):
            at = i * h.out_pitch + c
            k.store(k["out"], at, k.load(k["out"], at, h.lanes) * factor)

    def mask_at(self, at: list[KValue], row: KValue, column: KValue, on: KValue | None) -> KValue:
        """The mask's elements for one query and a vector of keys."""
        k, t, lanes = self.k, self.mask, self.h.lanes
        assert t is not None
        dims, strides = t.dims, t.strides
        base = self.base(at, t)
        if t.rank > 1 and dims[-2] != 1:
            base = base + row * k.index(strides[-2])
        step = 0 if t.rank == 0 or dims[-1] == 1 else strides[-1]
        if step == 0:
            return k.splat(k.load(k["mask"], base), lanes)
        if step == 1:
            return k.load(k["mask"], base + column, lanes, on)
        index = k.splat(base + column * k.index(step), lanes) + k.ramp(lanes) * k.splat(k.index(step), lanes)
        return k.gather(k["mask"], index, on)
