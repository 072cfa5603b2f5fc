"""Steps as the manifest lists them: native segments, host operators, control operators with their bodies.

Owns the numbering of segments and where symbols that only the run can tell are read off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InternalError
from .backend.link_programs import program_memory
from .backend.lower import ScheduledSegment, Segment
from .backend.lowering import WeightStore
from .backend.programs import Program
from .ir.graph import Graph, Value
from .ir.types import STR, Dim, DType, TensorType, Type, dim_max, dim_to_json, symbols_of
from .passes.dataflow.split_steps import Block, HostStep, NativeStep, Step, native_steps


def constraints_of(graph: Graph, symbols: Collection[str]) -> list[dict[str, Any]]:
    """Equalities that the run must check; those of sizes that no value has any more are nobody's."""
    return [{"op": "==", "left": dim_to_json(a), "right": dim_to_json(b), "text": where}
            for (a, b), where in graph.constraints.items() if symbols_of((a, b)) <= set(symbols)]


def all_blocks(block: Block, native: bool = True) -> Iterator[Block]:
    """The block and all bodies in it; `native`: those of native functions, too."""
    pending = [block]
    while pending:
        current = pending.pop()
        yield current
        hosts = [step for step in current.steps if isinstance(step, HostStep) and (native or not step.is_native)]
        pending += [body for step in hosts for body in step.bodies.values()]


