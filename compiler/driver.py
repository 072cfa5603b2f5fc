"""Model → Plan: the phases of a compilation, in order. Each is a function of its own file and knows only its input.

    import      imported      optimisation.py   the model as a graph
    optimise    optimise      optimisation.py   passes of the graph
    plan        plan_cores    here              which cores do what: predicted, or measured on candidates
    cut         cut           lowered.py        steps, native or on the host, and their memory
    lower       lower_for     lowered.py        kernels of a target
    link        link_for      lowered.py        one module of LLVM text
    assemble    assembled     written.py        object code
    write       written       written.py        the plan
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..runtime.plan import Plan
from ..runtime.topology import choose_cores
from .compilation import Compilation, Progress, Scheduler
from .frontend.parse import Source
from .host_work import HostWork
from .ir.graph import Graph
from .ir.types import Dim, noting_positive
from .lowered import Lowered, cut, link_for, lower_for
from .optimisation import import_graph, imported, optimise
from .options import CompileOptions
from .passes.base import Pipeline
from .passes.dataflow.index_ranges import index_ranges
from .passes.pipelines import pipeline
from .passes.surroundings import Surroundings
from .planner.decide import AUTO, Decision, decide, planner_for
from .planner.host_machine import machine_here
from .planner.plan_search import MakePlan, PlanSearch
from .written import assembled, check_memory, manifest_of, written

LEVEL_OF_SEARCHES = 3  # of optimisation: candidates are compiled and run
MOST_MEASURED, BUDGET_SECONDS = 6, 10.0


def compile_model(
    model: Source, options: CompileOptions, progress: Progress | None = None, *, trace: bool = False,
    scheduler: Scheduler | None = None, decision: Decision | None = None,
    revise: Callable[[Graph], None] | None = None,
) -> Plan:  # fmt: skip
    """Compile an ONNX model.

    Args:
        model: a path, the file's bytes or a ModelProto. progress: called with (phase, fraction done).
        trace: make the build whose kernels record when they ran (see runtime/profiling/recorder.py).
        scheduler: decides how the optimised graph runs on several cores, instead of the planner.
        decision: what the planner decided before; None: it decides now.
        revise: changes the optimised graph before it is cut and planned.

    Raises:
        ParaxError: see parax.compile.
    """
    run = Compilation(options, progress or quiet, trace or options.profile, scheduler, decision,
                      revise=revise)
    run.watch(pipeline(options.opt_level, Surroundings(), options.passes))  # refuses a wrong one before the work
    return _compiled(imported(model, run), run)


def compile_graph(
    graph: Graph, options: CompileOptions, progress: Progress | None = None, arena_nbytes: int | None = None
) -> Plan:  # fmt: skip
    """Compile a graph that was made here, such as a training step; the graph is used up. As `compile_model`.

    Args:
        arena_nbytes: the most that the arena of a training step may have; None: any.

    Raises:
        ArenaTooSmall: it cannot be so small.
    """
    run = Compilation(options, progress or quiet, options.profile, arena_nbytes=arena_nbytes)
    run.indexing = index_ranges(graph)
    return _compiled(graph, run)


def step_nbytes(graph: Graph, options: CompileOptions) -> tuple[int, int, int]:
    """Bytes of the arena, of what each core needs beside it, and of constants, of a graph of known sizes; its code is
    not made.

    The graph is used up. Raises as `compile_model`.
    """
    run = Compilation(replace(options, dump=None, print_after=()), quiet)
    optimise(graph, run)
    low = lower(graph, run)
    steps = list(zip(low.memory, low.segments[0], strict=True))
    arena, scratch = _largest(memory.total for memory, _ in steps), _largest(segment.scratch for _, segment in steps)
    return arena, scratch, len(low.weights.to_bytes())


def _largest(sizes: Iterable[Dim]) -> int:
    return max((size for size in sizes if isinstance(size, int)), default=0)


def _compiled(graph: Graph, run: Compilation) -> Plan:
    with run.explained(graph):
        optimise(graph, run)
        return build_plan(graph, run, spend=True)


def build_plan(graph: Graph, run: Compilation, *, spend: bool = False) -> Plan:
    """The phases after the passes; see `lower`."""
    low = lower(graph, run, spend=spend)
    return written(graph, low, assembled(low, run), run)


def lower(graph: Graph, run: Compilation, *, spend: bool = False) -> Lowered:
    """The phases from an optimised graph to LLVM text for every target.

    Args:
        spend: the graph's large constants may go once they are lowered.
    """
    with noting_positive(graph.positive):
        plan_cores(graph, run)
        low = cut(graph, run)
        for target in low.targets:
            lower_for(target, low, run, spend=spend and target is low.targets[-1])
            link_for(target, low, run)
    return low


def plan_cores(graph: Graph, run: Compilation) -> None:
    """The phase that decides which cores do what, unless somebody did: `run.decision`."""
    options = run.options
    cores = tuple(options.cores or choose_cores(None))
    if run.decision is None:
        with run.phase("plan", 0.2):
            machine = run.machine = run.machine or machine_here(options, cores)
            if run.scheduler is None and _is_searched(options):
                planner = planner_for(graph, options, machine, len(cores))
                study = PlanSearch(planner, cores, options, candidates(graph, run), run.progress)
                run.decision = study.verified(MOST_MEASURED, BUDGET_SECONDS)
            else:
                run.decision = decide(graph, options, machine, len(cores))
    if run.scheduler is not None:
        run.decision = replace(run.decision, choice=None)


def _is_searched(options: CompileOptions) -> bool:
    return options.opt_level == LEVEL_OF_SEARCHES and options.mode == AUTO and options.instances is None


def candidates(graph: Graph, run: Compilation) -> MakePlan:
    """What makes the plans that the planner runs: each lowers a copy of the optimised graph."""

    def make(decision: Decision, trace: bool) -> Plan:
        options = replace(run.options, dump=None, print_after=())  # which are of the plan that is chosen
        own = Compilation(options, quiet, trace or options.profile, decision=decision, indexing=run.indexing)
        own.watch(Pipeline(run.passes.passes, run.passes.step_passes, run.passes.schedule_passes))
        return build_plan(graph.clone(), own)

    return make


def preflight(model: Source, options: CompileOptions) -> HostWork:
    """Do everything that compiling does but plan, measure and make object code, so that it refuses what that refuses.

    Returns:
        what of the model would run outside of native code.

    Raises:
        ParaxError: as parax.compile; UnsupportedOp has every node that was found (`uses`).
    """
    options = replace(options, calibrate=False, cache=False, dump=None)
    run = Compilation(options, quiet, decision=Decision(None, 1))
    graph = imported(model, run)
    with run.explained(graph):
        optimise(graph, run)
        low = lower(graph, run, spend=True)
        manifest_of(low, run)
    return low.host


def quiet(phase: str, fraction: float) -> None:
    """A listener to progress who does not care."""


__all__ = ["Compilation", "Lowered", "build_plan", "candidates", "check_memory", "compile_graph",
           "compile_model", "import_graph",
           "lower", "optimise", "plan_cores", "preflight", "quiet"]  # fmt: skip
