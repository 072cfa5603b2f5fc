"""Products by Strassen's algorithm in Winograd's form: seven products of half the size instead of eight.

Owns which products it serves, how they are blocked and how their operands are found; the loops are `emit`'s, the sums
of rows `sums`'. One level only: A's sums are made per block of rows, B's per group of blocks and pair of panels, of the
panels that the direct product reads, so that an eighth of the multiply-adds goes away for sums and weights stay as
they are.

Error: a row is added to one other row of its item, scaled by a power of two so that the sums of their magnitudes are
alike, and the bound is one of each row by itself: the error of any element is at most `error_bound` times the sum of
its row's magnitudes times the largest of B (after Higham, "Accuracy and Stability of Numerical Algorithms", ch. 23).
With L this sum of an upper row, the scaled lower one's at most 2L, and b the largest of B, magnitudes of S1 add up to
at most 2L, of S2 and S3 to 3L, of S4 to 4L, and |T1|, |T3| ≤ 2b, |T2| ≤ 3b, |T4| ≤ 4b. The products of C22, of which
most go into one sum, P1, P6, P7 and P5, are made of at most (1 + 9 + 6 + 4) L b, and each is wrong by (d + 8) u of
that: of its d steps, of what it is made of, and of the sums that it is added to; n blocks of k are summed. Twice that
of the lower row's own sum of magnitudes. On random numbers of one magnitude the error is about √K · u · max|A| ·
max|B|, four times the direct sum's. Blocks with rows that have no such factor are multiplied directly (`sums`): an
infinity or a NaN costs no other row its bound.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .....ir import bands
from .....ir.types import Dim, ceil_div
from .....kernel_ir.builder import F32PTR, I64PTR, Builder
from .....kernel_ir.loops import PtrType
from ....lowering import LowerContext, Operand, Scratch
from ....microkernels.emitter import SINGLE
from ...tail import Tail
from ..blocking import Product, static
from ..gemm import Operands
from ..tile import LINE
from . import counts
from .emit import N_OWN, N_SHARED, QUARTERS, StrassenEmitter
from .items import Items
from .sums import N_SUMS, Halves, RowSums

L2_SHARE = 0.8  # for a block of k of a pair of panels, and of its sums
L3_SHARE = 0.25  # of a core's part, for the sums of the rows of a work item
EXTREME = 1e30  # products by weights beyond it, or all within its inverse, are direct


def blocks_of_k(ctx: LowerContext, p: Product) -> int:
    """Equal blocks that k is cut in, each of two halves of whole vectors; 0: there are none."""
    depth, width = static(p.kc), p.kinds[0].vectors * p.lanes
    most = L2_SHARE * ctx.target.l2_nbytes / (QUARTERS * width * 4)  # each step is in two quarters and as many sums
    first = max(1, round(depth / most))
    return next((n for n in range(first, 2 * first + 1) if depth % (2 * p.lanes * n) == 0), 0)


def serves(ctx: LowerContext, p: Product, items: Items | None) -> bool:
    """Whether the algorithm can make a product: both halves of the columns are whole panels, all alike."""
    if items is None or not ctx.fp.strassen or p.taps != 1 or p.outer != 1 or p.emitter is not SINGLE:
        return False
    if not isinstance(p.columns, int) or not isinstance(p.kc, int) or len(p.kinds) != 1 or p.lanes != ctx.lanes:
        return False
    (kind,) = p.kinds
    return not kind.masked and static(kind.count) % 2 == 0 and blocks_of_k(ctx, p) > 0


def expected_share(ctx: LowerContext, p: Product, items: Items) -> float:
    """Of the direct product's time."""
    pairs = static(p.n_panels) // 2
    waiting = max(ceil_div(pairs, n) * n / pairs for n in ctx.cores)  # cores wait for the one with most pairs
    share = counts.share(items.most_rows, counts.MOST_TOGETHER, static(p.kc), static(p.columns))
    return waiting * share * counts.pace_of(ctx.machine)


def error_bound(depth: int, blocks: int) -> float:
    """Of an element, in times of the sum of its row's magnitudes times the largest of B.

    Args:
        depth: of one half of a block of k. blocks: of k.
    """
    return 40 * (depth + blocks + 8) * 2.0**-24


def limits(matrix: np.ndarray) -> tuple[float, float]:
    """The sums of magnitudes that rows of A may have so that no sum leaves f32's normal range; none where B is such.

    Sums are at most 40 · Σ|a| · max|B|, and products of numbers that matter are no denormals.
    """
    most = bands.largest(matrix)
    if not 1 / EXTREME < most < EXTREME:
        return np.inf, -np.inf
    return 2.0**-90 / min(most, 1.0), 2.0**120 / max(most, 1.0)


class Strassen:
    """One product's plan, operands and emitter.

    Args:
        direct: the product, as the register tile makes it. matrix: B.

    Attributes:
        operands: that a kernel needs besides the direct product's. work: work items.
    """

    def __init__(self, ctx: LowerContext, direct: Product, items: Items, matrix: np.ndarray) -> None:
        (kind,) = direct.kinds
        pairs, width, rows = static(kind.count) // 2, kind.vectors * direct.lanes, ceil_div(items.most_rows, 2)
        n = blocks_of_k(ctx, direct)
        depth = static(direct.kc) // (2 * n)
        each = N_SUMS * n * rows * depth * 4
        together = int(L3_SHARE * ctx.target.l3_nbytes / max(ctx.cores)) // each
        self.h = Halves(rows, max(1, min(counts.MOST_TOGETHER, together)), n, depth)
        self.items = items
        self.p = replace(direct, kinds=(replace(kind, count=pairs),), row_block=items.most_rows, panels_per_item=1,
                         segment=0, along_rows=False, rows_known=False)  # fmt: skip
        self.work: Dim = ceil_div(items.count * items.blocks, self.h.together) * pairs
        together = self.h.together
        self.sizes = {"blocks": (N_SHARED + N_OWN * together) * rows * width, "sums": together * each // 4,
                      "t": QUARTERS * depth * width, "factors": rows * together, "state": together}  # fmt: skip
        self.operands: list[tuple[str, PtrType, Operand]] = [
            ("halves", F32PTR, Scratch(sum(4 * self.aligned(n) for n in self.sizes.values()))),
            ("own", I64PTR, ctx.weights.add(np.arange(rows, dtype=np.int64) * depth)),
            ("zeros", F32PTR, ctx.weights.add(np.zeros(max(static(direct.kc), width), np.float32))),
            ("limits", F32PTR, ctx.weights.add(np.array(limits(matrix), np.float32))),
        ]

    @staticmethod
    def aligned(nelements: int) -> int:
        """Elements of scratch, in whole lines."""
        return ceil_div(nelements, LINE) * LINE

    @property
    def table_entries(self) -> int:
        """Of the table of offsets."""
        return self.items.most_rows

    def emit(self, k: Builder, ctx: LowerContext, tail: Tail, operands: Operands) -> None:
        """The loops; `operands` are those of the direct product."""
        places, at = {}, 0
        for name, nelements in self.sizes.items():
            places[name] = k.gep(k["halves"], at)
            at += self.aligned(nelements)
        blocks, t, zeros = places.pop("blocks"), places.pop("t"), k["zeros"]
        sums = RowSums(k, self.h, ctx.lanes, own=k["own"], zeros=zeros, limits=k["limits"], **places)
        given = replace(operands, partial=blocks)
        StrassenEmitter(k, ctx, self.p, tail, given, self.items, sums, zeros, t).emit()
