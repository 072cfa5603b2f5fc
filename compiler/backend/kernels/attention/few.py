"""Attention of a few queries, each by itself: to bring k and v into another order would take longer than the products.

    for query:
        line[s] = q · k[s], for each key s, along the numbers of a head;  line += mask;  top = max line
        line = e^(line - top)
        y = Σ line[s] v[s] / Σ line

Keys and values lie with a head's numbers innermost, as a cache holds them that grows by whole tokens. Scores and masks
are as large as the model makes them: see `attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.types import TensorType
from ....kernel_ir.builder import F32, KValue
from ...fusion import load, store
from .shared import LOG2E, LOWEST, Kernel

MOST = 6  # queries: of more, packing pays
TOGETHER = 8  # vectors of a result that are summed at once, in registers


def reads(q: TensorType, kt: TensorType, v: TensorType) -> bool:
    """Whether heads lie so, and it is left to the run how many queries there are."""
    inner = q.strides[-1] == 1 and kt.strides[-2] == 1 and v.strides[-1] == 1
    return inner and not isinstance(q.dims[-2], int)


def query(kernel: Kernel, at: list[KValue], row: KValue) -> None:
    """One query of the head at the index `at`."""
    k = kernel.k
    n, line = k.index(kernel.h.keys), k["kpack"]  # of at least so many elements, rounded up to vectors
    _scores(kernel, at, row, n, line)
    total = _powers(kernel, at, row, n, line)
    _sums(kernel, at, row, n, line, k.select(n == 0, 1.0, total))  # without keys the result is 0


def _pieces(kernel: Kernel, count: int) -> list[tuple[int, KValue | None]]:
    """Where vectors of `count` elements begin, and which lanes the last one has; None: all."""
    k, lanes = kernel.k, kernel.h.lanes
    return [(c, k.tail_mask(k.index(count - c), lanes) if count - c < lanes else None) for c in range(0, count, lanes)]


def _scores(kernel: Kernel, at: list[KValue], row: KValue, n: KValue, line: KValue) -> None:
    k, h = kernel.k, kernel.h
    pieces, scale = _pieces(kernel, h.depth), k.splat(k.const(kernel.scale, F32), h.lanes)
    source = k.gep(k["q"], kernel.base(at, kernel.q) + row * k.index(kernel.q.strides[-2]))
    own = [load(k, source, c, h.lanes, on) * scale for c, on in pieces]
    keys, step = k.gep(k["kt"], kernel.base(at, kernel.kt)), k.index(kernel.kt.strides[-1])

    def key(s: KValue, _: list[KValue]) -> None:
        sums: list[KValue] = []  # two, as one would wait for itself
        for i, (part, (c, on)) in enumerate(zip(own, pieces, strict=True)):
            x = load(k, keys, s * step + c, h.lanes, on)
            if i < 2:
                sums.append(part * x)
            else:
                sums[i % 2] = _add(kernel, part, x, sums[i % 2])
        k.store(line, s, k.reduce("add", sums[0] + sums[1] if len(sums) > 1 else sums[0]))

    k.for_(0, n, 1, [], key, unroll=4)


def _powers(kernel: Kernel, at: list[KValue], row: KValue, n: KValue, line: KValue) -> KValue:
    """The line's exponentials, below its greatest; returns their sum."""
    k, h = kernel.k, kernel.h

    def greatest(c: KValue, top: KValue, on: KValue | None) -> KValue:
        value = k.load(line, c, h.lanes)
        if kernel.mask is not None:
            value = value + kernel.mask_at(at, row, c, on)
            k.store(line, c, value)
        greater = value > top if on is None else (value > top) & on
        return k.select(greater, value, top)

    top = k.reduce("max", _folded(kernel, n, LOWEST, greatest))

    def power(c: KValue, total: KValue, on: KValue | None) -> KValue:
        value = k.math("exp2", (k.load(line, c, h.lanes) - top) * LOG2E)
        k.store(line, c, value)
        return total + (value if on is None else k.select(on, value, k.splat(k.const(0.0, F32), h.lanes)))

    return k.reduce("add", _folded(kernel, n, 0.0, power))


def _folded(
    kernel: Kernel, count: KValue, start: float, body: Callable[[KValue, KValue, KValue | None], KValue]
) -> KValue:
    """A vector carried over `count` elements."""
    k, lanes = kernel.k, kernel.h.lanes
    whole = k.udiv(count, lanes) * lanes
    carried = [k.splat(k.const(start, F32), lanes)]
    carried = k.for_(0, whole, lanes, carried, lambda c, s: [body(c, s[0], None)])
    return k.for_(whole, count, lanes, carried, lambda c, s: [body(c, s[0], k.tail_mask(count - c, lanes))])[0]


def _sums(kernel: Kernel, at: list[KValue], row: KValue, n: KValue, line: KValue, total: KValue) -> None:
    k, h = kernel.k, kernel.h
    values, step = k.gep(k["v"], kernel.base(at, kernel.v)), k.index(kernel.v.strides[-2])
    y = k.gep(k["y"], kernel.base(at, kernel.y) + row * k.index(kernel.y.strides[-2]))
    factor, pieces = k.splat(k.const(1.0, F32) / total, h.lanes), _pieces(kernel, h.columns)
    for first in range(0, len(pieces), TOGETHER):
        own = pieces[first : first + TOGETHER]

        def value(s: KValue, sums: list[KValue], own: list[tuple[int, KValue | None]] = own) -> list[KValue]:
            weight = k.splat(k.load(line, s), h.lanes)
            return [_add(kernel, weight, load(k, values, s * step + c, h.lanes, on), before)
                    for before, (c, on) in zip(sums, own, strict=True)]

        zeros = [k.splat(k.const(0.0, F32), h.lanes)] * len(own)
        for (c, on), found in zip(own, k.for_(0, n, 1, zeros, value, unroll=2), strict=True):
            store(k, y, c, found * factor, on)


def _add(kernel: Kernel, a: KValue, b: KValue, c: KValue) -> KValue:
    return kernel.k.fma(a, b, c) if kernel.ctx.target.has_fma else c + a * b


__all__ = ["MOST", "query", "reads"]
