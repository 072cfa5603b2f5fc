"""The exchanges by name, and what a user chooses of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import UsageError
from ...delayed_start import checked_delay
from ...manifest import Delay
from ..arguments import require_whole
from .asynchronous import AsynchronousServer
from .base import Scheme
from .fixed import FixedOrder
from .gradient_server import GradientServer
from .parameter_server import ParameterServer
from .placement import Cores, Placement
from .ring import RingAllReduce

SCHEMES: Mapping[str, type[Scheme]] = {
    "fixed": FixedOrder, "gradient-server": GradientServer, "parameter-server": ParameterServer, "ring": RingAllReduce,
    "asynchronous": AsynchronousServer,
}  # fmt: skip


@dataclass(frozen=True)
class Exchange:
    """How instances exchange gradients and weights.

    Attributes:
        name: "fixed" adds the shards' gradients in a fixed order, the same bits in every run; "gradient-server" as
            they come; "parameter-server" and "ring" are there to compare with; "asynchronous" uses each shard's
            gradient at once, as an update of its own.
        staleness: updates that an asynchronous gradient may have missed; None: one less than there are instances.
        groups, delay: the instances of a NUMA node begin a step in so many groups, each so many seconds later than the
            one before.
        oversubscribe: there may be more instances than cores; they take turns.
    """

    name: str = "fixed"
    staleness: int | None = None
    groups: int = 1
    delay: float = 0.0
    oversubscribe: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError: no such exchange, or settings that do not fit."""
        stale, found = self.staleness, repr(self.name)[:60]
        if self.name not in SCHEMES:
            raise UsageError("no such exchange", where="exchange", expected=", ".join(SCHEMES), found=found)
        if stale is not None:
            require_whole("staleness", stale)
        if stale is not None and SCHEMES[self.name].is_synchronous:
            raise UsageError("no gradient is stale", where="staleness", expected="asynchronous", found=found)
        checked_delay(self.groups, self.delay)

    @property
    def start(self) -> Delay | None:
        """Of the instances; None: all at once."""
        return checked_delay(self.groups, self.delay) if self.groups > 1 and self.delay else None

    @property
    def has_servers(self) -> bool:
        """Whether cores are set aside."""
        return self.name == "parameter-server"

    @property
    def is_synchronous(self) -> bool:
        """Whether a step is one update, by the gradients of all shards."""
        return SCHEMES[self.name].is_synchronous

    @property
    def sums_all(self) -> bool:
        """Whether the update itself adds the gradients of all shards; else it gets one."""
        return self.name == "fixed"

    def updating(self, placement: Placement) -> Cores:
        """The cores that make an update: all, those that serve, or an instance's."""
        if self.name in ("ring", "asynchronous"):
            return placement.instances[0]
        return placement.servers or placement.everyone


def exchange_named(given: str | Exchange) -> Exchange:
    """An exchange by its name, or the one that is given. Raises UsageError: no such name."""
    return given if isinstance(given, Exchange) else Exchange(given)
