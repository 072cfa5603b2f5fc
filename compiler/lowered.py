"""The middle phases of a compilation: the planned graph is cut into steps, which become kernels, which are linked.

Owns what is between a graph and object code. What runs on which core is decided before (`Compilation.decision`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import UnsupportedOp, UsageError, joined
from ..log import CODE, EVERYTHING_DONE, tell
from ..runtime.topology import choose_cores
from .backend.byte_products import features_for
from .backend.host import resolve_target
from .backend.jit import compile_assembly
from .backend.link import link_module
from .backend.lower import Segment, lower_graph
from .backend.lowering import LowerContext, WeightStore
from .backend.microkernels.table import features_of
from .backend.programs import Program
from .backend.tuning import Tuner
from .compilation import Compilation
from .host_work import HostWork, host_work, refused_on_host
from .ir.call_rows import call_rows
from .ir.fp import Fp
from .ir.graph import Graph
from .ir.schedule import Schedule, print_schedule
from .ir.types import BF16, DType
from .ir.views import MemoryPlan
from .manifest import Place, input_symbols
from .native_programs import native_programs
from .options import HALF, CompileOptions
from .passes.dataflow.batch_rows import BatchRows, batch_rows
from .passes.dataflow.memory_planning import plan_memory
from .passes.dataflow.native_control import choose_native
from .passes.dataflow.overwrite_inputs import overwrites, overwritten_early
from .passes.dataflow.separate_outputs import shared_outputs
from .passes.dataflow.split_steps import Block, NativeStep, is_one_step, native_steps, split_steps
from .planner.decide import Decision
from .targets.target import EXTENSIONS, Target


@dataclass
class Lowered:
    """A graph as kernels, before LLVM sees them.

    Attributes:
        block: the steps. memory: of each native step. schedule: of the only step, and the memory for that.
        segments: per target, each native step's kernels. modules: target name → (LLVM assembly, target).
        rows: the batch, if its rows are independent. not_split: else why not, symbol by symbol.
        expected_rows: how many rows a native call may bring.
        tuner: chooses among the kernels' candidates. errors: texts of the kernels' error sites.
        programs: the native functions of operators with bodies, in the order of the steps.
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
    programs: list[Program] = field(default_factory=list)

    @property
    def natives(self) -> list[Graph]:
        """The graphs of the native steps."""
        return [step.graph for step in native_steps(self.block.steps)]

    @cached_property
    def host(self) -> HostWork:
        """What of the steps the runtime executes itself."""
        return host_work(self.block)


def cut(graph: Graph, run: Compilation) -> Lowered:
    """The phase that cuts a planned graph into steps, runs the passes of those that it cuts out, and plans memory."""
    options = run.options
    assert run.decision is not None
    more = features_of(BF16 if options.precision == HALF else _rounded(options)).intersection(EXTENSIONS)
    more |= features_for(graph)
    targets = list({t.name: t for t in (resolve_target(name, more) for name in options.targets)}.values())
    tuner = Tuner(options.cache_dir if options.cache else None, options.tune_seconds if options.opt_level == 3 else 0.0)
    with run.phase("memory", 0.25):
        whole = is_one_step(graph)
        block, symbols = split_steps(graph), input_symbols(graph)
        choose_native(block, {name for name, place in symbols.items() if place is not None})
        natives = [step.graph for step in native_steps(block.steps)]
        for native in natives if not whole else ():
            run.passes.run_on_step(native)
        _check_outputs(natives)
        _check_donated(graph, block)
        schedule = _schedule(block, run)
        low = Lowered(targets, symbols, block, [plan_memory(g) for g in natives], tuner, schedule)
        low.programs = native_programs(block, low.weights, symbols)
        low.rows = _rows(graph, block, low.not_split)
        low.expected_rows = _expected_rows(low, options, run.decision)
    return low


