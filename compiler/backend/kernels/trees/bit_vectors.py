"""Exits of trees' tops, of a tile of rows at once: every node is compared with all rows, and no branch depends on one.

    turn the block's rows, so that a feature of the rows of a tile lies side by side
    for tree: bits = all exits; for node of its top: bits &= passed ? all : mask[node]; exit = number of the first bit

Nodes and masks are `tops.py`'s. The first bit's number is the exponent of the lowest bit as a float; exits are looked
up by it modulo their number, and lie in the order in which it counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.ops.tree_nodes import WIDE_BITS_AT
from ....ir.ops.tree_walk import WalkTrees
from ....ir.types import F32, I32, I64, U32, DType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KType
from ..movement.strided import transpose_registers
from .cost import Tile
from .node_test import has_own_bits, passes
from .tops import EXITS, GROUP

ALL = (1 << EXITS) - 1
EXPONENT_AT = 23  # in a float's bits


class BitVectors:
    """Emits tops of trees for tiles of a block of rows.

    Parameters of the kernel: `turned`, room for a block's features; `tops`, `offsets`, `thresholds` and `masks`, which
    `tables.py` makes.
    """

    def __init__(self, k: Builder, op: WalkTrees, dtype: DType, tile: Tile) -> None:
        self.k, self.op, self.dtype, self.tile = k, op, dtype, tile

    def turn(self, low: KValue, high: KValue, width: KValue) -> None:
        """Features of the block's rows [low, high), of `width` each; the last one's serve what is left of a vector."""
        k, lanes, features = self.k, self.tile.lanes, self.op.features
        whole = features // lanes * lanes

        def vector(v: KValue, _: list[KValue]) -> None:
            rows = [k.min(low + v * lanes + i, high - 1) * width for i in range(lanes)]
            place = self._place(v)

            def square(f: KValue, n: int) -> None:
                mask = k.tail_mask(k.index(n), lanes) if n < lanes else None
                columns = transpose_registers(k, [k.load(k["x"], row + f, lanes, mask) for row in rows])
                for j, column in enumerate(columns[:n]):
                    k.store(k["turned"], place + (f + j) * self.tile.rows, column)

            k.for_(0, whole, lanes, [], lambda f, _: square(f, lanes))
            if whole < features:
                square(k.index(whole), features - whole)

        k.for_(0, k.udiv(high - low + (lanes - 1), lanes), 1, [], vector)

    def tiles(self, n_vectors: KValue, each: Callable[[KValue, int], None]) -> None:
        """Vectors [0, n_vectors) of a block in whole tiles, and what is left one by one."""
        k, most = self.k, self.tile.vectors
        whole = k.udiv(n_vectors, most) * most
        k.for_(0, whole, most, [], lambda v, _: each(v, most))
        k.for_(whole, n_vectors, 1, [], lambda v, _: each(v, 1))

    def exits(self, tree: KValue, vector: KValue, n_vectors: int) -> list[KValue]:
        """Numbers of rows' exits modulo EXITS, less one, from a vector of the block on; the bits above are any."""
        k, place = self.k, self._place(vector)
        everything = k.const(ALL, KType(U32, self.tile.lanes))

        def nodes(first: KValue, bits: list[KValue]) -> list[KValue]:
            for at in range(GROUP):
                bits = self._node(first + at, place, bits)
            return bits

        begin, end = (k.cast(k.load(k["tops"], tree + i), I64) for i in (0, 1))
        return [self._first(bits) for bits in k.for_(begin, end, GROUP, [everything] * n_vectors, nodes)]

    def looked_up(self, table: str, tree: KValue, exit: KValue) -> KValue:
        """What a table of trees × EXITS elements has for rows' exits from a tree."""
        k, lanes, base = self.k, exit.lanes, tree * EXITS
        if not self.tile.permutes or lanes * k[table].dtype.bits < 512:
            return k.gather(k[table], k.cast(exit & (EXITS - 1), I64) + base)
        parts = [k.load(k[table], base + i, lanes) for i in range(0, EXITS, lanes)]
        found = [k.op("permute", (a, b, exit), a.type) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return found[0] if len(found) == 1 else k.select(k.compare("ne", exit & (2 * lanes), 0), found[1], found[0])

    def _place(self, vector: KValue) -> KValue:
        """Of a vector of the block's rows: where its tile's features lie, and its rows in each."""
        k, tile = self.k, self.tile
        return k.udiv(vector, tile.vectors) * (self.op.features * tile.rows) + k.urem(vector, tile.vectors) * tile.lanes

    def _node(self, node: KValue, place: KValue, bits: Sequence[KValue]) -> list[KValue]:
        k, lanes = self.k, self.tile.lanes
        word, own = k.load(k["offsets"], node), k.const(0, U32)
        if has_own_bits(self.op):
            own, word = word >> WIDE_BITS_AT, word & ((1 << WIDE_BITS_AT) - 1)
        at = place + k.cast(word, I64)
        threshold = k.splat(k.load(k["thresholds"], node), lanes)
        mask = k.splat(k.load(k["masks"], node), lanes)
        every = k.const(ALL, mask)
        found = []
        for i, vector in enumerate(bits):
            x = k.load(k["turned"], at + i * lanes, lanes)
            found.append(vector & k.select(passes(k, self.op, x, threshold, own), every, mask))
        return found

    def _first(self, bits: KValue) -> KValue:
        """The number of the lowest bit, plus a multiple of EXITS, less one."""
        k = self.k
        lowest = k.cast(k.bitcast(bits & -bits, I32), F32)
        return k.bitcast(k.bitcast(lowest, U32) >> EXPONENT_AT, I32)

