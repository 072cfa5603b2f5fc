"""One run of the compiler as people watch it: progress, time per phase, the dump folder, the ladder of PARAX_DEBUG.

Owns what is told and written on the way; decides nothing about what is compiled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from .. import env
from ..errors import InternalError, ParaxError, attach
from ..files import write_whole
from ..log import CODE, EVERYTHING_DONE, GRAPHS, PHASES, REFUSALS, tell, tells
from .frontend.evaluate import Evaluator
from .ir.graph import Graph
from .ir.schedule import Schedule
from .ir.text import print_graph
from .kernel_ir.loops import KFunc, all_functions, print_functions
from .options import CompileOptions
from .passes.base import PassReport, Pipeline
from .passes.dataflow.index_ranges import Indexing
from .passes.text import check_name
from .planner.decide import Decision
from .targets.machine import Machine

ALL = "all"  # passes, where one may be named
Progress = Callable[[str, float], None]
Scheduler = Callable[[Graph], Schedule | None]


@dataclass
class Compilation:
    """What one compilation leaves for those who watch.

    Attributes:
        options: the user's choices. progress: called with (phase, fraction of the whole work done).
        trace: make the build whose kernels record when they ran (see runtime/profiling/recorder.py).
        scheduler: decides how the optimised graph, which it only reads, runs on several cores.
        decision: the planner's, where it was made before.
        arena_nbytes: the most that the arena of a training step may have; None: any.
        machine: that the plan is for; set before the passes of the levels that ask for it.
        revise: changes the optimised graph before the passes of native steps; None: nobody does.
        evaluator: computes on constants, within one budget for the whole model.
        indexing: which inputs are indices, as the model was imported.
        passes: of the optimisation level, once they ran on the graph; those of native steps may run later.
        seconds: time per phase.
    """

    options: CompileOptions
    progress: Progress
    trace: bool = False
    scheduler: Scheduler | None = None
    decision: Decision | None = None
    machine: Machine | None = None
    arena_nbytes: int | None = None
    revise: Callable[[Graph], None] | None = None
    evaluator: Evaluator = field(init=False)
    indexing: Indexing = field(default_factory=Indexing)
    passes: Pipeline = field(default_factory=lambda: Pipeline([]))
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.evaluator = Evaluator(self.options.max_memory)
        if self.machine is None and self.decision is not None:
            self.machine = self.decision.machine

    @contextmanager
    def phase(self, name: str, fraction: float) -> Iterator[None]:
        """Time a phase and report it; `fraction` of the whole work is done when it starts."""
        self.progress(name, fraction)
        began = time.perf_counter()
        yield
        spent = time.perf_counter() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        tell(PHASES, f"{name}: {spent * 1e3:.1f} ms")

    @contextmanager
    def explained(self, graph: Graph) -> Iterator[None]:
        """Attach the graph as it is to whatever of our own mistakes ends the body."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, ParaxError) or isinstance(error, InternalError):
                with suppress(Exception):  # a graph that is broken may not print
                    attach(error, print_graph(graph))
            raise

    @property
    def dumps(self) -> bool:
        """Whether there is a dump folder, for what is costly to print."""
        return self.options.dump is not None

    def dump(self, name: str, text: str) -> None:
        """Write one file of the dump folder, if there is one."""
        if self.options.dump is not None:
            file = self.options.dump / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)

    def show_kernels(self, target: str, kernels: Sequence[KFunc]) -> None:
        """Dump a target's kernels, each with what it calls, as `kernels/<target>/<name>.txt`, and tell of them."""
        if self.dumps:
            for name, kernel in {kernel.name: kernel for kernel in kernels}.items():
                self.dump(f"kernels/{target}/{name}.txt", print_functions(all_functions([kernel])))
        if tells(CODE):
            tell(CODE, print_functions(all_functions(list(kernels))))

    def watch(self, passes: Pipeline) -> None:
        """Have every pass of the pipeline dumped, told, printed on request and, under PARAX_VERIFY, verified.

        Raises:
            UsageError: the graph is to be printed after a pass that does not run.
        """
        running = {p.pass_name() for p in passes.every_pass()}
        for name in self.options.print_after:
            check_name(name, {*running, ALL}, "pass that runs")
        self.passes = passes
        passes.verify = env.read("PARAX_VERIFY")
        passes.after = self._after_pass

    def _after_pass(self, number: int, report: PassReport, graph: Graph, misses: Sequence[str]) -> None:
        level = PHASES if report.changed else EVERYTHING_DONE
        tell(level, f"  {number:02d} {report.name}: {report.seconds * 1e3:.1f} ms, {report.n_nodes} nodes left")
        for miss in misses:
            tell(REFUSALS, f"     {report.name} refused {miss}")
        self._print(number, report, graph)
        if report.changed and (self.dumps or tells(GRAPHS)):
            text = print_graph(graph)
            self.dump(f"{number:02d}-{report.name}.txt", text)
            tell(GRAPHS, f"after {report.name}:\n{text}")

    def _print(self, number: int, report: PassReport, graph: Graph) -> None:
        """Show the graph to who asked for it by --print-after."""
        named = report.name in self.options.print_after
        if report.changed and (named or ALL in self.options.print_after):
            print(f"after {number:02d} {report.name}:\n{print_graph(graph).rstrip()}", file=sys.stderr)
        elif named:
            print(f"after {number:02d} {report.name}: nothing changed", file=sys.stderr)
