"""What a model computes in f16 is computed and kept in f32, and rounded where f16 is asked for from outside.

No CPU that parax serves multiplies f16 faster than f32 with sums as exact; between operators, f16 would cost a rounding
each and shut out every algorithm and fusion made for f32. Owns which nodes change and where values stay f16. ONNX
Runtime does the same on CPUs (its `InsertCastTransformer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops import work_rules
from ...ir.ops.base import Composite, Contraction, Control, Host, Movement
from ...ir.types import F16, F32, TensorType
from ..base import DataflowPass
from ..rewrite import Rewriter

MOVING = (work_rules.moves, work_rules.looks_up, work_rules.selects)


@dataclass(frozen=True)
class WidenHalves(DataflowPass):
    """Operators from f16 to f16 work in f32; casts stand where a value meets inputs, outputs and what stays f16.

    What only moves values does so in the type that they come in: tables stay f16 in memory, and so do caches, which
    are inputs that something computed is joined to; products and composite operators read these as they are.

    before: %1 = Relu(%x); %2 = Gather(%t, %i); %y = MatMul(%1, %2)
    after:  %1 = Relu(Cast(%x)); %2 = Gather(%t, %i); %y = Cast(MatMul(%1, Cast(%2)))

    Attributes:
        rounds_halves: whether every operator's result is rounded to f16, as `--fp strict` has it: nothing is changed.
    """

    rounds_halves: bool = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        if self.rounds_halves or not any(_is_half(v) for v in graph.values()):
            return False
        widening = _Widening(rw)
        return any([widening.visit(node) for node in graph.nodes_in_order()])


class _Widening:
    """What is known of a graph's f16 values while its nodes are visited in order."""

    def __init__(self, rw: Rewriter) -> None:
        self.rw = rw
        self.wide: dict[Value, Value] = {}  # a value → the same in f32
        self.computed: set[Value] = set()  # values whose f32 form was not rounded to f16
        self.given = {v for v in rw.graph.inputs if _is_half(v)}  # inputs, and what was moved of one alone
        self.caches: set[Value] = set()  # inputs with something computed in them, and what was moved of them

    def visit(self, node: Node) -> bool:
        """Lets one node work in f32, where it is one that gains; True iff it does."""
        operands = [v for v in node.inputs if v is not None and _is_half(v) and v.data is None]
        if not any(_is_half(v) for v in node.outputs) or not any(v is not None and _is_half(v) for v in node.inputs):
            return False
        moves = isinstance(node.op, Movement) or type(node.op).work in MOVING
        if moves and not (operands and all(v in self.computed for v in operands)):
            self._follow(node, operands)
            return False
        if isinstance(node.op, (Control, Host)) or not node.op.deterministic or not _accepts(node):
            return self.rw.no_match("is not computed in f32", node)
        if isinstance(node.op, (Contraction, Composite)) and self._reads_a_cache(node, operands):
            return self.rw.no_match("reads a cache of f16", node)
        return self._widen(node)

    def _follow(self, node: Node, operands: Sequence[Value]) -> None:
        """Notes what a movement that stays f16 makes of inputs."""
        outputs = [v for v in node.outputs if _is_half(v)]
        joined = any(v in self.given for v in operands) and not all(v in self.given for v in operands)
        if joined or any(v in self.caches for v in operands):
            self.caches.update(outputs)
        elif operands and all(v in self.given for v in operands):
            self.given.update(outputs)

    def _reads_a_cache(self, node: Node, operands: Sequence[Value]) -> bool:
        if isinstance(node.op, Composite) and any(v in self.given for v in operands if v is not node.inputs[0]):
            return True
        return any(v in self.caches for v in operands)

    def _widen(self, node: Node) -> bool:
        new = self.rw.graph.add_node(
            node.op, [self._widened(v, node) for v in node.inputs], before=node, name=node.name,
            n_outputs=len(node.outputs),
        )  # fmt: skip
        if not all(_is_widened(a, b) for a, b in zip(node.outputs, new.outputs, strict=True)):
            self.rw.erase(new)
            return self.rw.no_match("has results of another type in f32", node)
        results, g = [], self.rw.before(node)
        for old, value in zip(node.outputs, new.outputs, strict=True):
            if _is_half(old):
                rounded = g.Cast(value, to=F16)
                self.wide[rounded] = value
                self.computed.add(rounded)
                value = rounded
            results.append(value)
        self.rw.replace(node, results)
        return True

    def _widened(self, value: Value | None, node: Node) -> Value | None:
        """A value in f32, in front of a node."""
        if value is None or not _is_half(value):
            return value
        if value not in self.wide:
            g = self.rw.before(node)
            self.wide[value] = (
                g.Cast(value, to=F32) if value.data is None else g.const(value.data.astype(np.float32))
            )
        return self.wide[value]


def _is_half(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype == F16


def _accepts(node: Node) -> bool:
    """Whether its operator takes f32 where it reads f16."""
    specs = [node.op.signature.input_spec(i) for i in range(len(node.inputs))]
    return all(
        v is None or not _is_half(v) or spec.group.accepts(TensorType(F32, v.tensor.shape))
        for spec, v in zip(specs, node.inputs, strict=True)
    )


def _is_widened(old: Value, new: Value) -> bool:
    """Whether one is the other's type, with f32 in the place of f16."""
    if not isinstance(old.type, TensorType) or not isinstance(new.type, TensorType):
        return bool(old.type == new.type)
    return new.type.shape == old.type.shape and new.type.dtype == (F32 if _is_half(old) else old.type.dtype)
