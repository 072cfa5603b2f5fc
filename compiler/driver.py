"""Model → Plan: the one file that knows every room of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..errors import ParaxError, ResourceLimit, UsageError
from ..log import CODE, EVERYTHING_DONE, inform, tell
from ..runtime.dims import evaluate
from ..runtime.interface import interface_digests, marked_code
from ..runtime.limits import physical_nbytes
from ..runtime.plan import Plan
from ..runtime.topology import choose_cores
from .backend.host import resolve_target
from .backend.jit import compile_assembly
from .backend.link import link_module
from .backend.lower import Segment, lower_graph
from .backend.lowering import LowerContext, WeightStore, lowering_of, takes_window
from .backend.microkernels.table import features_of
from .backend.objects import compile_objects
from .backend.tuning import Tuner
from .compilation import Compilation, Progress, Scheduler
from .frontend.evaluate import Evaluator
from .frontend.importer import import_model
from .frontend.limits import DEFAULT_LIMITS
from .frontend.parse import Source
from .host_work import OUTSIDE, HostWork, host_work
from .ir.call_rows import call_rows
from .ir.fp import Fp
from .ir.graph import Graph
from .ir.schedule import Schedule, print_schedule
from .ir.text import print_graph
from .ir.types import DType, noting_positive
from .ir.views import MemoryPlan
from .manifest import Place, build_manifest, input_symbols
from .options import CompileOptions
from .passes.dataflow.batch_rows import BatchRows, batch_rows
from .passes.dataflow.index_ranges import index_ranges
from .passes.dataflow.memory_planning import plan_memory
from .passes.dataflow.separate_outputs import shared_outputs
from .passes.dataflow.split_steps import Block, NativeStep, is_one_step, native_steps, split_steps
from .passes.pipelines import pipeline
from .passes.surroundings import Surroundings
from .passes.text import print_passes
from .planner.decide import Decision, decide
from .planner.here import machine_here
from .profiling import PROFILE, notes
from .targets.machine import Machine
from .targets.target import EXTENSIONS, Target

LEAST_LEVEL_FOR_MACHINES = 2  # of optimisation: what they have decides what is fused


def compile_model(
    model: Source, options: CompileOptions, progress: Progress | None = None, *, trace: bool = False,
    scheduler: Scheduler | None = None, decision: Decision | None = None,
) -> Plan:  # fmt: skip
    """Compile an ONNX model.

    Args:
        model: a path, the file's bytes or a ModelProto. progress: called with (phase, fraction done).
        trace: make the build whose kernels record when they ran (see runtime/profiling/recorder.py).
        scheduler: decides how the optimised graph runs on several cores, instead of the planner.
        decision: what the planner decided before; None: it predicts now.

    Raises:
        ParaxError: see parax.compile.
    """
    run = Compilation(options, progress or (lambda name, fraction: None), trace or options.profile, scheduler, decision)
    run.watch(pipeline(options.opt_level, Surroundings(), options.passes))  # refuses a wrong one before the work
    with run.phase("import", 0.0):
        graph = import_graph(model, options, run.evaluator)
        run.indexing = index_ranges(graph)
    with run.explained(graph):
        with run.phase("passes", 0.1):
            optimise(graph, run)
        return build_plan(graph, run, spend=True)


def import_graph(model: Source, options: CompileOptions, evaluator: Evaluator | None = None) -> Graph:
    """The model as IR, with shapes and fixed dimensions applied; `evaluator` folds small constants."""
    fixed = {name: size for name, size in options.dims.items() if isinstance(size, int)}
    most = min(DEFAULT_LIMITS.constants_nbytes, options.max_memory or physical_nbytes())
    limits = replace(DEFAULT_LIMITS, constants_nbytes=most)
    return import_model(model, limits=limits, shapes=options.shapes or None, dims=fixed or None, evaluator=evaluator,
                        overridable=options.overridable)  # fmt: skip


def optimise(graph: Graph, run: Compilation) -> None:
    """Run the passes of the optimisation level."""
    run.dump("00-import.txt", print_graph(graph))
    if run.machine is None and run.options.opt_level >= LEAST_LEVEL_FOR_MACHINES:
        run.machine = _machine_here(run.options)
    share = run.machine.caches(run.machine.n_cores)[1] if run.machine is not None else 0.0
    surroundings = Surroundings(lambda op: lowering_of(op) is not None, takes_window, run.evaluator, share)
    run.watch(pipeline(run.options.opt_level, surroundings, run.options.passes))
    with noting_positive(graph.positive):
        run.passes.run(graph)
        if is_one_step(graph):  # the planner counts no copies that will not be made
            run.passes.run_on_step(graph)


def _machine_here(options: CompileOptions) -> Machine:
    return machine_here(options, options.cores or choose_cores(None))


@dataclass
class Lowered:
    """A graph as kernels, before LLVM sees them.

    Attributes:
        block: the steps. memory: of each native step. schedule: of the only step, and the memory for that.
        segments: per target, each native step's kernels. modules: target name → (LLVM assembly, target).
        rows: the batch, if its rows are independent. not_split: else why not, symbol by symbol.
        expected_rows: how many rows a native call may bring.
        tuner: chooses among the kernels' candidates. errors: texts of the kernels' error sites.
    """

    targets: list[Target]
    symbols: dict[str, Place | None]
    block: Block
    memory: list[MemoryPlan]
    tuner: Tuner
    schedule: tuple[Schedule, MemoryPlan] | None = None
    rows: BatchRows | None = None
    not_split: list[str] = field(default_factory=list)
    expected_rows: int = 1
    weights: WeightStore = field(default_factory=WeightStore)
    errors: list[str] = field(default_factory=list)
    segments: list[list[Segment]] = field(default_factory=list)
    modules: dict[str, tuple[str, Target]] = field(default_factory=dict)

    @cached_property
    def host(self) -> HostWork:
        """What of the steps the runtime executes itself."""
        return host_work(self.block)


def lower(graph: Graph, run: Compilation, *, spend: bool = False) -> Lowered:
    """Split an optimised graph into steps, plan their memory, and generate and link their kernels for every target.

    Args:
        spend: the graph's large constants may go once they are lowered.
    """
    options, rounded = run.options, DType.from_name(run.options.matmul_input)
    more = features_of(rounded).intersection(EXTENSIONS)
    targets = list({t.name: t for t in (resolve_target(name, more) for name in options.targets)}.values())
    tuner = Tuner(options.cache_dir if options.cache else None, options.tune_seconds if options.opt_level == 3 else 0.0)
    one_step = is_one_step(graph)
    if run.decision is None:
        with run.phase("plan", 0.2):
            machine = run.machine or _machine_here(options)
            run.decision = decide(graph, options, machine, len(options.cores or choose_cores(None)))
    if run.scheduler is not None:
        run.decision = replace(run.decision, choice=None)
    with run.phase("memory", 0.25):
        block = split_steps(graph)
        natives = [s.graph for s in native_steps(block.steps)]
        for native in natives if not one_step else ():
            run.passes.run_on_step(native)
        _check_outputs(natives)
        schedule = _schedule(block, run)
        low = Lowered(targets, input_symbols(graph), block, [plan_memory(g) for g in natives], tuner, schedule)
        low.rows = _rows(graph, block, low.not_split)
        low.expected_rows = _expected_rows(low, run.options, run.decision)
    for i, target in enumerate(targets):
        with run.phase("lower", 0.3 + i * 0.2 / len(targets)):
            context = LowerContext(target, tuple(low.symbols), low.weights, low.errors, Fp(options.fp),
                                   low.expected_rows, call_rows(options.dims, options.hint != "latency"), tuner,
                                   _core_counts(options), run.decision.machine, rounded)  # fmt: skip
            pairs = zip(natives, low.memory, strict=True)
            last = spend and i == len(targets) - 1
            low.segments.append([lower_graph(g, context, memory, schedule, spend=last) for g, memory in pairs])
            for placed in (call for segment in low.segments[-1] for call in segment.calls):
                call = placed.call
                tell(EVERYTHING_DONE, f"  {target.name}: {call.func.name} ({call.work} items) for {call.label}")
            run.show_kernels(target.name, [c.call.func for segment in low.segments[-1] for c in segment.calls])
            text = link_module(low.segments[-1], target, tuple(low.symbols), run.trace)
            low.modules[target.name] = text, target
        run.dump(f"{target.name}.ll", text)
        tell(CODE, text)
        if run.dumps:
            run.dump(f"{target.name}.s", compile_assembly(text, target))
    return low


def _check_outputs(natives: Sequence[Graph]) -> None:
    """Refuse outputs without bytes of their own, which nobody would write."""
    for native in natives:
        for i in shared_outputs(native):
            raise UsageError("an output that has no bytes of its own", where=f"output {native.output_names[i]}",
                             hint="begin the passes of native steps with separate-outputs")  # fmt: skip


def _schedule(block: Block, run: Compilation) -> tuple[Schedule, MemoryPlan] | None:
    """How the only step runs on several cores, and its memory then; None for one kernel after the other."""
    scheduler = run.scheduler or (run.decision.scheduler if run.decision else None)
    if scheduler is None or [type(step) for step in block.steps] != [NativeStep]:
        return None
    schedule = scheduler(block.graph)
    if schedule is None or schedule.mode == "sequential":
        return None
    run.dump("schedule.txt", print_schedule(schedule))
    return schedule, plan_memory(block.graph, schedule)


def _rows(graph: Graph, block: Block, misses: list[str]) -> BatchRows | None:
    """The batch along which requests may be cut; `misses` receives why there is none."""
    host = next((step for step in block.steps if not isinstance(step, NativeStep)), None)
    if host is not None or len(block.steps) != 1:
        misses.append(f"{host.node.where}: runs on the host" if host is not None else "nothing is computed")
        return None
    return batch_rows(graph, misses)


def _expected_rows(low: Lowered, options: CompileOptions, decision: Decision) -> int:
    """Rows of a native call: a micro-batch, or a single one where an answer is waited for."""
    if low.rows is None or decision.rows is None or options.hint == "latency":
        return 1
    bounds = options.dims.get(low.rows.symbol)
    n_cores = len(options.cores or choose_cores(None))
    return min(decision.rows, -(-bounds[1] // n_cores)) if isinstance(bounds, tuple) else decision.rows


def _core_counts(options: CompileOptions) -> tuple[int, ...]:
    """Numbers of cores that instances on this machine may have: all of them, and powers of two below."""
    n = len(options.cores or choose_cores(None))
    return tuple(sorted({n, *(1 << i for i in range(n.bit_length()))}))


def build_plan(graph: Graph, run: Compilation, *, spend: bool = False) -> Plan:
    """Lower, link and assemble for every target; see `lower`."""
    with noting_positive(graph.positive):
        low = lower(graph, run, spend=spend)
    with run.phase("code", 0.5):
        jobs = run.options.jobs or len(choose_cores(None))
        code = compile_objects(low.modules, 2, jobs, run.options.cache_dir if run.options.cache else None)
    with run.phase("plan", 0.97):
        raw, weights = _manifest(low, run), low.weights.to_bytes()
        for name, data in code.items():
            code[name] = marked_code(data, interface_digests(raw, name, len(weights)))
        plan = Plan.build(raw, code, weights, print_graph(graph))
    inform(_decided(plan, run))
    check_memory(plan, run.options)
    run.progress("done", 1.0)
    return plan


def _manifest(low: Lowered, run: Compilation) -> dict[str, Any]:
    """The plan's manifest, without what depends on object code."""
    assert run.decision is not None
    raw = build_manifest(low.block, low.segments, low.targets, low.symbols, low.errors, low.weights, low.rows,
                         run.decision, low.tuner.choices, run.options, run.indexing)  # fmt: skip
    if low.rows is None and low.not_split:
        raw["provenance"]["not_split"] = low.not_split
    if run.trace:  # whose kernel each recorded call is
        raw["provenance"][PROFILE] = notes(low.block, low.segments[0], low.memory, run.decision.machine)
    if run.options.passes is not None:
        raw["provenance"]["passes"] = print_passes(run.passes.passes, run.passes.step_passes)
    if low.host.operators:
        raw["provenance"][OUTSIDE] = str(low.host)
    return raw


