"""What a pass is, and how a pipeline of passes runs. Owns order, timing, dumping and verification between passes.

A pass is a frozen dataclass whose fields are its options; `FuseElementwise` is `fuse-elementwise` in dumps and lives
in `fuse_elementwise.py`. It must not know the frontend or the backend.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from ...errors import ParaxError
from ..ir.graph import Graph, nested_graphs
from ..ir.schedule import Schedule
from ..ir.verify import verify
from .rewrite import Rewriter


@dataclass(frozen=True)
class Pass:
    """One transformation of a graph.

    Attributes:
        on_bodies: whether it runs on the bodies of If, Loop and Scan, too.
    """

    on_bodies: ClassVar[bool] = True

    @abstractmethod
    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """Transform `graph` through `rw`; True iff something changed."""
        raise NotImplementedError(type(self).__name__)

    @classmethod
    def pass_name(cls) -> str:
        """`FuseElementwise` → `fuse-elementwise`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()


class NodePass(Pass):
    """Looks at one node at a time."""


class BlockPass(Pass):
    """Looks at a node and its neighbours: algebra, fusion, decomposition."""


class DataflowPass(Pass):
    """Looks at the whole graph."""


class StepPass(DataflowPass):
    """Looks at the graph of one native step, after all other passes: they do not know what it makes."""


@dataclass(frozen=True)
class PartitionPass(Pass):
    """Prepares the graph of the only native step for several cores: layers, stages, and what bounds them.

    Attributes:
        schedule: what the planner found for the graph.
    """

    schedule: Schedule | None = None


@dataclass
class PassReport:
    """What one pass did: its name, seconds spent, whether it changed the graph, nodes left."""

    name: str
    seconds: float
    changed: bool
    n_nodes: int


Item: TypeAlias = "Pass | Sequence[Pass]"
"""A pass, or passes that are repeated until none of them changes anything."""


@dataclass
class Pipeline:
    """Passes in order; a nested sequence is repeated until nothing changes (at most `max_rounds` times).

    Attributes:
        passes: of the whole graph, its bodies included.
        step_passes: of the graph of each native step, once it is known what those are.
        schedule_passes: of the only native step, where it runs by a schedule, once that is known.
        verify: check the graph after every pass.
        after: called with (number, report, graph, refused matches) after each pass.
    """

    passes: Sequence[Item]
    step_passes: Sequence[Item] = ()
    schedule_passes: Sequence[PartitionPass] = ()
    verify: bool = False
    after: Callable[[int, PassReport, Graph, Sequence[str]], None] | None = None
    max_rounds: int = 8
    reports: list[PassReport] = field(default_factory=list)

    def run(self, graph: Graph) -> None:
        """Run the passes on `graph` and then on its bodies, outer ones first: constants move inwards.

        Raises:
            ParaxError: from a pass or the verifier, with the pass's name attached.
        """
        for nested in nested_graphs(graph):
            self._run(self.passes, nested, is_body=nested is not graph)

    def every_pass(self) -> Iterator[Pass]:
        """Those of the graph, of native steps and of schedules, in order."""
        for item in (*self.passes, *self.step_passes, *self.schedule_passes):
            yield from (item,) if isinstance(item, Pass) else item

    def run_more(self, passes: Sequence[Pass], graph: Graph) -> None:
        """Run further passes on `graph` alone, as those of the pipeline; raises as `run`."""
        self._run(passes, graph, is_body=False)

    def run_on_step(self, graph: Graph) -> None:
        """Run the passes of native steps on the graph of one; raises as `run`."""
        self._run(self.step_passes, graph, is_body=False)

    def run_on_scheduled(self, graph: Graph, schedule: Schedule) -> None:
        """Run the passes that write a schedule on the graph that runs by it; raises as `run`."""
        self._run([replace(p, schedule=schedule) for p in self.schedule_passes], graph, is_body=False)

    def _run(self, items: Sequence[Item], graph: Graph, *, is_body: bool) -> None:
        for item in items:
            repeated = not isinstance(item, Pass)
            group = [p for p in ([item] if isinstance(item, Pass) else item) if p.on_bodies or not is_body]
            for _ in range(self.max_rounds if repeated else 1):
                if not any([self._apply(p, graph) for p in group]):
                    break

    def _apply(self, p: Pass, graph: Graph) -> bool:
        rw = Rewriter(graph)
        start = time.perf_counter()
        try:
            changed = p.run(graph, rw)
            if self.verify:
                verify(graph)
        except ParaxError as error:
            if hasattr(error, "add_note"):
                error.add_note(f"in pass {p.pass_name()}")
            raise
        self.reports.append(PassReport(p.pass_name(), time.perf_counter() - start, changed, len(graph)))
        if self.after is not None:
            self.after(len(self.reports), self.reports[-1], graph, rw.misses)
        return changed
