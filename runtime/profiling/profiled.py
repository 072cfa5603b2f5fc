"""What a profile is made of: a session as whoever records and describes it needs to know it.

Owns that list, so that sessions may know profilers and profilers need not know sessions.
"""

from __future__ import annotations

from typing import Protocol

from ..executor import Executor
from ..manifest import TensorSpec
from ..plan_contents import PlanContents
from ..size_routing import SizeRouter
from ..steps import Program
from .watch import Watch


class Profiled(Protocol):
    """A session.

    Attributes:
        plan, inputs, instances, core_groups, target, mode, watch: see Session.
        executor: the instances. size_router: those that it makes for requests of other sizes.
        program: the steps that Python runs.
    """

    plan: PlanContents
    inputs: tuple[TensorSpec, ...]
    instances: int
    core_groups: tuple[tuple[int, ...], ...]
    target: str | None
    mode: str
    watch: Watch | None
    executor: Executor
    size_router: SizeRouter
    program: Program


__all__ = ["Profiled"]
