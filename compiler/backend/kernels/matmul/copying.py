"""Which products copy A in the order of their tiles, and which of them go along the rows of their result."""

from __future__ import annotations

from ...lowering import LowerContext
from .blocking import Product, static
from .shapes import Matrices, Rows, is_packed

FEW_ROWS = 24  # a panel of B that so few rows read, four tiles, is not worth packing
# Cycles of multiply-adds for each element of A, from which on tiles read contiguous rows from a copy, too. Measured on
# Zen 3, one core, copied and not in turn (2026-11-27): 768 columns are 1 to 4 % faster where rows are 512 to 1,024
# floats apart and 18 to 24 % where 3,072, 256 columns as fast or 10 % faster; 128 lose 2 to 4 %, 64 7 %.
COPIED = 16
COPY_SHARE = 0.25  # of the third cache, that cores share: a copy is read again for every panel of B
# Steps of k whose multiply-adds do not hide that a result is written, and panels from which on it is written along its
# rows instead of in columns a panel wide. Measured on Zen 3, one core, in turn (2026-11-27), results of 4,096 columns:
# 8 steps 2.2 times as fast (12.6 GB/s of the result, where memory set in order takes 14), 16 1.5, 32 1.2, 64 and 128
# 1.1, 256 and 512 alike; of 256 columns 1.1 at 16 steps; 100 columns of an item a panel 0.86.
FEW_STEPS = 128
BESIDE = 8


def is_interleaved(ctx: LowerContext, m: Matrices, rows: Rows, p: Product) -> bool:
    """Whether tiles read a copy of A in their order: where its columns are contiguous, or enough of B's meet a row."""
    if len(rows.a_runs) != 1:
        return False
    if p.emitter.k_step != 1 and (p.emitter.weave is None or m.a_k == 1):
        return False
    if m.a_k != 1:
        return rows.a_runs[0][1] == 1
    block, columns, depth = p.row_block, p.columns, p.kc
    if is_packed(m) or not (isinstance(block, int) and isinstance(columns, int) and isinstance(depth, int)):
        return False
    if block <= FEW_ROWS or 4 * block * depth > COPY_SHARE * ctx.target.l3_nbytes:
        return False
    return columns / (p.lanes * ctx.target.multiply_adds(p.lanes)) >= COPIED


def goes_along_rows(ctx: LowerContext, m: Matrices, rows: Rows, p: Product) -> bool:
    """Whether tiles go along the rows of the result, where it takes longer than its sums, by a B to be packed."""
    if p.emitter.k_step != 1 or is_packed(m) or not is_interleaved(ctx, m, rows, p) or not p.one_k_block:
        return False
    return static(p.kc) <= FEW_STEPS and isinstance(p.panels_per_item, int) and p.panels_per_item >= BESIDE
