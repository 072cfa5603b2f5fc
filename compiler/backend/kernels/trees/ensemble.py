"""WalkTrees: each row down each tree, node by node, or by bit vectors for as far as they serve.

    walks:        for part, block of rows (work items): walk all rows from the roots
    tops:         for part, block: turn the rows; for tree: exits of the rows by bit vectors; walk on from there
    bit-vectors:  for block, part: turn the rows, once a block; for tile of rows: for tree: add the exits' votes

Parts are outermost where trees are large, so that a part's stay in the cache for all rows. Each row's votes are added
in the trees' order, part by part, whichever of them serves it: the bits are the same, and rows that make no vector are
walked. `cost.py` counts which is fastest where a call brings many rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ....ir.graph import Node
from ....ir.ops.tree_walk import ROWS, WalkTrees, row_blocks
from ....ir.types import I32, I64
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, KType, PtrType
from ...lowering import KernelCall, LowerContext, Scratch, lowers
from .bit_vectors import BitVectors
from .cost import least_rows
from .tables import Ensemble, Parameters, ensemble_of
from .tops import Tops
from .walk import Walks

L2_SHARE = 2  # of a core's second cache, a block's features take less than 1 / L2_SHARE


@dataclass(frozen=True)
class Item:
    """A work item: rows [low, high) through trees [first, last).

    Attributes:
        number: of the block. part: counts the rows of the parts before.
    """

    number: KValue
    part: KValue
    low: KValue
    high: KValue
    first: KValue
    last: KValue


Emit = Callable[["Builder", Walks, Item, KValue], "KValue | None"]
"""Emits a work item, from the number of the block whose rows the core's memory has, which it returns anew."""


@lowers(WalkTrees)
def lower_walk_trees(ctx: LowerContext, node: Node) -> KernelCall:
    """By bit vectors where they pay, else by walks."""
    ways = {"walks": 0.0}
    makers: dict[str, Callable[[LowerContext], KernelCall]] = {"walks": partial(_walks, node=node)}
    ensemble = ensemble_of(ctx, node)
    if ensemble is not None and _features_fit(ctx, ensemble):
        ways["walks"] = ensemble.walking
        whole = ensemble.tops(0.0)
        if ensemble.votes_by_exit(whole):
            ways["bit-vectors"] = ensemble.cycles(whole)
            makers["bit-vectors"] = partial(_bit_vectors, node=node, ensemble=ensemble, tops=whole)
        else:
            tops = whole if whole.whole else ensemble.tops(ensemble.tile.least_share)
            ways["tops"] = ensemble.cycles(tops)
            makers["tops"] = partial(_tops, node=node, ensemble=ensemble, tops=tops)
    return ctx.pick(node, {name: makers[name] for name in sorted(ways, key=ways.__getitem__)})


def _features_fit(ctx: LowerContext, ensemble: Ensemble) -> bool:
    """Whether trees test features, of which a block's are half of the second cache at most."""
    return 0 < ROWS * ensemble.op.features * ensemble.dtype.nbytes * L2_SHARE <= ctx.target.l2_nbytes


def _walks(ctx: LowerContext, node: Node) -> KernelCall:
    def emit(k: Builder, walks: Walks, item: Item, held: KValue) -> None:
        walks.run(item.part, item.low, item.high, item.first, item.last)

    return _call(ctx, node, "walk_trees", [], emit)


def _tops(ctx: LowerContext, node: Node, ensemble: Ensemble, tops: Tops) -> KernelCall:
    """Exits of all rows that walk a tree together, then their walks on."""
    tile = ensemble.tile

    def emit(k: Builder, walks: Walks, item: Item, held: KValue) -> None:
        vectors = BitVectors(k, ensemble.op, ensemble.dtype, tile)
        end = walks.side_by_side(item.low, item.high)
        n_vectors = k.udiv(end - item.low, tile.lanes)
        k.if_(n_vectors > 0, lambda: vectors.turn(item.low, end, walks.width))

        def starts(tree: KValue) -> Callable[[KValue], KValue]:
            def find(vector: KValue, n: int) -> None:
                for i, exit in enumerate(vectors.exits(tree, vector, n)):
                    k.store(k["starts"], (vector + i) * tile.lanes, vectors.looked_up("exits", tree, exit))

            vectors.tiles(n_vectors, find)
            return lambda row: k.cast(k.load(k["starts"], row - item.low), I64)

        walks.run(item.part, item.low, item.high, item.first, item.last, starts)

    room: Parameters = [("starts", PtrType(I32), Scratch(ROWS * I32.nbytes)), _turned(ensemble)]
    return _call(ctx, node, "tree_tops", [*room, *ensemble.parameters(ctx, tops)], emit, tile)


