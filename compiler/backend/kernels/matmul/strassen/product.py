"""One of the seven products of Strassen's algorithm as a function: all row tiles of half a block, by one panel.

Its first tile may form the panel that it reads, a sum of two of B's quarters, for the tiles behind it. One function
serves all of a kernel's products, so that there are few calls of tiles, with their many arguments, to compile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from .....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ....lowering import LowerContext
from ...tail import Tail
from ..blocking import Product
from ..gemm import Operands, ProductEmitter, RowRange, Step
from .counts import MOST_ROWS

POINTERS = {"a": F32PTR, "table": I64PTR, "b": F32PTR, "less": F32PTR, "place": F32PTR, "onto": F32PTR,
            "ahead": F32PTR, "zeros": F32PTR}  # fmt: skip
NUMBERS = ("forms", "taps", "kc", "first", "last", "row", "rows", "column")


@dataclass(frozen=True)
class Sum:
    """A panel at `place`: the sum `b` - `less` of two others, once it is formed; without them one that is there."""

    place: KValue
    b: KValue | None = None
    less: KValue | None = None


class HalfBlock(ProductEmitter):
    """Emits the tiles of half a block of rows into a function of its own; see `product_function`."""

    def __init__(self, k: Builder, ctx: LowerContext, p: Product, tail: Tail, given: Operands, most_rows: int) -> None:
        zeros = k["zeros"]
        own = replace(given, a=k["a"], zero=zeros, table=k["table"], partial=k["onto"], bias=lambda column: zeros,
                      row_base=lambda outer: k.index(0))  # fmt: skip
        super().__init__(k, ctx, p, tail, own)
        self.most_rows = most_rows

    def shared(self, height: int) -> int:
        """Tiles of a height that together prefetch one quarter of B: those of half the rows."""
        return replace(self.p, row_block=self.most_rows, rows_known=True, rows=self.most_rows).shared(height)

    def heights(self, count: KValue, known: int | None, m: int) -> list[tuple[int, KValue, KValue]]:
        """Tiles of two heights, where any number of rows that a half may have can be cut so."""
        if known is not None or -(-(MOST_ROWS // 4) // m) < m - 1:
            return super().heights(count, known, m)
        tiles = self.k.udiv(count + (m - 1), m)
        low = tiles * m - count
        return [(m, self.k.index(0), tiles - low), (m - 1, (tiles - low) * m, low)]

    def all(self, known: int | None) -> None:
        """All tiles; `known`: the rows, where they are known."""
        k, (kind,) = self.k, self.p.kinds
        rows = RowRange(k.index(0), k["row"], k["rows"])
        step = Step(k["a"], k["table"], k["place"], k["taps"], k["kc"], k["first"], k["last"], k["onto"],
                    ahead=k["ahead"])  # fmt: skip
        forming, own = replace(step, b=k["b"], less=k["less"], formed=k["place"]), k["forms"]
        (size, low, tiles), *rest = self.heights(rows.count, known, self.height(kind.vectors))
        k.if_(own != 0, lambda: self.call(rows, kind, size, k["column"], low, own, forming))
        for height, row, n in ((size, own * size, tiles - own), *rest):
            self.call(rows, kind, height, k["column"], row, n, step)


def product_function(
    ctx: LowerContext, p: Product, tail: Tail, given: Operands, known: int | None, rows: int
) -> KFunc:
    """The function of half a block's product, built once per plan for products of these sizes.

    Args:
        p, tail, given: of the kernel. known: rows of the half, where they are known; rows: at most.
    """
    key = ("half-block", tail.key, p.columns, p.kc, p.kinds, given.pitch, given.row_step, known, rows)
    if key not in ctx.functions:
        params: list[tuple[str, KType | PtrType]] = [*POINTERS.items(), *tail.params(), ("dims", I64PTR)]
        k = Builder(f"half_block_{len(ctx.functions)}", params + [(n, INDEX) for n in NUMBERS], ctx.symbols,
                    inline="never")  # fmt: skip
        HalfBlock(k, ctx, p, tail, given, rows).all(known)
        ctx.functions[key] = k.func
    return ctx.functions[key]
