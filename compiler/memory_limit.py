"""The most memory that a training may take, and how its step is made to fit.

What a step keeps is recomputed instead where it must be (`passes/dataflow/rematerialise.py`); weights, gradients and
what the optimiser keeps take what they take.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import ResourceLimit, UsageError
from ..runtime.plan import Plan
from ..units import size
from .ir.graph import Graph
from .passes.dataflow.rematerialise import ArenaTooSmall

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
TRIES = 3  # of compiling: the passes of native steps, and other kernels, may still need a little more


@dataclass(frozen=True)
class Fitting:
    """What a limit needs to know of a training.

    Attributes:
        needs: of a graph, the bytes of its arena, of what each core needs beside it, and of constants. compiled: makes
            the plan of one; `arena=` is the most that its arena may have. Both use the graph up.
        total: bytes of the training with such a plan. rest: of everything but what `needs` says.
        instances: of the step, of `cores` each.
    """

    needs: Callable[[Graph], tuple[int, int, int]]
    compiled: Callable[..., Plan]
    total: Callable[[Plan], int]
    rest: int
    instances: int
    cores: int


@dataclass(frozen=True)
class MemoryLimit:
    """At most `nbytes`, or `share` of what the training takes with everything kept; both None: anything."""

    nbytes: int | None = None
    share: float | None = None

    @classmethod
    def of(cls, value: int | str | None) -> MemoryLimit:
        """Bytes, `"8GiB"` or `"60%"`.

        Raises:
            UsageError: something else, or nothing above 0.
        """
        if value is None:
            return cls()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return cls(value)
        if isinstance(value, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|[A-Za-z]*)", value.strip())):
            number, unit = float(found[1]), found[2].upper()
            if unit == "%" and 0 < number <= 100:
                return cls(share=number / 100)
            if unit in _UNITS and int(number * _UNITS[unit]) > 0:
                return cls(int(number * _UNITS[unit]))
        raise UsageError("no amount of memory", where="max_memory", expected="bytes, 8GiB or 60%",
                         found=repr(value)[:60])  # fmt: skip

    def met(self, graph: Graph, fitting: Fitting) -> Plan:
        """The plan of a step that takes, with all the rest, no more than this; uses up the graph.

        Raises:
            ResourceLimit: there is none; says the least that was found.
        """
        if self.nbytes is None and self.share is None:
            return fitting.compiled(graph=graph)
        arena, scratch, constants = fitting.needs(graph.clone())
        beside = fitting.rest + constants + fitting.instances * fitting.cores * scratch
        everything = beside + fitting.instances * arena
        limit = int(everything * self.share) if self.share is not None else self.nbytes or everything
        if everything <= limit and fitting.total(plan := fitting.compiled(graph=graph.clone())) <= limit:
            return plan
        found = everything
        for _ in range(TRIES):
            most, is_least = max(1, (limit - beside) // fitting.instances), False
            try:
                plan = fitting.compiled(graph=graph.clone(), arena=most)
            except ArenaTooSmall as error:
                plan, is_least = fitting.compiled(graph=graph.clone(), arena=error.needs_nbytes), True
            found = fitting.total(plan)
            if found <= limit:
                return plan
            if is_least:
                break
            beside += found - limit
        raise _too_little(limit, found)


def _too_little(limit: int, least: int) -> ResourceLimit:
    return ResourceLimit("a step of the training needs more memory than it may take", where="max_memory",
                         expected=f"{least} bytes ({size(least)}) or more", found=f"{limit} bytes ({size(limit)})",
                         hint="allow more, or take a smaller batch")  # fmt: skip


__all__ = ["Fitting", "MemoryLimit"]
