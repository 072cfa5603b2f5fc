"""Products by Strassen's algorithm in Winograd's form: seven products of half the size instead of eight.

Owns which products it serves, how they are blocked and how B and the bias are prepared; the loops are
`emit`'s. One level only: A's sums are made per work item, B's at compile time, so that an eighth of the
multiply-adds goes away for the sums of A, three blocks of sums kept in the cache, and weights 7/4 as large.

Error: the sums add rows of one item to each other, so the bound is one of norms (Higham, "Accuracy and Stability of
Numerical Algorithms", ch. 23): the error of any row is a share of the largest element of its *item*, and an infinity or
a NaN in one row spoils its partner, half an item away. A row that is small beside another one may be lost altogether:
only `--fp fast` allows that. The bound below, of items of one magnitude, is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .....ir import bands
from .....ir.types import ceil_div
from .....kernel_ir.builder import F32PTR, I64PTR, Builder
from .....kernel_ir.loops import KFunc, PtrType
from ....fusion import Fusion
from ....lowering import KernelCall, LowerContext, Operand, Scratch, Weight
from ....microkernels.table import tallest_tile, widest_tile
from ...tail import Tail
from ..balance import ITEM_CYCLES, ROW_CYCLES, TILE_CYCLES, Shape, best_cut
from ..blocking import Product, panel_kinds, product_shape, static
from ..gemm import Operands
from ..pack import pad_vector
from ..tile import LINE
from . import counts
from .emit import MATRICES, N_SUMS, Halves, StrassenEmitter, Sums

ERROR_BOUND = 1e-5  # of the largest output, for operands of one magnitude and up to 4096 steps of k
N_KEPT = 3  # blocks of sums
MOST_ROWS = 128  # of a work item: more sums would not fit the second-level cache
GROUP_NBYTES = 5 << 20  # of B that blocks of rows read one after the other
AGAIN = 1.05  # where they are more, and every block of rows gets them from memory
MEASURED_SHARE = 1.03  # of the direct product's time, to be offered: a count of cycles may err so far


@dataclass(frozen=True)
class HalvesShape(Shape):
    """What is to be cut: `widths` are the left half's panels, `steps` both halves of k."""

    def cost(self, block: int, together: int) -> float:
        """Of blocks of `block` rows and `together` pairs of panels."""
        nbytes = len(MATRICES) * (self.steps // 2) * max(self.widths) * together * LINE * 4
        again = self.rows > block and nbytes > GROUP_NBYTES
        return super().cost(block, together) * (AGAIN if again else 1)

    def item(self, rows: int, widths: Sequence[int]) -> int:
        """Cost of one item."""
        half, depth, heights = ceil_div(rows, 2), self.steps // 2, dict(self.height)
        cost = ITEM_CYCLES + ROW_CYCLES * rows + counts.SUM_CYCLES * half * ceil_div(depth, LINE)
        for width in widths:
            tiles = ceil_div(half, heights[width])
            cost += len(MATRICES) * (tiles * TILE_CYCLES + depth * width * max(half, 2 * tiles))
            cost += counts.KEPT_CYCLES * half * width + 2 * rows * width
        return cost


def left_columns(columns: int, lanes: int) -> int:
    """Columns of the left half: whole registers."""
    return ceil_div(ceil_div(columns, 2), lanes) * lanes


def plan_halves(ctx: LowerContext, direct: Product) -> Product:
    """How a product of one tap is blocked: its kinds are pairs of panels, its `kc` one half of k."""
    columns, depth = static(direct.columns), static(direct.kc)
    kinds = tuple(panel_kinds(left_columns(columns, ctx.lanes), ctx.lanes, widest_tile(ctx.target, direct.rows)))
    n_rows = direct.segment
    p = replace(direct, kinds=kinds, lanes=ctx.lanes, row_block=n_rows, panels_per_item=1, k_block=depth)
    shape = HalvesShape(**vars(product_shape(ctx, p)))
    n_panels, height = len(shape.widths), tallest_tile(ctx.target, max(shape.widths))
    usual = ceil_div(n_rows, ceil_div(n_rows, MOST_ROWS))
    block, together = best_cut(shape, (usual, n_panels), n_panels, 4 * height)
    return replace(p, kc=depth // 2, row_block=block, panels_per_item=together)


def serves(ctx: LowerContext, p: Product) -> bool:
    """Whether the algorithm can make a product, and mixes no items of a batch.

    The sums add rows that have nothing to do with each other (see above), which only `Fp.FAST` allows; even then only
    rows of one segment, that is of one item, are added, so that no item's bits depend on another. The left half of the
    columns is whole registers.
    """
    sizes = (p.columns, p.kc, p.row_block, p.panels_per_item)
    static_sizes = p.taps == 1 and p.outer == 1 and p.segment > 0 and all(isinstance(n, int) for n in sizes)
    return static_sizes and static(p.kc) % 2 == 0 and static(p.columns) >= ctx.lanes and ctx.fp.strassen


def expected_share(ctx: LowerContext, p: Product) -> float:
    """Of the direct product's time, in a call with as many items as the plan is made for."""
    rows = p.rows if isinstance(p.rows, int) else p.rows.evaluate({s: ctx.rows for s in p.rows.symbols()})
    return counts.share(rows, static(p.kc), static(p.columns))


def within(ctx: LowerContext, p: Product) -> Product | None:
    """The same rows in an item, all columns, in halves; None where that does not pay."""
    if not serves(ctx, p) or expected_share(ctx, p) > counts.MAX_SHARE:
        return None
    halves = plan_halves(ctx, p)
    return replace(halves, row_block=p.row_block, panels_per_item=halves.n_panels)


def pair_weights(ctx: LowerContext, matrix: np.ndarray, p: Product, h: Halves) -> Weight:
    """[K, N] → pair of panels after pair: the MATRICES, each [K/2][width]."""

    def fill(place: np.ndarray) -> None:
        at = 0
        for kind in p.kinds:
            first, width = static(kind.column), kind.vectors * p.lanes
            for column in range(first, first + static(kind.count) * width, width):
                size = len(MATRICES) * h.depth * width
                _fill_pair(place[at : at + size].reshape(len(MATRICES), h.depth, width), matrix, column, h)
                at += size

    n_columns = sum(static(kind.count) * kind.vectors * p.lanes for kind in p.kinds)
    return ctx.weights.make((len(MATRICES) * h.depth * n_columns,), np.float32, fill)


def _fill_pair(place: np.ndarray, matrix: np.ndarray, column: int, h: Halves) -> None:
    """The MATRICES of the panels from `column` on in each half."""
    width = place.shape[2]

    def part(half: int, first: int) -> np.ndarray:
        own = np.zeros((h.depth, width), np.float32)
        given = matrix[half * h.depth : (half + 1) * h.depth, first : first + width]
        bands.copy(own[:, : given.shape[1]], given)
        return own

    (b11, b12), (b21, b22) = [[part(half, first) for first in (column, h.columns + column)] for half in (0, 1)]
    t1 = b12 - b11
    t2 = b22 - t1
    named = {"B11": b11, "B21": b21, "B22": b22, "T1": t1, "T2": t2, "T3": b22 - b12, "-T4": b21 - t2}
    for target, name in zip(place, MATRICES, strict=True):
        target[:] = named[name]


def pair_bias(bias: np.ndarray | None, columns: int, left: int) -> np.ndarray:
    """The left half's bias, then what the right half's has more: P1 starts from the one, P5 from the other."""
    whole = np.zeros(2 * left, np.float64) if bias is None else pad_vector(bias, 2 * left).astype(np.float64)
    whole[left:] -= whole[:left]
    return whole.astype(np.float32)


class Strassen:
    """One product's plan, operands and emitter.

    Args:
        p: a `plan_halves`. matrix: B, [K, N], K even. bias: of its columns.
    """

    def __init__(self, ctx: LowerContext, p: Product, matrix: np.ndarray, bias: np.ndarray | None) -> None:
        columns, left = matrix.shape[1], left_columns(matrix.shape[1], p.lanes)
        h = Halves(ceil_div(static(p.row_block), 2), static(p.kc), left, columns != 2 * left)
        self.p, self.halves = p, h
        width = max(kind.vectors for kind in p.kinds) * p.lanes
        self.named: list[tuple[str, PtrType, Operand]] = [
            ("pairs", F32PTR, pair_weights(ctx, matrix, p, h)),
            ("bias", F32PTR, ctx.weights.add(pair_bias(bias, columns, left))),
            ("partial", F32PTR, Scratch(N_KEPT * h.rows * width * 4)),
            ("sums", F32PTR, Scratch(N_SUMS * h.rows * h.depth * 4)),
            ("own", I64PTR, ctx.weights.add(np.arange(h.rows, dtype=np.int64) * h.depth)),
            ("zeros", F32PTR, ctx.weights.add(np.zeros(2 * h.depth, np.float32))),
        ]

    def lower(
        self,
        ctx: LowerContext,
        fusion: Fusion,
        tail: Tail,
        direct: list[tuple[str, PtrType, Operand]],
        operands_of: Callable[[Builder], Operands],
    ) -> KernelCall:
        """A kernel of this product alone.

        Args:
            direct: the operands that the direct product has too. operands_of: that product's, in a kernel; see `emit`.
        """
        given = [*direct, ("table", I64PTR, Scratch(8 * self.p.table_entries)), *self.named]

        def build(name: str) -> KFunc:
            k = ctx.kernel(name, [(n, t) for n, t, _ in given] + fusion.params())
            self.emit(k, ctx, tail, operands_of(k))
            return k.func

        func = ctx.function("strassen", fusion.node, build, self.p.row_block)
        return KernelCall(func, (*(o for _, _, o in given), *fusion.operands()), self.p.work)

    def emit(self, k: Builder, ctx: LowerContext, tail: Tail, operands: Operands) -> None:
        """The loops; `operands` are those of the direct product, of which B's and the bias' are replaced."""
        per_column = len(MATRICES) * self.halves.depth
        operands = replace(
            operands,
            partial=k["partial"],
            panel=lambda outer, kind, number, column: k.gep(k["pairs"], column * per_column),
            bias=lambda column: k.gep(k["bias"], column),
        )
        sums = Sums(k["sums"], k["own"], k["zeros"])
        StrassenEmitter(k, ctx, self.p, tail, operands, self.halves, sums).emit()
