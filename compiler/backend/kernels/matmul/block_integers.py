"""Few rows by weights of 4 bits in integers, where the model lets activations be rounded (`accuracy_level` 4).

Each block of a row of A becomes whole numbers r from -127 to 127 and a scale, its farthest element from zero by 127:

    y = Σ_b scale_b · step_b · (Σ_k r_k q_k - zero_b Σ_k r_k)

The lower halves of a word's bytes are four weights of a column, the upper ones another four, and one instruction
multiplies four by r (`dot_u8i8`). Sums of a block are exact, in i32 and then in f32: below 256 · 127 · 255 < 2^23. So
beside what f32 rounds (`block_tiles`), y differs from a w by what rounding A does, at most

    Σ_b step_b / 2 · |scale_b| Σ_k |q_k - zero_b| · (1 + 2^-20),   step_b = max |a_k| / 127 of the block

A block with an infinity or NaN gives NaN; one whose elements are all below 2^-100 counts as zeros.
"""

from __future__ import annotations

from ....ir.types import F32, I8, I32, U8
from ....kernel_ir.builder import F32PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, KType, PtrType
from ....targets.target import Target
from ...lowering import LowerContext
from ..tail import Tail
from .block_panels import Blocks
from .block_tiles import FewShape, Words, few_params, few_rows, padded

SCALES = 2  # of a rounded block: its step, and the sum of its numbers; both f32
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of a word's eight numbers: those in lower halves of its bytes, then the others
LEAST = 2.0**-100
QUADS = frozenset({"ssse3", "avx512vnni", "avxvnni"})  # features with an instruction for products of four bytes


def takes_integers(target: Target, blocks: Blocks) -> bool:
    """Whether a product whose activations may be rounded is faster in integers."""
    return blocks.bits == 4 and blocks.zeros != "any" and bool(QUADS & target.abilities)


def integer_params(shape: FewShape, tail: Tail) -> list[tuple[str, KType | PtrType]]:
    """Those of `few_params` behind two more: `a` has the steps and sums of `rounded`'s blocks."""
    return [("rounded", PtrType(I8)), ("b_bytes", PtrType(U8)), *few_params(shape, tail)]


def few_integers(ctx: LowerContext, shape: FewShape, tail: Tail) -> KFunc:
    """As `few_function`, of rows that `rounded_row` made."""
    return few_rows(ctx, "few_integers", shape, tail, integer_params(shape, tail), _sums)


def _sums(k: Builder, shape: FewShape) -> list[KValue]:
    """The elements of the result, row by row."""
    vectors, lanes, blocks = range(shape.vectors), shape.lanes, shape.blocks
    zero, none = k.splat(k.const(0.0, F32), lanes), k.splat(k.const(0, I32), lanes)
    n = shape.rows * shape.vectors

    def block(number: KValue, totals: list[KValue]) -> list[KValue]:
        words = Words(k, blocks, shape.vectors, lanes, k["b"], number)
        start = number * blocks.size

        def group(g: KValue, sums: list[KValue]) -> list[KValue]:
            sums = list(sums)
            words.prefetch(g)
            weights = [k.load(k["b_bytes"], words.place(g, v) * 4, 4 * lanes, align=4 * lanes) for v in vectors]
            for half, halves in enumerate(([w & 15 for w in weights], [w >> 4 for w in weights])):
                for r in range(shape.rows):
                    quad = k.load(k["rounded"], start + g * len(ORDER) + (r * padded(blocks) + 4 * half), 4)
                    a = k.shuffle(quad, quad, (0, 1, 2, 3) * lanes)
                    for v in vectors:
                        at = r * shape.vectors + v
                        sums[at] = k.op("dot_u8i8", (halves[v], a, sums[at]), sums[at].type, pairs_in_i16=True)
            return sums

        sums = k.for_(0, blocks.size // blocks.per_word, 1, [none] * n, group)
        out = []
        for at, total in enumerate(totals):
            row, v = divmod(at, shape.vectors)
            scales = number * SCALES + row * SCALES * blocks.n
            step, whole = (k.splat(k.load(k["a"], scales + i), lanes) for i in range(SCALES))
            centred = k.cast(sums[at], F32) - words.zeros(v) * whole
            out.append(total + centred * (words.scales[v] * step))
        return out

    return k.for_(0, blocks.n, 1, [zero] * n, block)


def rounded_row(ctx: LowerContext, blocks: Blocks, depth: int) -> KFunc:
    """A function that rounds a row of A: numbers in `ORDER` to `dst`, and for each block its step and their sum."""
    key = ("rounded_row", blocks.size, depth)
    if key not in ctx.functions:
        params: list[tuple[str, KType | PtrType]] = [("src", F32PTR), ("dst", PtrType(I8)), ("scales", F32PTR)]
        k = Builder(f"rounded_row_{len(ctx.functions)}", params, inline="never")
        whole = depth // blocks.size
        k.for_(0, whole, 1, [], lambda b, _: _round_block(k, blocks, b, None))
        k.for_(whole, blocks.n, 1, [], lambda b, _: _round_block(k, blocks, b, depth))
        ctx.functions[key] = k.func
    return ctx.functions[key]


def _round_block(k: Builder, blocks: Blocks, number: KValue, depth: int | None) -> None:
    """A block, of which elements from `depth` on are zeros."""
    lanes, source = len(ORDER), number * blocks.size
    zero = k.splat(k.const(0.0, F32), lanes)

    def load(at: KValue) -> KValue:
        mask = None if depth is None else k.tail_mask(k.index(depth) - (source + at), lanes)
        return k.load(k["src"], source + at, lanes, mask)

    def look(at: KValue, seen: list[KValue]) -> list[KValue]:
        value = load(at)
        with k.rounding():
            return [k.max(seen[0], k.math("abs", value)), seen[1] + value * 0.0]

    most, unknown = k.for_(0, blocks.size, lanes, [zero, zero], look)
    largest, nothing = k.reduce("max", most), k.reduce("add", unknown)  # nothing is NaN where one is no number
    is_zero = largest < LEAST
    step = k.select(is_zero, k.const(0.0, F32), largest * (1 / 127)) + nothing
    inverse = k.splat(k.select(is_zero, k.const(0.0, F32), 127.0 / largest), lanes)

    def write(at: KValue, total: list[KValue]) -> list[KValue]:
        whole = k.cast(k.math("round_even", k.clip(load(at) * inverse, -127.0, 127.0)), I32)
        k.store(k["dst"], source + at, k.cast(k.shuffle(whole, whole, ORDER), I8))
        return [total[0] + whole]

    (total,) = k.for_(0, blocks.size, lanes, [k.splat(k.const(0, I32), lanes)], write)
    k.store(k["scales"], number * SCALES, step)
    k.store(k["scales"], number * SCALES + 1, k.cast(k.reduce("add", total), F32))
