"""The plan's description of itself, from what the rooms of the compiler left. The format is `runtime.manifest`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from typing import Any

from .. import __version__
from .backend.lower import Segment
from .backend.lowering import WeightStore
from .backend.programs import Program
from .backend.tuning import Choice
from .ir.graph import Graph, nested_graphs
from .ir.types import SymDim, TensorType, Type, dim_to_json, symbols_of
from .manifest_steps import StepWriter, all_blocks, constraints_of
from .options import HALF, CompileOptions
from .passes.dataflow.batch_rows import BatchRows
from .passes.dataflow.index_ranges import Indexing
from .passes.dataflow.split_steps import Block, NativeStep
from .planner.decide import Decision
from .targets.target import Target

Place = tuple[int, int]


def input_symbols(graph: Graph) -> dict[str, Place | None]:
    """Symbol → the (input, axis) that tells its value at run time, None where a host step finds it out."""
    found: dict[str, Place | None] = {}
    for i, v in enumerate(graph.inputs):
        if isinstance(v.type, TensorType) and v.type.shape is not None:
            for axis, dim in enumerate(v.type.shape):
                if isinstance(dim, SymDim) and str(dim).isidentifier():
                    found.setdefault(str(dim), (i, axis))
    for inner in nested_graphs(graph):
        values = [*inner.inputs, *(v for node in inner for v in node.outputs)]
        for name in (name for v in values for name in _symbols(v.type)):
            found.setdefault(name, None)
    return found


def _symbols(t: Type) -> list[str]:
    if not isinstance(t, TensorType) or t.shape is None:
        return []
    return sorted({s for d in t.shape if isinstance(d, SymDim) for s in d.symbols()})


def build_manifest(block: Block, segments: list[list[Segment]], targets: list[Target],
                   symbols: Mapping[str, Place | None], errors: list[str], weights: WeightStore,
                   rows: BatchRows | None, decision: Decision, choices: Sequence[Choice],
                   options: CompileOptions, indexing: Indexing, programs: Sequence[Program] = ()) -> dict[str, Any]:
    """The manifest as JSON values.

    Args:
        segments: per target, the segments of the native steps in order. rows: the batch, if its rows are independent.
        decision: the planner's. choices: which of several kernels each node got, and why.
        indexing: which inputs are indices. programs: native functions of operators with bodies.
    """
    graph = block.graph
    writer = StepWriter(segments, symbols, weights, programs)
    batch = {"symbol": rows.symbol, "axis": rows.axes, "min_rows": decision.least_rows} if rows is not None else None
    return {
        "name": graph.name,
        "hint": options.hint,
        "inputs": [_spec(v.name, v.type) for v in graph.inputs],
        "outputs": [_spec(n, v.type) for n, v in zip(graph.output_names, graph.outputs)],
        "symbols": [_symbol(name, place, options, graph.positive) for name, place in symbols.items()],
        "constraints": constraints_of(graph, symbols),
        "targets": [{"name": t.name, "arch": t.arch, "features": list(t.features)} for t in targets],
        "steps": writer.write(block),
        "values": _crossing_values(block),
        "constants": writer.constants,
        "defaults": writer.defaults(graph),
        "fixed": list(graph.fixed),
        "donated": dict(graph.donated),
        "states": [asdict(state) for state in graph.states],
        "samples": _samples(indexing, {name for name, place in symbols.items() if place is not None}),
        "batch": batch,
        "micro_batch": decision.rows if rows is not None else None,
        "instances": options.instances,
        "max_memory": options.max_memory,
        "arrangement": decision.arrangement(),
        "delay": _delay(options),
        "choice": decision.choice.to_json() if decision.choice is not None else None,
        "schedule": writer.schedule(),
        "errors": {str(i + 1): text for i, text in enumerate(errors)},
        "provenance": {"parax": __version__, "opt_level": options.opt_level, "fp": options.fp,
                       "products": HALF if options.precision == HALF else options.matmul_input,
                       "rounded": _rounded(segments, targets),
                       "kernels": [c.call.label for s in segments[0] for c in s.calls],
                       "choices": [asdict(choice) for choice in choices]},
    }


def _rounded(segments: list[list[Segment]], targets: list[Target]) -> list[dict[str, str]]:
    """Which nodes' operands are rounded, in whose code, and to what."""
    calls = [(t, placed.call) for t, each in zip(targets, segments, strict=True) for s in each for placed in s.calls]
    found = [(call.label, t.name, call.rounded_to.name) for t, call in calls if call.rounded_to is not None]
    return [{"node": node, "target": target, "to": to} for node, target, to in dict.fromkeys(found)]


def _samples(indexing: Indexing, known: AbstractSet[str]) -> dict[str, Any]:
    """What is said in sizes that a request tells; the rest is of no use to who makes one up."""
    ranges = {name: ends for name, ends in indexing.ranges.items() if symbols_of(ends) <= known}
    conditions = [(pair, text) for pair, text in indexing.conditions.items() if symbols_of(pair) <= known]
    return {
        "ranges": {name: [dim_to_json(end) for end in ends] for name, ends in ranges.items()},
        "conditions": [{"op": "<=", "left": dim_to_json(a), "right": dim_to_json(b), "text": text}
                       for (a, b), text in conditions],
    }  # fmt: skip


def _delay(options: CompileOptions) -> dict[str, Any] | None:
    """What the user says of the instances' starts."""
    if options.delay_groups is None:
        return None
    return {"groups": options.delay_groups, "seconds": options.delay_seconds or 0.0}


def _crossing_values(block: Block) -> dict[str, Any]:
    """Types of the values between steps that are neither inputs nor outputs of the plan."""
    public = {*block.inputs, *block.outputs}
    found: dict[str, Any] = {}
    for inner in all_blocks(block, native=False):
        pairs = list(zip(inner.inputs, inner.graph.inputs))
        for step in inner.steps:
            values = step.graph.outputs if isinstance(step, NativeStep) else step.node.outputs
            pairs += [(name, v) for name, v in zip(step.outputs, values) if name is not None]
        for name, v in pairs:
            if name not in public:
                found[name] = {k: x for k, x in _spec(name, v.type).items() if k != "name"}
    return found


def _spec(name: str, t: Type) -> dict[str, Any]:
    if not isinstance(t, TensorType):
        return {"name": name, "dtype": str(t), "shape": None}
    shape = None if t.shape is None else [dim_to_json(d) for d in t.shape]
    return {"name": name, "dtype": t.dtype.name, "shape": shape}


def _symbol(name: str, place: Place | None, options: CompileOptions, positive: AbstractSet[str]) -> dict[str, Any]:
    bounds = options.dims.get(name)
    low, high = bounds if isinstance(bounds, tuple) else (0, None)
    low = max(low, 1 if name in positive else 0)
    source = {"input": place[0], "axis": place[1]} if place is not None else {}
    return {"name": name, **source, "min": low, "max": high}