def _bit_vectors(ctx: LowerContext, node: Node, ensemble: Ensemble, tops: Tops) -> KernelCall:
    """Sums of tiles of rows in registers, over all trees of a part."""
    tile, least = ensemble.tile, least_rows(ensemble.tile, tops, ensemble.walking)

    def emit(k: Builder, walks: Walks, item: Item, held: KValue) -> KValue:
        vectors = BitVectors(k, ensemble.op, ensemble.dtype, tile)
        count = item.high - item.low
        some = k.select(k.urem(count, tile.lanes) >= least, k.index(1), k.index(0))
        n_vectors = k.udiv(count, tile.lanes) + some
        end = item.low + k.min(n_vectors * tile.lanes, count)
        k.if_((n_vectors > 0) & (item.number != held), lambda: vectors.turn(item.low, end, walks.width))

        def votes(vector: KValue, n: int) -> None:
            def tree(number: KValue, sums: list[KValue]) -> list[KValue]:
                exits = vectors.exits(number, vector, n)
                own = [vectors.looked_up("exits", number, exit) for exit in exits]
                return [walks.combined(total, vote) for total, vote in zip(sums, own, strict=True)]

            nothing = k.const(walks.nothing, KType(ensemble.dtype, tile.lanes))
            row = item.low + vector * tile.lanes
            for i, total in enumerate(k.for_(item.first, item.last, 1, [nothing] * n, tree)):
                mask = k.tail_mask(end - row - i * tile.lanes, tile.lanes)
                k.store(k["y"], item.part + row + i * tile.lanes, total, mask)

        vectors.tiles(n_vectors, votes)
        walks.run(item.part, end, item.high, item.first, item.last)
        return item.number

    parameters = [_turned(ensemble), *ensemble.parameters(ctx, tops)]
    return _call(ctx, node, "tree_bit_vectors", parameters, emit, (tile, least), by_blocks=True)


def _turned(ensemble: Ensemble) -> tuple[str, PtrType, Scratch]:
    """Room for a block's features."""
    nbytes = ROWS * ensemble.op.features * ensemble.dtype.nbytes
    return "turned", PtrType(ensemble.dtype), Scratch(nbytes)


def _call(
    ctx: LowerContext, node: Node, kind: str, parameters: Parameters, emit: Emit, extra: object = None, *,
    by_blocks: bool = False,
) -> KernelCall:  # fmt: skip
    """A work item for each part of the trees and block of rows; in which order, `by_blocks` says."""
    assert isinstance(node.op, WalkTrees)
    op, x, y = node.op, node.operands[0], node.output
    n_trees, dtype = node.operands[2].tensor.dims[0] - 1, x.tensor.dtype
    parts, rows, _ = y.tensor.dims
    blocks = row_blocks(rows)
    site = ctx.error_site(node, f"too few features for the trees, which need {op.features}")
    ints = [(n, PtrType(I32)) for n in ("nodes", "roots", "firsts", "targets")]
    floats = [(n, PtrType(dtype)) for n in ("weights", "y")]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("x", PtrType(dtype)), *ints, *floats, *((n, t) for n, t, _ in parameters)])
        walks = Walks(k, op, dtype, k.index(x.tensor.dims[1]))

        def item(work: KValue, carried: list[KValue]) -> list[KValue]:
            part, block = k.udiv(work, blocks), k.urem(work, blocks)
            if by_blocks:
                block, part = k.udiv(work, parts), k.urem(work, parts)
            low, first = block * ROWS, part * op.trees_per_part
            own = Item(block, part * k.index(rows), low, k.min(low + ROWS, k.index(rows)), first,
                       k.min(first + op.trees_per_part, k.index(n_trees)))  # fmt: skip
            held = emit(k, walks, own, carried[0] if carried else k.index(-1))
            return [held] if held is not None else []

        def items() -> None:
            k.for_(k["begin"], k["end"], 1, [k.index(-1)] if by_blocks else [], item)

        k.if_(walks.width >= op.features, items, lambda: k.fail(site))
        return k.func

    func = ctx.function(kind, node, build, site, extra)
    return KernelCall(func, (*node.operands, y, *(operand for _, _, operand in parameters)), blocks * parts, node.name,
                      nbytes=x.tensor.nbytes + y.tensor.nbytes + sum(v.tensor.nbytes for v in node.operands[1:]))
