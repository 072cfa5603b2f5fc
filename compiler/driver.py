"""Model → Plan: the one file that knows every room of the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..errors import ParaxError, ResourceLimit
from ..runtime.dims import evaluate
from ..runtime.manifest import NativeStep
from ..runtime.plan import Plan
from .backend.host import resolve_target
from .backend.jit import compile_assembly, compile_object
from .backend.link import link_module
from .backend.lower import Segment, lower_graph
from .backend.lowering import LowerContext, WeightStore, lowering_of
from .compilation import CODE, EVERYTHING_DONE, Compilation, Progress
from .frontend.evaluate import evaluate_node
from .frontend.importer import import_model
from .frontend.parse import Source
from .ir.graph import Graph
from .ir.target import Target
from .ir.text import print_graph
from .ir.types import TensorType, dim_max, dim_to_json
from .options import CompileOptions
from .passes.dataflow.batch_rows import batch_rows
from .passes.dataflow.memory_planning import plan_memory, separate_outputs
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
    passes.run(graph)
    separate_outputs(graph)


def build_plan(graph: Graph, run: Compilation) -> Plan:
    """Lower, link and assemble for every target."""
    targets = list({t.name: t for t in map(resolve_target, run.options.targets)}.values())
    symbols = input_symbols(graph)
    with run.phase("memory", 0.25):
        memory = plan_memory(graph)
    weights = WeightStore()
    errors: list[str] = []
    segments: list[Segment] = []
    code: dict[str, bytes] = {}
    for i, target in enumerate(targets):
        share = 0.7 / len(targets)
        with run.phase("lower", 0.3 + i * share):
            context = LowerContext(target, tuple(symbols), weights, errors)
            segments.append(lower_graph(graph, context, memory))
            for placed in segments[-1].calls:
                run.tell(EVERYTHING_DONE, f"  {target.name}: {placed.call.label}")
        with run.phase("code", 0.3 + (i + 0.3) * share):
            text = link_module([segments[-1]], target, tuple(symbols))
            run.dump(f"{target.name}.ll", text)
            run.tell(CODE, text)
            if run.dumps:
                run.dump(f"{target.name}.s", compile_assembly(text, target))
            code[target.name] = compile_object(text, target)
    with run.phase("plan", 0.97):
        raw = manifest(graph, segments, targets, symbols, errors, run)
        plan = Plan.build(raw, code, weights.to_bytes(), print_graph(graph))
    check_memory(plan, run.options)
    run.progress("done", 1.0)
    return plan


def input_symbols(graph: Graph) -> dict[str, tuple[int, int]]:
    """Symbol → the (input, axis) that tells its value at run time.

    Raises:
        ParaxError: a symbol that no input dimension names.
    """
    found: dict[str, tuple[int, int]] = {}
    for i, v in enumerate(graph.inputs):
        for axis, dim in enumerate(v.tensor.dims):
            if not isinstance(dim, int) and str(dim).isidentifier():
                found.setdefault(str(dim), (i, axis))
    return found


def manifest(graph: Graph, segments: list[Segment], targets: list[Target], symbols: Mapping[str, tuple[int, int]],
             errors: list[str], run: Compilation) -> dict[str, Any]:
    """The plan's description of itself (see runtime.manifest for the format)."""
    rows = batch_rows(graph)
    arena, scratch = segments[0].arena, segments[0].scratch
    for s in segments[1:]:
        arena, scratch = dim_max(arena, s.arena), dim_max(scratch, s.scratch)
    return {
        "name": graph.name,
        "hint": run.options.hint,
        "inputs": [_spec(v.name, v.tensor) for v in graph.inputs],
        "outputs": [_spec(n, v.tensor) for n, v in zip(graph.output_names, graph.outputs)],
        "symbols": [_symbol(name, place, run.options) for name, place in symbols.items()],
        "constraints": [{"op": "==", "left": dim_to_json(a), "right": dim_to_json(b), "text": where}
                        for (a, b), where in graph.constraints.items()],
        "targets": [{"name": t.name, "arch": "x86_64", "features": list(t.features)} for t in targets],
        "steps": [{"kind": "native", "segment": 0, "inputs": [v.name for v in graph.inputs],
                   "outputs": list(graph.output_names), "arena": dim_to_json(arena), "scratch": dim_to_json(scratch)}],
        "batch": {"symbol": rows.symbol, "axis": rows.axes} if rows is not None else None,
        "errors": {str(i + 1): text for i, text in enumerate(errors)},
        "provenance": {"parax": __version__, "opt_level": run.options.opt_level,
                       "seconds": {k: round(v, 4) for k, v in run.seconds.items()},
                       "kernels": [c.call.label for c in segments[0].calls]},
    }


def _spec(name: str, t: TensorType) -> dict[str, Any]:
    return {"name": name, "dtype": t.dtype.name, "shape": [dim_to_json(d) for d in t.dims]}


def _symbol(name: str, place: tuple[int, int], options: CompileOptions) -> dict[str, Any]:
    bounds = options.dims.get(name)
    low, high = bounds if isinstance(bounds, tuple) else (1, None)
    return {"name": name, "input": place[0], "axis": place[1], "min": low, "max": high}


def check_memory(plan: Plan, options: CompileOptions) -> None:
    """Refuse a plan above `options.max_memory`, symbols taken at their least."""
    if options.max_memory is None:
        return
    least = {s.name: s.min for s in plan.manifest.symbols}
    arenas = [evaluate(step.arena, least) for step in plan.manifest.steps if isinstance(step, NativeStep)]
    need = len(plan.weights) + sum(arenas)
    if need > options.max_memory:
        raise ResourceLimit("the plan needs too much memory", expected=f"at most {options.max_memory} bytes",
                            found=f"{need} bytes", hint="raise --max-memory or make a dimension smaller")


__all__ = ["Compilation", "ParaxError", "build_plan", "compile_model", "import_graph", "optimise"]
