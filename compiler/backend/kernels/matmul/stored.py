"""Products of f32 by constant matrices whose numbers fit 16 bits, which are kept so."""

from __future__ import annotations

from ....ir.types import F32, Dim, DType, ceil_div, prod
from ...lowering import KernelCall, LowerContext
from ...microkernels.stored import OPERATIONS, STORED, is_exact, widens
from ...microkernels.table import tallest_tile, widest_tile
from .direct import DirectAlgorithm, ProductLayer, constant_matrix, lower_direct
from .shapes import plan_rows

CYCLES_PER_BYTE = 0.1  # of weights on their way from memory, of 2026-11-21; the history names no CPU or command
MANY_ROWS = 384  # where the number is open, it may be this as well


class StoredAlgorithm(DirectAlgorithm):
    """The register tile of f32 where that applies, by weights of 16 bits that it widens as it loads them.

    Where widening leaves the multiply-adds' units alone it costs nothing however many rows there are; else few rows
    gain, for which weights come from memory no faster than they are multiplied.

    Measured on one core of Zen 5 (AMD EPYC, family 26 model 2, neighbours busy, 2026-11-28), six products by 1024 ×
    4096 and back in turn with f32's: one row takes 0.52 of the time, 4 rows 0.66, 12 rows 0.6, 24 rows 0.95, 48 to
    1,536 rows 0.99 to 1.03.
    """

    def __init__(self, dtype: DType) -> None:
        self.name, self.dtype = f"weights-{dtype.name}", dtype

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        m = layer.matrices
        matrix = constant_matrix(m)
        if matrix is None or not super().applies(ctx, layer) or not widens(ctx.target, self.dtype):
            return False
        return m.a.tensor.dtype == m.b.tensor.dtype == F32 and is_exact(matrix, self.dtype)

    def cost(self, ctx: LowerContext, layer: ProductLayer) -> float:
        y = layer.fusion.result.tensor
        rows: Dim = prod(y.dims[a] for a in plan_rows(y, layer.matrices).axes)
        return _share(ctx, rows) if isinstance(rows, int) else max(_share(ctx, 1), _share(ctx, MANY_ROWS))

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_direct(ctx, layer.fusion, layer.matrices, emitter=STORED[self.dtype])


def _share(ctx: LowerContext, rows: int) -> float:
    """Of the time of f32's weights, for every vector of B: multiply-adds, all operations, or its way from memory."""
    lanes, core = ctx.lanes, ctx.target.core
    arithmetic, nbytes = rows / core.multiply_adds["f32"][32 * lanes], 4 * lanes
    tiles = ceil_div(rows, tallest_tile(ctx.target, widest_tile(ctx.target, rows)))
    operations = (rows + OPERATIONS * tiles) / core.vector_operations[32 * lanes]
    stored = max(arithmetic, operations, CYCLES_PER_BYTE * nbytes / 2)
    return stored / max(arithmetic, CYCLES_PER_BYTE * nbytes)
