"""Random words, and masks by them: Philox4x32-10, blocks side by side in the lanes of a vector.

    for group of 64 elements: blocks 16 group … 16 group + 15, ten rounds each, give words 0 … 3;
        lane j of word w: element 64 group + 16 w + j

The order of elements is the same for every length of vector, so that all targets draw the same words.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Node
from ...ir.ops.dropout import RandomMask
from ...ir.ops.random import RandomBits
from ...ir.types import F64, I64, U8, U32, U64, DType, ceil_div, prod
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.loops import KFunc, PtrType
from ..lowering import KernelCall, LowerContext, lowers

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # what the key grows by from round to round
ROUNDS = 10
BLOCKS, WORDS = 16, 4
GROUP = BLOCKS * WORDS
ITEM = 4096  # elements of a work item


def philox(k: Builder, counter: list[KValue], key: list[KValue]) -> list[KValue]:
    """Philox4x32-10 of four words (u32, in lanes) under a key of two (u32): four random words."""
    c0, c1, c2, c3 = counter
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = (_product(k, c, m) for c, m in zip((c0, c2), MULTIPLIERS))
        c0, c1, c2, c3 = high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0
        key = [word + grows for word, grows in zip(key, WEYL)]
    return [c0, c1, c2, c3]


def _product(k: Builder, c: KValue, multiplier: int) -> tuple[KValue, KValue]:
    """The upper and the lower 32 bits."""
    whole = k.cast(c, U64) * multiplier
    return k.cast(whole >> 32, U32), k.cast(whole, U32)


def halves(k: Builder, x: KValue) -> list[KValue]:
    """The lower and the upper word of an i64."""
    bits = k.cast(x, U64)
    return [k.cast(bits, U32), k.cast(bits >> 32, U32)]


@lowers(RandomMask)
def lower_random_mask(ctx: LowerContext, node: Node) -> KernelCall:
    """A byte for each element."""
    return _lower(ctx, node, "random_mask", ["ratio", "seed", "position"], U8, _kept)


@lowers(RandomBits)
def lower_random_bits(ctx: LowerContext, node: Node) -> KernelCall:
    """A word for each element."""
    return _lower(ctx, node, "random_bits", ["seed", "position"], U32, lambda k: lambda word: word)


def _lower(ctx: LowerContext, node: Node, kind: str, names: list[str], stored: DType,
           finished: Callable[[Builder], Callable[[KValue], KValue]]) -> KernelCall:  # fmt: skip
    """Groups that a work item has a part of are computed whole.

    Args:
        names: of the operands behind the shape. finished: with a builder gives what makes an element of a word.
    """
    y, lanes = node.output.tensor, min(BLOCKS, ctx.lanes)
    total, row = prod(y.dims), [v for v in node.inputs[1:] if v is not None]
    names = names[: len(row)]

    def build(name: str) -> KFunc:
        given = [(n, PtrType(v.tensor.dtype)) for n, v in zip(names, row)]
        k = ctx.kernel(name, [("y", PtrType(stored)), *given])
        step, first = (k.load(k["position"], i) if "position" in names else k.index(0) for i in range(2))
        keep = finished(k)
        key = halves(k, k.load(k["seed"], 0))

        def item(work: KValue, _: list[KValue]) -> None:
            low = work * ITEM
            high = k.min(low + ITEM, k.index(total))

            def group(g: KValue, _: list[KValue]) -> None:
                start = g * GROUP - first
                masks = _group(k, g, step, key, lanes, keep)
                whole = (start >= low) & (start + GROUP <= high)
                k.if_(whole, lambda: _store(k, start, masks, None), lambda: _store(k, start, masks, (low, high)))

            k.for_(k.udiv(first + low, GROUP), k.udiv(first + high + GROUP - 1, GROUP), 1, [], group)

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function(kind, node, build)
    return KernelCall(func, (node.output, *row), ceil_div(total, ITEM), node.name, nbytes=y.nbytes)


def _kept(k: Builder) -> Callable[[KValue], KValue]:
    """Words → 1 where they are not among the ratio's share of the smallest, else 0."""
    ratio = k.cast(k.load(k["ratio"], 0), F64)
    share = k.min(k.cast(ratio * float(2**32), U64), 2**32 - 1)
    least, some = k.cast(share, U32), k.select(ratio < 1.0, k.const(1, U8), k.const(0, U8))
    return lambda word: k.select(word >= least, k.splat(some, word.lanes), k.const(0, U8))


def _group(k: Builder, g: KValue, step: KValue, key: list[KValue], lanes: int, keep: Callable[[KValue], KValue],
           ) -> list[tuple[int, KValue]]:  # fmt: skip
    """Place in the group and elements of each vector of it."""
    low, high = halves(k, g * BLOCKS)  # the upper word is the same for all blocks of a group
    fixed = [k.splat(word, lanes) for word in (high, *halves(k, step))]
    keys = [k.splat(word, lanes) for word in key]
    found = []
    for j in range(0, BLOCKS, lanes):
        blocks = k.splat(low + j, lanes) + k.ramp(lanes, U32)
        words = philox(k, [blocks, *fixed], keys)
        found += [(BLOCKS * w + j, keep(word)) for w, word in enumerate(words)]
    return found


def _store(k: Builder, start: KValue, masks: list[tuple[int, KValue]], within: tuple[KValue, KValue] | None) -> None:
    """The elements of a group; only elements of [low, high) if that is given."""
    for place, values in masks:
        at = start + place
        if within is None:
            k.store(k["y"], at, values)
            continue
        index = k.splat(at, values.lanes) + k.ramp(values.lanes, I64)
        k.store(k["y"], at, values, (index >= within[0]) & (index < within[1]))
