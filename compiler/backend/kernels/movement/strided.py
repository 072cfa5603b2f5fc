"""Copies between two strided views of equal shape: the core of Transpose, Relayout, Slice, Split, Concat, Expand.

Owns the choice between a row-wise copy and a blocked transposition in registers. It must not know operators.

Blocked: where source and destination have different unit-stride axes q and p, `for each other index, for each block of
lanes × lanes of (q, p): load rows along q, transpose by log2(lanes) stages of shuffles, store rows along p`, so that
every cache line is touched once (the register transpose is that of Springer et al., "HPTT", 2017). Elements of one and
two bytes are widened to four on the way, which fewer instructions transpose than gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .....errors import UnsupportedOp
from ....ir.types import STR, U8, U16, U32, U64, Dim, DType, TensorType, ceil_div, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import LowerContext
from ..nest import decode, emit_nest, iteration_axes, load_lane, store_lane

_BITS = {1: U8, 2: U16, 4: U32, 8: U64}


def bits_of(dtype: DType) -> DType:
    """The unsigned integer of an element's size: what is only moved is moved as bits.

    Raises:
        UnsupportedOp: strings and elements of more than eight bytes.
    """
    if dtype.nbytes not in _BITS or dtype == STR:
        raise UnsupportedOp(f"no kernel moves elements of type {dtype}")
    return _BITS[dtype.nbytes]


@dataclass(frozen=True)
class Copy:
    """y[index·y_strides + y_base] = x[index·x_strides + x_base] over `shape`; strides in elements, per axis."""

    shape: tuple[Dim, ...]
    x_strides: tuple[Dim, ...]
    y_strides: tuple[Dim, ...]
    dtype: DType
    x_base: Dim = 0
    y_base: Dim = 0

    @property
    def work(self) -> Dim:
        """Work items of the kernel."""
        pair = self._blocked_axes()
        if pair is None:
            return self._axes().work
        q, p = pair
        rest = prod(d for a, d in enumerate(self.shape) if a not in pair)
        return rest * ceil_div(self.shape[q], BLOCK) * ceil_div(self.shape[p], BLOCK)

    def _axes(self):  # type: ignore[no-untyped-def]
        order = sorted(range(len(self.shape)), key=lambda a: -_rank_of(self.y_strides[a]))
        shape = TensorType(self.dtype, self.shape, tuple(order))
        return iteration_axes(shape, [self.x_strides, self.y_strides])

    def _blocked_axes(self) -> tuple[int, int] | None:
        """(q, p): unit-stride axes of x and y, if they differ and blocks pay, which those of eight bytes do not.

        Measured on an Emerald Rapids, one core of two (2026-11-29), ns an element by blocks and by gathers: bf16
        64×3136 0.22, 0.83; 3136×64 0.22, 1.67; 1024×1024 0.45, 2.38; i8 0.20, 0.92; 0.22, 0.73; 0.31, 1.24; i64 0.51,
        0.35; 0.94, 2.0; 2.1, 1.45.
        """
        if self.dtype.nbytes > 4:
            return None
        live = [a for a, d in enumerate(self.shape) if d != 1]
        q = next((a for a in live if self.x_strides[a] == 1), None)
        p = next((a for a in live if self.y_strides[a] == 1), None)
        if q is None or p is None or q == p:
            return None
        small = [d for d in (self.shape[q], self.shape[p]) if isinstance(d, int) and d < 2]
        return None if small else (q, p)

    def build(self, ctx: LowerContext, name: str) -> KFunc:
        """The kernel, with pointer parameters x and y."""
        k = ctx.kernel(name, [("x", PtrType(self.dtype)), ("y", PtrType(self.dtype))])
        x, y = k.gep(k["x"], k.index(self.x_base)), k.gep(k["y"], k.index(self.y_base))
        pair = self._blocked_axes()
        if pair is None:
            emit_nest(k, self._axes(), ctx.lanes * 4 // max(4, self.dtype.nbytes),
                      lambda lane: store_lane(k, y, lane, 1, load_lane(k, x, lane, 0)))
        else:
            masks = self.dtype.nbytes == 4 or "avx512bw" in ctx.target.abilities
            self._blocked(k, x, y, pair, min(BLOCK, ctx.lanes), masks)
        return k.func

    def _blocked(self, k: Builder, x: KValue, y: KValue, pair: tuple[int, int], lanes: int, masks: bool) -> None:
        q, p = pair
        others = [a for a in range(len(self.shape)) if a not in pair]
        blocks_q, blocks_p = ceil_div(self.shape[q], BLOCK), ceil_div(self.shape[p], BLOCK)

        def item(work: KValue, _: list[KValue]) -> None:
            index = decode(k, work, [*(self.shape[a] for a in others), blocks_p, blocks_q])
            xo, yo = k.index(0), k.index(0)
            for a, i in zip(others, index):
                xo, yo = xo + i * k.index(self.x_strides[a]), yo + i * k.index(self.y_strides[a])
            for dp in range(0, BLOCK, lanes):
                for dq in range(0, BLOCK, lanes):
                    _block(k, self, pair, (x, xo), (y, yo), index[-1] * BLOCK + dq, index[-2] * BLOCK + dp, lanes,
                           masks)  # fmt: skip

        k.for_(k["begin"], k["end"], 1, [], item)


BLOCK = 16  # elements a side: a cache line of f32


def _rank_of(stride: Dim) -> int:
    """Sort key of strides: symbolic ones by their value at large sizes."""
    if isinstance(stride, int):
        return stride
    return stride.evaluate(dict.fromkeys(stride.symbols(), 97))


def _block(k: Builder, c: Copy, pair: tuple[int, int], source: tuple[KValue, KValue], target: tuple[KValue, KValue],
           q0: KValue, p0: KValue, lanes: int, masks: bool) -> None:  # fmt: skip
    """One lanes × lanes block at (q0, p0); a partial block takes masked vectors where `masks`, else single elements."""
    q, p = pair
    nq, np_ = k.index(c.shape[q]), k.index(c.shape[p])
    xs, ys = k.index(c.x_strides[p]), k.index(c.y_strides[q])
    x_at, y_at = source[1] + p0 * xs + q0, target[1] + q0 * ys + p0

    def whole() -> None:
        rows = [k.load(source[0], x_at + xs * i, lanes) for i in range(lanes)]
        for i, row in enumerate(transposed(rows)):
            k.store(target[0], y_at + ys * i, row)

    def transposed(rows: list[KValue]) -> list[KValue]:
        return [k.cast(row, c.dtype) for row in transpose_registers(k, [k.cast(row, U32) for row in rows])]

    def single() -> None:
        def row(i: KValue, _: list[KValue]) -> None:
            def element(j: KValue, _: list[KValue]) -> None:
                k.store(target[0], y_at + ys * i + j, k.load(source[0], x_at + xs * j + i))

            k.for_(0, k.min(np_ - p0, lanes), 1, [], element)

        k.for_(0, k.min(nq - q0, lanes), 1, [], row)

    def partial() -> None:
        mask_q, mask_p = k.tail_mask(nq - q0, lanes), k.tail_mask(np_ - p0, lanes)
        none = k.const(False, mask_q)
        rows = [k.load(source[0], x_at + xs * i, lanes, k.select(p0 + i < np_, mask_q, none)) for i in range(lanes)]
        for i, row in enumerate(transposed(rows)):
            k.store(target[0], y_at + ys * i, row, k.select(q0 + i < nq, mask_p, none))

    k.if_((q0 + lanes <= nq) & (p0 + lanes <= np_), whole, partial if masks else single)


def transpose_registers(k: Builder, rows: Sequence[KValue]) -> list[KValue]:
    """Transpose n vectors of n lanes by log2(n) stages of two-operand shuffles."""
    n, rows = len(rows), list(rows)
    half = 1
    while half < n:
        out = list(rows)
        for i in range(n):
            if not i & half:
                a, b = rows[i], rows[i + half]
                low = [j if not j & half else n + j - half for j in range(n)]
                high = [j + half if not j & half else n + j for j in range(n)]
                out[i], out[i + half] = k.shuffle(a, b, low), k.shuffle(a, b, high)
        rows = out
        half *= 2
    return rows
