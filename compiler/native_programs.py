"""Operators with bodies that are native functions, as the backend writes them (`backend/programs.py`).

Owns what each value between their segments is called and where its constants lie. Which operators these are is decided
before (`passes/dataflow/native_control.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .backend.costs import node_cost
from .backend.lowering import WeightStore
from .backend.programs import Body, Branches, Kernels, Program, Repetition, Stage
from .ir.graph import Value
from .ir.ops.base import Control
from .ir.types import TensorType
from .passes.dataflow.native_control import number_of
from .passes.dataflow.split_steps import Block, HostStep, NativeStep, native_controls, native_steps

LEAST_FLOPS = 200_000.0
"""Of a kernel in a body, on average, for which cores meet after each: some 4 µs of one core's at 50 a nanosecond, where
a meeting takes a few tenths of a microsecond."""


def native_programs(block: Block, weights: WeightStore, symbols: Iterable[str]) -> list[Program]:
    """The programs of a plan's steps, in order; their constants enter the weights.

    Args:
        symbols: of all sizes. Where cores share a request an answer is waited for, and they are taken to be 1.
    """
    numbers = {id(step): number for number, step in enumerate(native_steps(block.steps))}
    ones = dict.fromkeys(symbols, 1)
    return [_Maker(numbers, weights).program(step, len(numbers) + i, _is_brief(step, ones))
            for i, step in enumerate(native_controls(block.steps))]  # fmt: skip


@dataclass
class _Maker:
    """One program while it is made.

    Attributes:
        numbers: of the segments, by the identity of their steps. types, constants: see Program.
    """

    numbers: dict[int, int]
    weights: WeightStore
    types: dict[str, TensorType] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def program(self, step: HostStep, number: int, is_alone: bool) -> Program:
        """A step as a program; see there."""
        root = self._control(step)
        if isinstance(root, Repetition) and root.is_led:
            inputs, outputs = root.operands, root.outputs
        else:
            own = (root.condition, *root.captured) if isinstance(root, Branches) else root.operands
            inputs, outputs = tuple(dict.fromkeys(name for name in own if name not in self.constants)), root.outputs
        true = self.weights.add(np.array(True)).offset
        written = tuple(name for name in outputs if name is not None)
        return Program(number, root, inputs, written, self.types, self.constants, true, is_alone)

    def _named(self, names: Sequence[str | None], values: Sequence[Value | None]) -> tuple[str, ...]:
        """Note what values are; the names of those that there are."""
        found = []
        for name, v in zip(names, values, strict=True):
            if name is None or v is None:
                continue
            assert isinstance(v.type, TensorType)
            self.types[name] = v.type
            if v.is_constant and name not in self.constants:
                assert v.data is not None
                self.constants[name] = self.weights.add(v.data).offset
                if v.data.size == 1 and v.data.dtype == np.bool_ and v.data.item():
                    self.held.add(name)
            found.append(name)
        return tuple(found)

    def _control(self, step: HostStep) -> Branches | Repetition:
        op, node = step.node.op, step.node
        assert isinstance(op, Control)
        how = op.iterations(len(step.inputs), [v.type for v in node.outputs])
        outputs = tuple(step.outputs)
        self._named(step.outputs, node.outputs)
        if how is None:
            chooser, *captured = self._named(step.inputs, node.inputs)
            first, second = (self._body(body) for body in step.bodies.values())
            return Branches(chooser, tuple(captured), outputs, (first, second))
        (body,) = step.bodies.values()
        operands = self._named(step.inputs[how.n_ahead :], node.inputs[how.n_ahead :])
        made = self._body(body, how.is_counted)
        if step.is_led:  # what the next call is to begin with, read or not
            states = zip(step.outputs[: how.n_states], node.outputs[: how.n_states], strict=True)
            names = [name or f"{made.inputs[how.n_ahead + i]} at the end" for i, (name, _) in enumerate(states)]
            self._named(names, node.outputs[: how.n_states])
            apart = [f"{name} as operand {i}" for i, name in enumerate(operands)]  # a state may be captured, too
            operands = self._named(apart, node.inputs[how.n_ahead :])
            return Repetition(how, None, None, operands, (*names, *outputs[how.n_states :]), made, True)
        condition: str | None = None
        if how.is_counted:
            condition = next(iter(self._named(step.inputs[1:2], node.inputs[1:2])), None)
            trips = number_of(node.inputs[0])
        else:
            whole = self.types[operands[how.n_states]]
            trips = whole.dims[how.scanned[0].axis_of(whole.rank)]
        return Repetition(how, trips, condition, operands, outputs, made)

    def _body(self, block: Block, is_counted: bool = False) -> Body:
        inputs = self._named(block.inputs, block.graph.inputs)
        outputs = list(self._named(block.outputs, block.graph.outputs))
        if is_counted and outputs[0] in self.held:  # it is what the body was given: the condition held
            outputs[0] = inputs[1]
        return Body(inputs, tuple(outputs), tuple(self._stages(block)))

    def _stages(self, block: Block) -> Iterator[Stage]:
        for step in block.steps:
            if isinstance(step, NativeStep):
                inputs = self._named(step.inputs, step.graph.inputs)
                outputs = self._named(step.outputs, step.graph.outputs)
                yield Kernels(self.numbers[id(step)], inputs, outputs)
            else:
                yield self._control(step)


def _is_brief(step: HostStep, sizes: Mapping[str, int]) -> bool:
    """Whether the kernels of the bodies take less than it takes cores to meet after them."""
    costs = [node_cost(node, sizes) for inner in native_steps([step]) for node in inner.graph]
    kernels = [cost for cost in costs if cost.kind != "view"]
    return sum(cost.flops for cost in kernels) < LEAST_FLOPS * len(kernels)


__all__ = ["native_programs"]
