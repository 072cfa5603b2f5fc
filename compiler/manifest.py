"""The plan's description of itself, from what the rooms of the compiler left. The format is `runtime.manifest`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import __version__
from .backend.lower import Segment
from .backend.lowering import WeightStore
from .ir.graph import Graph, Value
from .ir.target import Target
from .ir.types import STR, SymDim, TensorType, Type, dim_max, dim_to_json
from .options import CompileOptions
from .passes.dataflow.batch_rows import BatchRows
from .passes.dataflow.split_steps import HostStep, NativeStep, Step

Place = tuple[int, int]


def input_symbols(graph: Graph) -> dict[str, Place | None]:
    """Symbol → the (input, axis) that tells its value at run time, None where a host step finds it out."""
    found: dict[str, Place | None] = {}
    for i, v in enumerate(graph.inputs):
        if isinstance(v.type, TensorType) and v.type.shape is not None:
            for axis, dim in enumerate(v.type.shape):
                if isinstance(dim, SymDim) and str(dim).isidentifier():
                    found.setdefault(str(dim), (i, axis))
    for node in graph:
        for v in node.outputs:
            for name in _symbols(v.type):
                found.setdefault(name, None)
    return found


def _symbols(t: Type) -> list[str]:
    if not isinstance(t, TensorType) or t.shape is None:
        return []
    return sorted({s for d in t.shape if isinstance(d, SymDim) for s in d.symbols()})


def build_manifest(graph: Graph, steps: list[Step], segments: list[list[Segment]], targets: list[Target],
                   symbols: Mapping[str, Place | None], errors: list[str], weights: WeightStore,
                   rows: BatchRows | None, micro_batch: int | None, options: CompileOptions,
                   seconds: Mapping[str, float]) -> dict[str, Any]:
    """The manifest as JSON values.

    Args:
        segments: per target, the segments of the native steps in order. rows: the batch, if its rows are independent.
        micro_batch: rows per native call.
    """
    constants: dict[str, Any] = {}
    return {
        "name": graph.name,
        "hint": options.hint,
        "inputs": [_spec(v.name, v.type) for v in graph.inputs],
        "outputs": [_spec(n, v.type) for n, v in zip(graph.output_names, graph.outputs)],
        "symbols": [_symbol(name, place, options) for name, place in symbols.items()],
        "constraints": [{"op": "==", "left": dim_to_json(a), "right": dim_to_json(b), "text": where}
                        for (a, b), where in graph.constraints.items()],
        "targets": [{"name": t.name, "arch": "x86_64", "features": list(t.features)} for t in targets],
        "steps": _steps(steps, segments, symbols, constants, weights),
        "values": _crossing_values(graph, steps),
        "constants": constants,
        "batch": {"symbol": rows.symbol, "axis": rows.axes} if rows is not None else None,
        "micro_batch": micro_batch,
        "instances": options.instances,
        "errors": {str(i + 1): text for i, text in enumerate(errors)},
        "provenance": {"parax": __version__, "opt_level": options.opt_level,
                       "seconds": {k: round(v, 4) for k, v in seconds.items()},
                       "kernels": [c.call.label for s in segments[0] for c in s.calls]},
    }


def _steps(steps: list[Step], segments: list[list[Segment]], symbols: Mapping[str, Place | None],
           constants: dict[str, Any], weights: WeightStore) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    unbound = {name for name, place in symbols.items() if place is None}
    number = 0
    for step in steps:
        if isinstance(step, NativeStep):
            arena, scratch = segments[0][number].arena, segments[0][number].scratch
            for of_target in segments[1:]:
                arena = dim_max(arena, of_target[number].arena)
                scratch = dim_max(scratch, of_target[number].scratch)
            out.append({"kind": "native", "segment": number, "inputs": step.inputs, "outputs": step.outputs,
                        "arena": dim_to_json(arena), "scratch": dim_to_json(scratch)})
            number += 1
        else:
            out.append(_host_step(step, unbound, constants, weights))
    return out


def _host_step(step: HostStep, unbound: set[str], constants: dict[str, Any], weights: WeightStore) -> dict[str, Any]:
    for name, v in zip(step.inputs, step.node.inputs):
        if v is not None and v.is_constant and name is not None:
            constants[name] = _constant(v, weights)
    binds = []
    for i, v in enumerate(step.node.outputs):
        for axis, dim in enumerate(v.type.shape or () if isinstance(v.type, TensorType) else ()):
            if str(dim) in unbound and v.is_used:
                binds.append({"symbol": str(dim), "output": i, "axis": axis})
                unbound.discard(str(dim))
    op = step.node.op
    attributes = {k: _plain(value) for k, value in op.attributes().items()}
    return {"kind": "host", "op": op.name, "domain": op.domain, "attrs": attributes, "inputs": step.inputs,
            "outputs": step.outputs, "binds": binds}


def _plain(value: Any) -> Any:
    """An attribute as JSON."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def _constant(v: Value, weights: WeightStore) -> dict[str, Any]:
    assert v.data is not None and isinstance(v.type, TensorType)
    head = {"dtype": v.type.dtype.name, "shape": list(v.data.shape)}
    if v.type.dtype == STR:
        return {**head, "data": [s.decode() if isinstance(s, bytes) else str(s) for s in v.data.ravel().tolist()]}
    return {**head, "offset": weights.add(np.ascontiguousarray(v.data)).offset}


def _crossing_values(graph: Graph, steps: list[Step]) -> dict[str, Any]:
    """Types of the values between steps that are neither inputs nor outputs of the plan."""
    public = {v.name for v in graph.inputs} | set(graph.output_names)
    found: dict[str, Any] = {}
    for step in steps:
        values = step.graph.outputs if isinstance(step, NativeStep) else step.node.outputs
        for name, v in zip(step.outputs, values):
            if name is not None and name not in public:
                found[name] = {k: x for k, x in _spec(name, v.type).items() if k != "name"}
    return found


def _spec(name: str, t: Type) -> dict[str, Any]:
    if not isinstance(t, TensorType):
        return {"name": name, "dtype": str(t), "shape": None}
    shape = None if t.shape is None else [dim_to_json(d) for d in t.shape]
    return {"name": name, "dtype": t.dtype.name, "shape": shape}


def _symbol(name: str, place: Place | None, options: CompileOptions) -> dict[str, Any]:
    bounds = options.dims.get(name)
    low, high = bounds if isinstance(bounds, tuple) else (1 if place is not None else 0, None)
    source = {"input": place[0], "axis": place[1]} if place is not None else {}
    return {"name": name, **source, "min": low, "max": high}