class StepWriter:
    """Writes the steps of a plan and collects the constants that they read."""

    def __init__(
        self, segments: Sequence[Sequence[Segment]], symbols: Mapping[str, object], weights: WeightStore,
        programs: Sequence[Program] = (),
    ) -> None:  # fmt: skip
        """`segments`: per target, those of the native steps. `symbols`: name → None where no input tells it.

        `programs`: those of operators with bodies, in the order of the steps.
        """
        self.constants: dict[str, Any] = {}
        self._segments, self._weights = segments, weights
        self._known = frozenset(name for name, place in symbols.items() if place is not None)
        self._names, self._symbols = frozenset(symbols), tuple(symbols)
        self._number, self._programs = 0, iter(programs)
        self._natives: list[dict[str, Any]] = []

    def defaults(self, graph: Graph) -> dict[str, Any]:
        """The inputs' defaults, as constants in the weights."""
        return {name: self._stored(array, DType.from_numpy(array.dtype)) for name, array in graph.defaults.items()}

    def write(self, block: Block) -> list[dict[str, Any]]:
        """The steps of the plan."""
        self._add_constants(block.outputs, block.graph.outputs)
        return self._steps(block.steps, self._known)

    def _steps(self, steps: Sequence[Step], bound: frozenset[str]) -> list[dict[str, Any]]:
        out = []
        for step in steps:
            if isinstance(step, NativeStep):
                out.append(self._native(step))
            elif step.is_native:
                out.append(self._program(step, next(self._programs), bound))
                bound |= {bind["symbol"] for bind in out[-1].get("binds", ())}
            else:
                out.append(self._host(step, bound))
                bound |= {bind["symbol"] for bind in out[-1]["binds"]}
        return out

    def _native(self, step: NativeStep) -> dict[str, Any]:
        number, self._number = self._number, self._number + 1
        segments = [of_target[number] for of_target in self._segments]
        arity = len(step.inputs), len(step.outputs)
        if any((segment.n_inputs, segment.n_outputs) != arity for segment in segments):
            raise InternalError("code takes other arrays than its step", where=f"segment {number}", expected=arity,
                                found=[(segment.n_inputs, segment.n_outputs) for segment in segments])  # fmt: skip
        memory = _memory(segments)
        written = {"kind": "native", "segment": number, "inputs": step.inputs, "outputs": step.outputs, **memory}
        self._natives.append(written)
        return written

    def _program(self, step: HostStep, program: Program, bound: frozenset[str]) -> dict[str, Any]:
        """An operator with bodies that is a native function: a native step, unless the runtime leads it."""
        self._number += sum(1 for _ in native_steps([step]))
        memory = _largest([program_memory(program, of_target, tuple(self._symbols)) for of_target in self._segments])
        own = {"segment": program.number, **memory}
        if program.is_led:
            return self._host(step, bound, own)
        return {"kind": "native", "inputs": list(program.inputs), "outputs": list(program.outputs), **own}

    def schedule(self) -> dict[str, Any] | None:
        """The scheduled program of the only step, after `write`; None if there is none."""
        programs = [s.scheduled for of_target in self._segments for s in of_target if s.scheduled is not None]
        if not programs:
            return None
        schedule = programs[0].schedule
        stages = [{"first_core": s.first_core, "n_cores": s.n_cores, "n_layers": len(s.layers)}
                  for s in schedule.stages]  # fmt: skip
        return {"mode": schedule.mode, "n_cores": schedule.n_cores, "micro_batches": schedule.micro_batches,
                "micro_rows": schedule.micro_rows,
                "stages": stages, "step": {**self._natives[0], "segment": self._number, **_memory(programs)}}

    def _host(
        self, step: HostStep, bound: frozenset[str], native: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """`native`: the function that runs the bodies."""
        op = step.node.op
        self._add_constants(step.inputs, step.node.inputs)
        written = {"kind": "control" if step.bodies else "host", "op": op.name, "domain": op.domain,
                   "attrs": {k: _plain(value) for k, value in op.attributes().items()}, "inputs": step.inputs}
        if native is not None:
            written["native"] = native
        elif step.bodies:
            written["bodies"] = {name: self._body(body, bound) for name, body in step.bodies.items()}
        used = [v if name is not None else None for name, v in zip(step.outputs, step.node.outputs)]
        return {**written, "outputs": step.outputs, "binds": self._binds(used, bound)}

    def _body(self, block: Block, bound: frozenset[str]) -> dict[str, Any]:
        self._add_constants(block.outputs, block.graph.outputs)
        binds = self._binds(block.graph.inputs, bound)
        steps = self._steps(block.steps, bound | {bind["symbol"] for bind in binds})
        return {"inputs": block.inputs, "outputs": block.outputs, "steps": steps, "binds": binds,
                "constraints": constraints_of(block.graph, self._names)}

    def _binds(self, values: Sequence[Value | None], bound: frozenset[str]) -> list[dict[str, Any]]:
        """Where symbols that have no value yet are read off the shapes of `values`."""
        binds: dict[str, dict[str, Any]] = {}
        for i, v in enumerate(values):
            for axis, dim in enumerate(_dims(v.type) if v is not None else ()):
                if str(dim) in self._names - bound:
                    binds.setdefault(str(dim), {"symbol": str(dim), "output": i, "axis": axis})
        return list(binds.values())

    def _add_constants(self, names: Sequence[str | None], values: Sequence[Value | None]) -> None:
        for name, v in zip(names, values):
            if v is not None and v.is_constant and name is not None:
                self.constants[name] = self._constant(v)

    def _constant(self, v: Value) -> dict[str, Any]:
        assert v.data is not None and isinstance(v.type, TensorType)
        return self._stored(v.data, v.type.dtype)

    def _stored(self, data: np.ndarray, dtype: DType) -> dict[str, Any]:
        head = {"dtype": dtype.name, "shape": list(data.shape)}
        if dtype == STR:
            return {**head, "data": [s.decode() if isinstance(s, bytes) else str(s) for s in data.ravel().tolist()]}
        return {**head, "offset": self._weights.add(data).offset}


def _memory(segments: Sequence[Segment] | Sequence[ScheduledSegment]) -> dict[str, Any]:
    """What a native step needs with any target's code."""
    return _largest([(segment.arena, segment.scratch) for segment in segments])


def _largest(needs: Sequence[tuple[Dim, Dim]]) -> dict[str, Any]:
    """Bytes of the arena and of each core's scratch that are enough for any of the needs."""
    arena, scratch = needs[0]
    for other in needs[1:]:
        arena, scratch = dim_max(arena, other[0]), dim_max(scratch, other[1])
    return {"arena": dim_to_json(arena), "scratch": dim_to_json(scratch)}


def _dims(t: Type) -> Sequence[Any]:
    return (t.shape or ()) if isinstance(t, TensorType) else ()


def _plain(value: Any) -> Any:
    """An attribute as JSON."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
