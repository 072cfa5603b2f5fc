"""Model → Plan: the one file that knows every room of the compiler."""

from __future__ import annotations

from ..errors import ParaxError, ResourceLimit
from ..runtime.dims import evaluate
from ..runtime.plan import Plan
from ..runtime.topology import choose_cores
from .backend.host import resolve_target
from .backend.jit import compile_assembly
from .backend.link import link_module
from .backend.lower import Segment, lower_graph
from .backend.lowering import LowerContext, WeightStore, lowering_of
from .backend.objects import compile_objects
from .compilation import CODE, EVERYTHING_DONE, Compilation, Progress
from .frontend.evaluate import evaluate_node
from .frontend.importer import import_model
from .frontend.parse import Source
from .ir.graph import Graph, nested_graphs
from .ir.target import Target
from .ir.text import print_graph
from .manifest import build_manifest, input_symbols
from .micro_batch import choose_micro_batch, least_rows
from .options import CompileOptions
from .passes.dataflow.batch_rows import batch_rows
from .passes.dataflow.memory_planning import plan_memory, separate_outputs
from .passes.dataflow.split_steps import NativeStep, native_steps, split_steps
from .passes.pipelines import pipeline


def compile_model(model: Source, options: CompileOptions, progress: Progress | None = None) -> Plan:
    """Compile an ONNX model.

    Args:
        model: a path, the file's bytes or a ModelProto. progress: called with (phase, fraction done).

    Raises:
        ParaxError: see parax.compile.
    """
    run = Compilation(options, progress or (lambda name, fraction: None))
    with run.phase("import", 0.0):
        graph = import_graph(model, options)
    with run.phase("passes", 0.1):
        optimise(graph, run)
    return build_plan(graph, run)


def import_graph(model: Source, options: CompileOptions) -> Graph:
    """The model as IR, with shapes and fixed dimensions applied."""
    fixed = {name: size for name, size in options.dims.items() if isinstance(size, int)}
    return import_model(model, shapes=options.shapes or None, dims=fixed or None)


def optimise(graph: Graph, run: Compilation) -> None:
    """Run the passes of the optimisation level."""
    run.dump("00-import.txt", print_graph(graph))
    passes = pipeline(run.options.opt_level, lambda op: lowering_of(op) is not None, evaluate_node)
    run.watch(passes)
    for nested in nested_graphs(graph):  # outer graphs first: constants move inwards
        passes.run(nested)


def build_plan(graph: Graph, run: Compilation) -> Plan:
    """Lower, link and assemble for every target."""
    targets = list({t.name: t for t in map(resolve_target, run.options.targets)}.values())
    symbols = input_symbols(graph)
    with run.phase("memory", 0.25):
        block = split_steps(graph)
        natives = [s.graph for s in native_steps(block.steps)]
        for native in natives:
            separate_outputs(native)
        memory = [plan_memory(g) for g in natives]
    weights = WeightStore()
    errors: list[str] = []
    segments: list[list[Segment]] = []
    modules: dict[str, tuple[str, Target]] = {}
    for i, target in enumerate(targets):
        with run.phase("lower", 0.3 + i * 0.2 / len(targets)):
            context = LowerContext(target, tuple(symbols), weights, errors, run.options.strict_fp)
            segments.append([lower_graph(g, context, m) for g, m in zip(natives, memory, strict=True)])
            for placed in (call for segment in segments[-1] for call in segment.calls):
                run.tell(EVERYTHING_DONE, f"  {target.name}: {placed.call.label}")
            text = link_module(segments[-1], target, tuple(symbols))
            modules[target.name] = text, target
        run.dump(f"{target.name}.ll", text)
        run.tell(CODE, text)
        if run.dumps:
            run.dump(f"{target.name}.s", compile_assembly(text, target))
    with run.phase("code", 0.5):
        jobs = run.options.jobs or len(choose_cores(None))
        code = compile_objects(modules, 2, jobs, run.options.cache_dir if run.options.cache else None)
    with run.phase("plan", 0.97):
        rows = batch_rows(graph) if [type(step) for step in block.steps] == [NativeStep] else None
        n_cores = len(run.options.cores or choose_cores(None))
        micro = choose_micro_batch(graph, rows.symbol, memory[0], targets[0], n_cores) if rows is not None else None
        least = least_rows(graph, rows.symbol, segments[0][0]) if rows is not None else 1
        raw = build_manifest(block, segments, targets, symbols, errors, weights, rows, micro, least, run.options,
                             run.seconds)
        plan = Plan.build(raw, code, weights.to_bytes(), print_graph(graph))
    check_memory(plan, run.options)
    run.progress("done", 1.0)
    return plan


def check_memory(plan: Plan, options: CompileOptions) -> None:
    """Refuse a plan above `options.max_memory`, symbols taken at their least."""
    if options.max_memory is None:
        return
    least = {s.name: s.min for s in plan.manifest.symbols}
    native = plan.manifest.native_steps()
    arenas = [evaluate(step.arena, least) + evaluate(step.scratch, least) for step in native]
    need = len(plan.weights) + sum(arenas)
    if need > options.max_memory:
        raise ResourceLimit("the plan needs too much memory", expected=f"at most {options.max_memory} bytes",
                            found=f"{need} bytes", hint="raise --max-memory or make a dimension smaller")


__all__ = ["Compilation", "ParaxError", "build_plan", "compile_model", "import_graph", "optimise"]
