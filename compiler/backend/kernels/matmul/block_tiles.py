"""Kernel functions of blocked weights (`block_panels`): few rows of A by a panel, and a panel written out in f32.

Numbers of 4 or 8 bits become f32 in three instructions. The lower half of a word has one at bit 0, bits, 2 · bits …:
with all others masked out and 2^23 put above, it is the f32 2^23 + q · 2^shift. Less 2^23 + zero · 2^shift that is
(q - zero) · 2^shift, exactly. What multiplies it is A's element times 2^-shift, exact but where that is denormal.

The sums of a block are scaled together: for an element of the result over blocks b, with u = 2^-24,

    |y - exact| <= γ Σ_b |scale_b| Σ_k |a (q - zero)| + 2^-125 Σ_b |scale_b| · block size,   γ = n·u / (1 - n·u)

with n at most the block's size plus the number of blocks plus 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.types import I32, U32
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ...lowering import LowerContext
from ..tail import Tail
from .block_panels import MAGIC, Blocks
from .tile import LINE

HALF = 16  # bits of a word in which every number has a place below 2^23's digits
CHAINS = 4  # of multiply-adds, that wait for nothing but themselves: unpacking leaves room for one a cycle
# Words that are asked for before they are read: unpacking fills the core's window long before the memory's time is up.
# One row by six products of 1024 × 4096 and back, both cores of Zen 5, in turn with none (2026-11-28): 8 bits 1.00 ms →
# 0.68, 4 bits 0.46 → 0.38 where memory gave 50 GB/s; half of that distance to twice of it are alike, an eighth less.
AHEAD = 4096


@dataclass(frozen=True)
class FewShape:
    """One function: `rows` rows of A by a panel of so many vectors.

    Attributes:
        masked: fewer columns may exist than the panel has. fma: whether products are added in one instruction.
    """

    rows: int
    vectors: int
    lanes: int
    masked: bool
    fma: bool
    blocks: Blocks

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes


class Words:
    """The numbers of a block as f32: what is subtracted from them is made once."""

    def __init__(self, k: Builder, blocks: Blocks, vectors: int, lanes: int, panel: KValue, block: KValue) -> None:
        self.k, self.blocks, self.vectors, self.lanes, self.panel = k, blocks, vectors, lanes, panel
        self.width = vectors * lanes
        self.at = block * (blocks.words * self.width)
        self.first = 1 + bool(blocks.zeros)
        self.scales = [self._float(0, v) for v in range(vectors)]

    def word(self, group: KValue | int, v: int) -> KValue:
        """The numbers of a group, of one vector of columns."""
        return self.k.load(self.panel, self.place(group, v), self.lanes, align=4 * self.lanes)

    def place(self, group: KValue | int, v: int) -> KValue:
        """Where they are in the panel."""
        return self.at + (group + self.first) * self.width + v * self.lanes

    def prefetch(self, group: KValue) -> None:
        """Asks for what lies AHEAD of a group's numbers, in which panels follow each other."""
        for at in range(0, self.width, LINE):
            self.k.prefetch(self.panel, self.place(group, 0) + (AHEAD + at))

    def _float(self, number: int, v: int) -> KValue:
        return self.k.bitcast(self.word(number - self.first, v), F32)

    def zeros(self, v: int) -> KValue:
        """The zero points of a vector of columns."""
        if self.blocks.zeros:
            return self._float(1, v)
        return self.k.splat(self.k.const(float(1 << self.blocks.bits - 1), F32), self.lanes)

    def bases(self) -> list[list[KValue]]:
        """For each vector what is subtracted from the numbers at each place of a half."""
        return [[self._base(v, i) for i in range(HALF // self.blocks.bits)] for v in range(self.vectors)]

    def _base(self, v: int, i: int) -> KValue:
        """2^23 + zero · 2^shift; of zero points that are no whole numbers, zero · 2^shift."""
        k, blocks = self.k, self.blocks
        unit, above = float(1 << blocks.bits * i), 0.0 if blocks.zeros == "any" else float(1 << 23)
        if not blocks.zeros:
            return k.splat(k.const(above + unit * (1 << blocks.bits - 1), F32), self.lanes)
        with k.rounding():
            return self._float(1, v) * unit + above

    def numbers(self, group: KValue, v: int, bases: list[KValue]) -> list[KValue]:
        """Those of a group, of one vector of columns: number i times 2^(bits · (i modulo 16 / bits))."""
        k, bits = self.k, self.blocks.bits
        word = self.word(group, v)
        out = []
        for half in (word, word >> HALF):
            for i in range(HALF // bits):
                whole = k.bitcast((half & ((1 << bits) - 1 << bits * i)) | MAGIC, F32)
                with k.rounding():
                    if self.blocks.zeros == "any":
                        whole = whole - float(1 << 23)
                    out.append(whole - bases[i])
        return out


def padded(blocks: Blocks) -> int:
    """Weights of a column, with those beyond the last."""
    return blocks.n * blocks.size


def few_params(shape: FewShape, tail: Tail) -> list[tuple[str, KType | PtrType]]:
    """Names and types of the parameters, in order; `a` is as `scaled_row` makes it."""
    pointers: list[tuple[str, KType | PtrType]] = [("a", F32PTR), ("b", PtrType(U32)), *tail.params()]
    if tail.needs_dims:
        pointers.append(("dims", PtrType(INDEX.dtype)))
    numbers = ["row", "row_step", "column", "pitch", *(["n_columns"] if shape.masked else [])]
    return pointers + [(n, INDEX) for n in numbers]


def few_function(ctx: LowerContext, shape: FewShape, tail: Tail) -> KFunc:
    """Rows of the result in the columns of a panel."""
    return few_rows(ctx, "few", shape, tail, few_params(shape, tail), _sums)


def few_rows(ctx: LowerContext, word: str, shape: FewShape, tail: Tail, params: list[tuple[str, KType | PtrType]],
             sums: Callable[[Builder, FewShape], list[KValue]]) -> KFunc:  # fmt: skip
    """The function of a kind of sums, built once; `word`: what the kind is called."""
    key = (word, shape, tail.key)
    if key not in ctx.functions:
        name = f"{word}{shape.rows}x{shape.width}_{len(ctx.functions)}"
        k = Builder(name, params, tail.symbols, inline="never")
        _finish(k, shape, tail, sums(k, shape))
        ctx.functions[key] = k.func
    return ctx.functions[key]


def _sums(k: Builder, shape: FewShape) -> list[KValue]:
    """The elements of the result, row by row."""
    rows, vectors, lanes, blocks = range(shape.rows), range(shape.vectors), shape.lanes, shape.blocks
    n = shape.rows * shape.vectors
    chains = max(1, min(CHAINS // n, blocks.per_word))
    zero = k.splat(k.const(0.0, F32), lanes)

    def multiply_add(a: KValue, b: KValue, c: KValue) -> KValue:
        return k.fma(a, b, c) if shape.fma else c + a * b

    def block(number: KValue, sums: list[KValue]) -> list[KValue]:
        words = Words(k, blocks, shape.vectors, lanes, k["b"], number)
        bases = words.bases()

        def group(g: KValue, parts: list[KValue]) -> list[KValue]:
            parts, at = list(parts), number * blocks.size + g * blocks.per_word
            words.prefetch(g)
            numbers = [words.numbers(g, v, bases[v]) for v in vectors]
            for i in range(blocks.per_word):
                for r in rows:
                    a = k.splat(k.load(k["a"], at + (r * padded(blocks) + i)), lanes)
                    for v in vectors:
                        place = (i % chains) * n + r * shape.vectors + v
                        parts[place] = multiply_add(a, numbers[v][i], parts[place])
            return parts

        parts = k.for_(0, blocks.size // blocks.per_word, 1, [zero] * (n * chains), group)
        out = []
        for place, total in enumerate(sums):
            own = parts[place::n]
            while len(own) > 1:
                own = [a + b for a, b in zip(own[::2], own[1::2], strict=True)]
            out.append(multiply_add(words.scales[place % shape.vectors], own[0], total))
        return out

    return k.for_(0, blocks.n, 1, [zero] * n, block)


def _finish(k: Builder, shape: FewShape, tail: Tail, sums: list[KValue]) -> None:
    """Apply the tail to the elements of the result."""
    lanes = shape.lanes
    for v in range(shape.vectors):
        mask = k.tail_mask(k["n_columns"] - v * lanes, lanes) if shape.masked else None
        for r in range(shape.rows):
            row = k["row"] + k["row_step"] * r
            tail.apply(k, row, k["column"] + v * lanes, sums[r * shape.vectors + v], mask)


def scaled_row(ctx: LowerContext, blocks: Blocks, depth: int, lanes: int) -> KFunc:
    """A function that copies a row of A as `few_function` reads it: element k times 2^-shift, zeros beyond the last."""
    key = ("scaled_row", blocks.bits, blocks.size, depth, lanes)
    if key not in ctx.functions:
        k = Builder(f"scaled_row_{len(ctx.functions)}", [("src", F32PTR), ("dst", F32PTR)], inline="never")
        shift = (k.ramp(lanes, I32) & (HALF // blocks.bits - 1)) * blocks.bits
        factor = k.bitcast((127 - shift) << 23, F32)
        whole, end = depth // lanes * lanes, padded(blocks)
        k.for_(0, whole, lanes, [], lambda at, _: k.store(k["dst"], at, k.load(k["src"], at, lanes) * factor))
        if whole < end:
            mask = k.tail_mask(k.index(depth - whole), lanes)
            k.store(k["dst"], whole, k.load(k["src"], whole, lanes, mask) * factor)
        zero = k.splat(k.const(0.0, F32), lanes)
        k.for_(whole + lanes, end, lanes, [], lambda at, _: k.store(k["dst"], at, zero))
        ctx.functions[key] = k.func
    return ctx.functions[key]


def written_out(ctx: LowerContext, blocks: Blocks, vectors: int, lanes: int) -> KFunc:
    """A function that writes `count` blocks of a panel, from one on, as f32 [count · size][width]."""
    key = ("written_out", blocks, vectors, lanes)
    if key not in ctx.functions:
        params: list[tuple[str, KType | PtrType]] = [("src", PtrType(U32)), ("dst", F32PTR)]
        k = Builder(f"written_out_{len(ctx.functions)}", [*params, ("from", INDEX), ("count", INDEX)], inline="never")
        width, places = vectors * lanes, HALF // blocks.bits

        def block(number: KValue, _: list[KValue]) -> None:
            words = Words(k, blocks, vectors, lanes, k["src"], k["from"] + number)
            bases = words.bases()

            def group(g: KValue, _: list[KValue]) -> None:
                first = number * blocks.size + g * blocks.per_word
                for v in range(vectors):
                    for i, value in enumerate(words.numbers(g, v, bases[v])):
                        value = value * (1 / (1 << blocks.bits * (i % places))) * words.scales[v]
                        k.store(k["dst"], (first + i) * width + v * lanes, value, align=4 * lanes)

            k.for_(0, blocks.size // blocks.per_word, 1, [], group)

        k.for_(0, k["count"], 1, [], block)
        ctx.functions[key] = k.func
    return ctx.functions[key]
