"""Which cores each instance has, which ones serve, and who is on which NUMA node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import UsageError
from ...delayed_start import nodes_of

Cores = tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """Cores of a training.

    Attributes:
        everyone: all cores. instances: those of each. servers: of threads that only serve, one per NUMA node.
    """

    everyone: Cores
    instances: tuple[Cores, ...]
    servers: Cores = ()

    @property
    def lost(self) -> int:
        """Cores on which no instance runs."""
        return len(set(self.everyone) - {core for cores in self.instances for core in cores})

    @property
    def nodes(self) -> list[int]:
        """The NUMA node of each instance."""
        return nodes_of([cores[0] for cores in self.instances])


def serving(cores: Sequence[int]) -> Cores:
    """One core of each NUMA node, for a thread that serves: the node's last."""
    return tuple(dict(zip(nodes_of(cores), cores, strict=True)).values())


def working(cores: Sequence[int], has_servers: bool) -> Cores:
    """The cores that instances may have. Where servers would leave none, all: they take turns."""
    servers = serving(cores) if has_servers else ()
    return tuple(core for core in cores if core not in servers) or tuple(cores)


def placed(cores: Sequence[int], n_instances: int, has_servers: bool, oversubscribe: bool = False) -> Placement:
    """An equal share of the cores for each instance.

    Args:
        oversubscribe: there may be more instances than cores; they take turns.

    Raises:
        UsageError: more instances than cores.
    """
    servers, own = serving(cores) if has_servers else (), working(cores, has_servers)
    is_shared = bool(set(own) & set(servers))
    if (n_instances > len(own) or is_shared) and not oversubscribe:
        found = f"{n_instances} and {len(servers)} that serve" if servers else n_instances
        raise UsageError("more instances than cores", where="instances", expected=f"at most {len(cores)}", found=found,
                         hint="oversubscribe=True has instances take turns on the cores")  # fmt: skip
    share = max(1, len(own) // n_instances)
    groups = tuple(tuple(own[(i * share + j) % len(own)] for j in range(share)) for i in range(n_instances))
    return Placement(tuple(cores), groups, servers)
