"""The first two phases of a compilation: a model becomes a graph, and passes make it the one that is planned.

Owns what the passes are told of the backend and of the machine.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import UsageError
from ..runtime.limits import physical_nbytes
from ..runtime.topology import choose_cores
from .backend.byte_products import adds_quads, byte_features, multiplies_bytes, prefers_light
from .backend.half_products import gains_by_halves, half_features
from .backend.host import resolve_target
from .backend.lowering import lowering_of, takes_window
from .compilation import Compilation
from .frontend.evaluate import Evaluator
from .frontend.importer import import_model
from .frontend.limits import DEFAULT_LIMITS
from .frontend.parse import Source
from .frontend.state import declare_state
from .ir.call_rows import call_rows
from .ir.graph import Graph, Node
from .ir.text import print_graph
from .ir.types import noting_positive
from .options import FULL, HALF, CompileOptions
from .passes.block.round_products import rounded_products
from .passes.dataflow.index_ranges import index_ranges
from .passes.dataflow.rematerialise import Rematerialise
from .passes.dataflow.split_steps import is_one_step
from .passes.pipelines import pipeline, preparation
from .passes.quantize.layers import layers_of
from .passes.surroundings import Surroundings
from .planner.host_machine import machine_here
from .targets.target import Target

LEAST_LEVEL_FOR_MACHINES = 2  # of optimisation: what they have decides what is fused


def imported(model: Source, run: Compilation) -> Graph:
    """The phase that reads the model.

    Raises:
        UsageError: a lower precision is asked for, which whole compilations decide on: see `compiler/precision`.
        ParaxError: as parax.compile.
    """
    if run.options.precision not in (FULL, HALF):
        raise UsageError("this looks at one precision", where="--precision", expected=f"{FULL} or {HALF}",
                         found=run.options.precision, hint="paraxc decides on a lower one; `--emit onnx` "
                         "writes the model so decided on, which this takes")  # fmt: skip
    with run.phase("import", 0.0):
        graph = import_graph(model, run.options, run.evaluator)
        declare_state(graph, run.options.state)
        run.indexing = index_ranges(graph)
    return graph


def import_graph(model: Source, options: CompileOptions, evaluator: Evaluator | None = None) -> Graph:
    """The model as IR, with shapes and fixed dimensions applied; `evaluator` folds small constants."""
    fixed = {name: size for name, size in options.dims.items() if isinstance(size, int)}
    most = min(DEFAULT_LIMITS.constants_nbytes, options.max_memory or physical_nbytes())
    limits = replace(DEFAULT_LIMITS, constants_nbytes=most)
    return import_model(model, limits=limits, shapes=options.shapes or None, dims=fixed or None, evaluator=evaluator,
                        overridable=options.overridable)  # fmt: skip


def optimise(graph: Graph, run: Compilation) -> None:
    """The phase that runs the passes: of the graph and, where no operator runs on the host, of native steps as well."""
    with run.phase("passes", 0.1):
        if run.dumps:
            run.dump("00-import.txt", print_graph(graph))
        options = run.options
        if run.machine is None and options.opt_level >= LEAST_LEVEL_FOR_MACHINES:
            run.machine = machine_here(options, options.cores or choose_cores(None))
        run.watch(pipeline(options.opt_level, _surroundings(run), options.passes, rounds=options.precision == HALF))
        with noting_positive(graph.positive):
            run.passes.run(graph)
            if run.revise is not None:
                run.revise(graph)
            if run.arena_nbytes is not None:
                run.passes.run_more([Rematerialise(run.arena_nbytes)], graph)
            if is_one_step(graph):  # the planner counts no copies that will not be made
                run.passes.run_on_step(graph)


def prepared(model: Source, run: Compilation) -> Graph:
    """The model as a graph whose products are as they will be quantised: constants folded, scales in their weights."""
    graph = imported(model, run)
    with run.explained(graph), noting_positive(graph.positive):
        preparation(_surroundings(run)).run(graph)
    return graph


def light_layers(graph: Graph, options: CompileOptions) -> frozenset[str]:
    """Names of the results of products that are faster if their weights of 8 bits are light: see `Quantize`."""
    prefers = prefers_light(_targets(options, byte_features()))
    return frozenset(layer.name for layer in layers_of(graph) if prefers(layer.node))


def halved_layers(graph: Graph, options: CompileOptions) -> list[Node]:
    """Products by constants that --precision bf16 makes of bf16: see `RoundProducts`."""
    return rounded_products(graph, gains_by_halves(_targets(options, half_features())))


def _targets(options: CompileOptions, features: frozenset[str]) -> list[Target]:
    """The options' targets, native ones with those of the features that this machine has."""
    return [resolve_target(name, features) for name in options.targets]


def _surroundings(run: Compilation) -> Surroundings:
    share = run.machine.caches(run.machine.n_cores)[1] if run.machine is not None else 0.0
    targets = _targets(run.options, byte_features())
    halves = _targets(run.options, half_features())
    return Surroundings(lambda op: lowering_of(op) is not None, takes_window, run.evaluator,
                        multiplies_bytes(targets), adds_quads(targets), share, run.options.strict_fp,
                        run.options.rounds_computed, gains_by_halves(halves),
                        call_rows(run.options.dims, run.options.hint != "latency"))  # fmt: skip


__all__ = ["halved_layers", "import_graph", "imported", "light_layers", "optimise", "prepared"]