def preflight(model: Source, options: CompileOptions) -> HostWork:
    """Do everything that compiling does but plan, measure and make object code, so that it refuses what that refuses.

    Returns:
        what of the model would run outside of native code.

    Raises:
        ParaxError: as parax.compile; UnsupportedOp has every node that was found (`uses`).
    """
    options = replace(options, calibrate=False, cache=False, dump=None)
    run = Compilation(options, lambda name, fraction: None, decision=Decision(None, 1))
    graph = import_graph(model, options, run.evaluator)
    with run.explained(graph):
        optimise(graph, run)
        with noting_positive(graph.positive):
            low = lower(graph, run, spend=True)
        _manifest(low, run)
    return low.host


def _decided(plan: Plan, run: Compilation) -> str:
    """What was decided for the user, in one line: the batch, what runs outside native code, instances and why."""
    manifest = plan.manifest
    parts = [f"batch {manifest.batch.symbol}" if manifest.batch else f"no batch ({'; '.join(manifest.not_split)})"]
    if outside := manifest.provenance.get(OUTSIDE):
        parts.append(f"{OUTSIDE}: {outside}")
    choice = run.decision.choice if run.decision else None
    if choice is not None:
        parts.append(f"{choice.candidate.name} on {choice.machine}: {'; '.join(choice.reasons)}")
    return f"compiled {plan.name!r}: {', '.join(parts)}"


def check_memory(plan: Plan, options: CompileOptions) -> None:
    """Refuse a plan above `options.max_memory`, symbols taken at their least above 0."""
    if options.max_memory is None:
        return
    least = {s.name: max(s.min, 1) for s in plan.manifest.symbols}
    scheduled = plan.manifest.scheduled
    arenas = [evaluate(step.arena, least) + evaluate(step.scratch, least) for step in plan.manifest.native_steps()]
    other = evaluate(scheduled.step.arena, least) + evaluate(scheduled.step.scratch, least) if scheduled else 0
    need = len(plan.weights) + max(sum(arenas), other)
    if need > options.max_memory:
        raise ResourceLimit("the plan needs too much memory", expected=f"at most {options.max_memory} bytes",
                            found=f"{need} bytes", hint="raise --max-memory or make a dimension smaller")


__all__ = ["Compilation", "Lowered", "ParaxError", "build_plan", "compile_model", "import_graph", "lower", "optimise",
           "preflight"]  # fmt: skip
