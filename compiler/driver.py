"""Model → Plan: the one file that knows every room of the compiler."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__, env
from ..errors import ParaxError, ResourceLimit
from ..runtime.plan import Plan
from .backend.host import resolve_target
from .backend.jit import compile_object
from .backend.link import link_module
from .backend.lower import Segment, lower_graph
from .backend.lowering import LowerContext, WeightStore, lowering_of
from .frontend.evaluate import evaluate_node
from .frontend.importer import import_model
from .ir.graph import Graph
from .ir.target import Target
from .ir.text import print_graph
from .ir.types import TensorType, dim_max, dim_to_json, evaluate
from .options import CompileOptions
from .passes.dataflow.memory_planning import plan_memory, separate_outputs
from .passes.pipelines import pipeline

if TYPE_CHECKING:
    from onnx import ModelProto

Progress = Callable[[str, float], None]


@dataclass
class Compilation:
    """One run of the compiler: what each room leaves for the next.

    Attributes:
        seconds: time per phase. llvm: module text per target name.
    """

    options: CompileOptions
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    llvm: dict[str, str] = field(default_factory=dict)

    def phase(self, name: str, fraction: float) -> _Phase:
        """Time a phase and report it; `fraction` of the whole work is done when it starts."""
        return _Phase(self, name, fraction)

    def dump(self, name: str, text: str) -> None:
        """Write one file of the dump folder, if there is one."""
        if self.options.dump is not None:
            folder = Path(self.options.dump)
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f".{name}.{os.getpid()}"
            temporary.write_text(text)
            temporary.replace(folder / name)


class _Phase:
    def __init__(self, owner: Compilation, name: str, fraction: float) -> None:
        self.owner, self.name, self.fraction = owner, name, fraction

    def __enter__(self) -> None:
        self.owner.progress(self.name, self.fraction)
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        spent = time.perf_counter() - self.start
        self.owner.seconds[self.name] = self.owner.seconds.get(self.name, 0.0) + spent


def compile_model(model: str | Path | bytes | ModelProto, options: CompileOptions,
                  progress: Progress | None = None) -> Plan:
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


def import_graph(model: str | Path | bytes | ModelProto, options: CompileOptions) -> Graph:
    """The model as IR, with shapes and fixed dimensions applied."""
    fixed = {name: size for name, size in options.dims.items() if isinstance(size, int)}
    return import_model(model, shapes=options.shapes or None, dims=fixed or None)


def optimise(graph: Graph, run: Compilation) -> None:
    """Run the passes of the optimisation level."""
    run.dump("00-import.txt", print_graph(graph))
    passes = pipeline(run.options.opt_level, lambda op: lowering_of(op) is not None, evaluate_node)
    passes.verify = env.read("PARAX_VERIFY")
    if run.options.dump is not None:
        passes.dump = lambda number, name, g: run.dump(f"{number:02d}-{name}.txt", print_graph(g))
    passes.run(graph)
    separate_outputs(graph)


def build_plan(graph: Graph, run: Compilation) -> Plan:
    """Lower, link and assemble for every target."""
    targets = list({t.name: t for t in map(resolve_target, run.options.targets)}.values())
    symbols = input_symbols(graph)
    with run.phase("memory", 0.25):
        memory = plan_memory(graph)
    weights, errors = WeightStore(), []
    segments: list[Segment] = []
    code: dict[str, bytes] = {}
    for i, target in enumerate(targets):
        share = 0.7 / len(targets)
        with run.phase("lower", 0.3 + i * share):
            context = LowerContext(target, tuple(symbols), weights, errors)
            segments.append(lower_graph(graph, context, memory))
        with run.phase("code", 0.3 + (i + 0.3) * share):
            text = link_module([segments[-1]], target, tuple(symbols))
            run.llvm[target.name] = text
            run.dump(f"{target.name}.ll", text)
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
    need = len(plan.weights) + sum(evaluate(step.arena, least) for step in plan.manifest.steps if hasattr(step, "arena"))
    if need > options.max_memory:
        raise ResourceLimit("the plan needs too much memory", expected=f"at most {options.max_memory} bytes",
                            found=f"{need} bytes", hint="raise --max-memory or make a dimension smaller")


__all__ = ["Compilation", "ParaxError", "build_plan", "compile_model", "import_graph", "optimise"]
