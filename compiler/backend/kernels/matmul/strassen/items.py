"""How the rows of a product are cut for Strassen's algorithm: into the items of a batch, and those into blocks.

Rows of one block are added to each other in pairs, so that blocks follow from an item's own rows alone: no bit of an
item depends on what else is in its batch, or on how cores share that.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.types import Dim, SymDim, TensorType, ceil_div, exact_max, exact_min, prod
from ..shapes import Rows
from .counts import LEAST_ROWS, MOST_ROWS


@dataclass(frozen=True)
class Items:
    """The items of a batch, below one another.

    Attributes:
        count: of items. rows: of each.
    """

    count: Dim
    rows: Dim

    @property
    def blocks(self) -> Dim:
        """Blocks of each; at least one, as what is computed of sizes alone is so whatever they are."""
        return exact_max(1, ceil_div(self.rows, MOST_ROWS))

    @property
    def known_rows(self) -> int | None:
        """Of every block, if they are known and the same."""
        rows, blocks = self.rows, self.blocks
        return rows // blocks if isinstance(rows, int) and isinstance(blocks, int) and rows % blocks == 0 else None

    @property
    def most_rows(self) -> int:
        """Of a block; of long items' blocks the least are half as many."""
        return self.known_rows or MOST_ROWS

    @property
    def are_long(self) -> Dim:
        """1 if items have enough rows to be halved, else 0."""
        return exact_min(1, self.rows // LEAST_ROWS)


def items_of(y: TensorType, rows: Rows) -> Items | None:
    """The items of a product's result; None: they are unknown, or each row is one.

    The batch is the first axis of several, or the symbol that the number of rows is a multiple of.
    """
    if rows.outer:
        return None
    if y.rank > 2 and list(rows.axes) == sorted(rows.axes):
        own: Dim = prod(y.dims[a] for a in rows.axes if a > 0)
        return Items(y.dims[0], own) if isinstance(own, SymDim) or own >= LEAST_ROWS else None
    if y.rank == 2 and isinstance(y.dims[0], SymDim) and y.dims[0].factor >= LEAST_ROWS:
        return Items(y.dims[0] // y.dims[0].factor, y.dims[0].factor)
    return None
