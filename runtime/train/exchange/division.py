"""How a batch is cut: micro-batches, shards, and the instances that take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import UsageError
from ..arguments import require_whole
from .placement import Placement, placed, working
from .settings import Exchange


@dataclass(frozen=True)
class Division:
    """A batch is `accumulate` micro-batches of `n_shards` shards of `rows` rows; instances are where `placement` says.

    Attributes:
        exchange: between the instances.
    """

    exchange: Exchange
    placement: Placement
    accumulate: int
    n_shards: int
    rows: int

    @property
    def n_gradients(self) -> int:
        """That the update adds."""
        return self.n_shards if self.exchange.sums_all else 1

    @property
    def n_pieces(self) -> int:
        """Of the batch, whose gradients make one update."""
        return self.accumulate * (self.n_shards if self.exchange.is_synchronous else 1)


def divided(
    exchange: Exchange, cores: Sequence[int], batch: int, accumulate: int, shards: int | None, instances: int | None
) -> Division:
    """The division that a user asks for.

    Args:
        batch: rows of a step. shards, instances: None: one per core, as far as the batch can be cut.

    Raises:
        UsageError: there is none.
    """
    for name, value in (("batch", batch), ("accumulate", accumulate), ("shards", shards), ("instances", instances)):
        if value is not None or name in ("batch", "accumulate"):
            require_whole(name, value, 1)
    if instances is not None:
        placed(cores, instances, exchange.has_servers, exchange.oversubscribe)  # more than cores is said first
    if batch % accumulate:
        raise UsageError("micro-batches must be equal parts of the batch", where="batch",
                         expected=f"a multiple of {accumulate}", found=batch)  # fmt: skip
    n_cores, rows = len(working(cores, exchange.has_servers)), batch // accumulate
    if shards is None:
        shards = instances or next(n for n in range(min(n_cores, rows), 0, -1) if rows % n == 0)
    if rows % shards:
        raise UsageError("shards must be equal parts of the batch", where="batch",
                         expected=f"a multiple of {shards * accumulate}", found=batch)  # fmt: skip
    n_instances = instances or min(n_cores, shards)
    placement = placed(cores, n_instances, exchange.has_servers, exchange.oversubscribe)
    return Division(exchange, placement, accumulate, shards, rows // shards)
