"""The plan as programs hold it: what is in it, and sessions that run it.

Owns nothing of its own: `plan_contents` knows the file, `session` the running, `describing` the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CorruptPlan
from .container import Container
from .plan_contents import PlanContents, manifest_place, raw_manifest

if TYPE_CHECKING:
    from .session import Session


class Plan(PlanContents):
    """A compiled model: its manifest, object code per target, weights, and the graph's text.

    Attributes:
        manifest: the checked manifest.
        weights: read-only bytes on a 64-byte boundary (mapped from the file where the plan was loaded).
        path: the file it was loaded from, or None.
    """

    def session(
        self,
        instances: int | None = None,
        cores: Sequence[int] | str | None = None,
        cores_per_instance: int | None = None,
        micro_batch: int | None = None,
        mode: str | None = None,
        delay: tuple[int, float] | None = None,
        max_memory: int | None = None,
        max_seconds: float | None = None,
        adapt: bool = True,
        batch_window: float | None = None,
    ) -> Session:
        """Start instances that run this plan; see Session for the meaning of the arguments.

        Raises:
            UsageError: the machine has not these cores.
            IncompatiblePlan: no target of the plan suits this CPU.
        """
        from .session import Session  # here: modules load while others check the weights

        return Session(self, instances, cores, cores_per_instance, micro_batch, mode, delay, max_memory,
                       max_seconds, adapt, batch_window)  # fmt: skip

    def __repr__(self) -> str:
        from .describing import line  # here: looked at by people, not by programs

        return line(self.manifest)

    def _repr_html_(self) -> str:
        from .describing import table  # here: likewise

        return table(self.manifest, self.path, {t.name: len(self.code(t)) for t in self.manifest.targets})


def read_plan(container: Container) -> Plan:
    """The plan in a container, its manifest checked, its other members not yet.

    Raises:
        CorruptPlan: the bytes are not what the plan promises.
        IncompatiblePlan: a sound plan of another format.
    """
    raw = raw_manifest(container)
    try:
        return Plan(raw, container.members, container.path)
    except RecursionError as error:
        raise CorruptPlan("nested too deeply", where=manifest_place(container)) from error