def lower_for(target: Target, low: Lowered, run: Compilation, *, spend: bool = False) -> None:
    """The phase that makes the kernels of one target.

    Args:
        spend: the large constants may go once they are lowered: no other target follows.

    Raises:
        UnsupportedOp: nodes that neither a kernel nor the host serves, all of them.
    """
    options = run.options
    assert run.decision is not None
    with run.phase("lower", 0.3 + low.targets.index(target) * 0.2 / len(low.targets)):
        context = LowerContext(target, tuple(low.symbols), low.weights, low.errors, Fp(options.fp), low.expected_rows,
                               call_rows(options.dims, options.hint != "latency"), low.tuner, _core_counts(options),
                               run.decision.machine, _rounded(options))  # fmt: skip
        pairs = zip(low.natives, low.memory, strict=True)
        segments, refused = [], refused_on_host(low.block)
        for native, memory in pairs:
            try:
                segments.append(lower_graph(native, context, memory, low.schedule, spend=spend))
            except UnsupportedOp as error:
                refused.append(error)
        if refused:
            raise joined(refused)
        low.segments.append(segments)
        for placed in (call for segment in low.segments[-1] for call in segment.calls):
            call = placed.call
            tell(EVERYTHING_DONE, f"  {target.name}: {call.func.name} ({call.work} items) for {call.label}")
        run.show_kernels(target.name, [c.call.func for segment in low.segments[-1] for c in segment.calls])


def link_for(target: Target, low: Lowered, run: Compilation) -> None:
    """The phase that makes one module of the kernels that were made last, as LLVM text."""
    with run.phase("link", 0.4 + low.targets.index(target) * 0.1 / len(low.targets)):
        text = link_module(low.segments[-1], target, tuple(low.symbols), run.trace, low.programs)
        low.modules[target.name] = text, target
    run.dump(f"{target.name}.ll", text)
    tell(CODE, text)
    if run.dumps:
        run.dump(f"{target.name}.s", compile_assembly(text, target))


def _rounded(options: CompileOptions) -> DType:
    """What operands of products by constant matrices are rounded to; f32: not at all."""
    return DType.from_name(options.matmul_input)


def _check_outputs(natives: Sequence[Graph]) -> None:
    """Refuse outputs without bytes of their own, which nobody would write."""
    for native in natives:
        for i in shared_outputs(native):
            raise UsageError("an output that has no bytes of its own", where=f"output {native.output_names[i]}",
                             hint="begin the passes of native steps with separate-outputs")  # fmt: skip


def _check_donated(graph: Graph, block: Block) -> None:
    """Refuse outputs that would overwrite an input that is still to be read.

    Raises:
        UsageError: the passes leave one; or the graph is cut into steps, which may hold on to their inputs.
    """
    if not overwrites(graph):
        return
    host = [step.node.where for step in block.steps if not isinstance(step, NativeStep)]
    if len(block.steps) != 1 or host:
        raise UsageError("state and donated inputs need a graph without operators on the host",
                         found=host[0] if host else f"{len(block.steps)} steps", where=f"graph {graph.name}")
    for i in overwritten_early(block.graph):
        raise UsageError("an output overwrites an input too early", where=f"output {graph.output_names[i]}",
                         hint="end the passes of native steps with overwrite-inputs")  # fmt: skip


def _schedule(block: Block, run: Compilation) -> tuple[Schedule, MemoryPlan] | None:
    """How the only step runs on several cores, and its memory then; None for one kernel after the other."""
    if [type(step) for step in block.steps] != [NativeStep]:
        return None
    schedule = run.decision.schedule if run.decision else None
    if run.scheduler is not None:
        schedule = run.scheduler(block.graph)
    if schedule is None or schedule.mode == "sequential":
        return None
    if overwrites(block.graph):  # branches would not wait for readers
        return None
    run.passes.run_on_scheduled(block.graph, schedule)
    run.dump("schedule.txt", print_schedule(schedule, block.graph))
    return schedule, plan_memory(block.graph, schedule)


def _rows(graph: Graph, block: Block, misses: list[str]) -> BatchRows | None:
    """The batch along which requests may be cut; `misses` receives why there is none."""
    host = next((step for step in block.steps if not isinstance(step, NativeStep)), None)
    if host is not None or len(block.steps) != 1:
        how = "runs bodies" if host is not None and host.is_native else "runs on the host"
        misses.append(f"{host.node.where}: {how}" if host is not None else "nothing is computed")
        return None
    if graph.states:
        misses.append("the plan keeps state, whose rows stay together")
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


__all__ = ["Lowered", "cut", "link_for", "lower_for"]
