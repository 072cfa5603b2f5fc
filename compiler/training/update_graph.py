"""The graph of an optimiser's step: the gradients of all shards become one, and that moves the parameters.

    inputs   <group>.weights, <group>.gradient.<i>, <group>.<slot>, rate, step, scale
             of a compact gradient its parts instead of <group>.gradient.<i>: <group>.indices and <group>.rows of a
             table, <group>.left and <group>.right of a layer
    outputs  <group>.weights.new, <group>.<slot>.new, <group>.gradient (of several shards: their sum), norm

Parameters of a group lie in one flat vector, so that a model of hundreds of tensors has an update of a few operators.
Gradients are added in a fixed tree, rows of one number in their order: no bit depends on who was first. A table's
gradient is not written out: the kernel that moves the table reads the sum of each row where it lies, or zeros.

Weights and slots may be written where they lie, sums over the first shard's gradient. With a norm that is not finite,
weights and slots stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Value
from ..ir.types import F32, I64, TensorType
from .factors import product, product_squared
from .optimizers.base import Optimizer, Terms
from .sums import sum_of_squares, tree

RATE, STEP, SCALE, NORM = "rate", "step", "scale", "norm"
AVERAGE = "average"  # the slot of the weights' moving average
SCALAR = TensorType(F32, ())


@dataclass(frozen=True)
class Matrix:
    """A parameter [rows, width] with a compact gradient, whose parts have these shapes: of all pieces of a batch."""

    rows: int
    width: int
    parts: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Group:
    """Parameters that share their settings.

    Attributes:
        name: of the group. sizes: elements of each tensor in its vector, in order, with what lies behind it.
        lr_scale: what the learning rate is multiplied by. weight_decay: None: the optimiser's.
        matrix: the group's only parameter, where its gradient is compact.
    """

    name: str
    sizes: tuple[int, ...]
    lr_scale: float = 1.0
    weight_decay: float | None = None
    matrix: Matrix | None = None

    @property
    def length(self) -> int:
        """Of the vector."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Clip:
    """What gradients are held to before they are used: each element, or the norm of all together."""

    value: float | None = None
    norm: float | None = None


def slots_of(optimizer: Optimizer, average: float | None) -> tuple[str, ...]:
    """What is kept per parameter."""
    return (*optimizer.kept(), *((AVERAGE,) if average is not None else ()))


def update_graph(
    optimizer: Optimizer, groups: Sequence[Group], n_shards: int, clip: Clip, average: float | None = None
) -> Graph:
    """One step for every group.

    Args:
        n_shards: gradients per group; their sum times the input `scale` is the gradient.
        average: a ← a + (1 - average) · (p - a) is kept of the new weights p as the slot `average`; None: it is not.

    Returns:
        a graph as the file says; `rate` and `scale` f32[], `step` f32[] (1 at the first), `norm` f32[]: the Euclidean
        norm of the gradient of all groups, before clipping.
    """
    graph = Graph("update")
    g = GraphBuilder(graph, name="update")
    slots = slots_of(optimizer, average)
    given = {group.name: _Given.of(graph, g, group, slots, n_shards) for group in groups}
    rate, step, scale = (graph.add_input(name, SCALAR) for name in (RATE, STEP, SCALE))
    norm = g.Sqrt(tree(g, [of.squared for of in given.values()]))
    norm = g.Mul(norm, g.Abs(scale))  # of what is there in memory if there is one shard
    is_finite = g.Less(norm, g.const(math.inf))  # false for NaN
    outputs: dict[str, Value] = {}
    for group in groups:
        weights, old = given[group.name].weights, given[group.name].slots
        gradient = _clipped(g, g.Mul(given[group.name].sum, scale), norm, clip)
        own = g.Mul(rate, group.lr_scale) if group.lr_scale != 1 else rate
        decay = optimizer.weight_decay if group.weight_decay is None else group.weight_decay
        new, kept = optimizer.write(g, weights, gradient, old, Terms(own, step, decay, group.sizes))
        if average is not None:
            kept[AVERAGE] = g.Add(old[AVERAGE], g.Mul(g.Sub(new, old[AVERAGE]), 1.0 - average))
        if n_shards > 1 and group.matrix is None:
            outputs[f"{group.name}.gradient"] = given[group.name].sum
            graph.donated[f"{group.name}.gradient"] = f"{group.name}.gradient.0"
        for slot, before, after in (("weights", weights, new), *((slot, old[slot], kept[slot]) for slot in slots)):
            outputs[f"{group.name}.{slot}.new"] = g.Where(is_finite, after, before)
            graph.donated[f"{group.name}.{slot}.new"] = before.name
    outputs[NORM] = norm
    graph.set_outputs(list(outputs.values()), list(outputs))
    return graph


@dataclass(frozen=True)
class _Given:
    """What the step of a group is made of.

    Attributes:
        sum: of the shards' gradients. squared: the sum of its elements' squares.
    """

    weights: Value
    slots: dict[str, Value]
    sum: Value
    squared: Value

    @classmethod
    def of(cls, graph: Graph, g: GraphBuilder, group: Group, slots: Sequence[str], n_shards: int) -> _Given:
        """Adds the inputs of the group to the graph."""
        matrix = group.matrix
        type_ = TensorType(F32, (group.length,) if matrix is None else (matrix.rows, matrix.width))

        def given(name: str, as_: TensorType = type_) -> Value:
            return graph.add_input(f"{group.name}.{name}", as_)

        weights = given("weights")
        if matrix is None:
            total = tree(g, [given(f"gradient.{i}") for i in range(n_shards)])
            squared = sum_of_squares(g, total)
        else:
            parts = {name: given(name, TensorType(I64 if name == "indices" else F32, shape))
                     for name, shape in matrix.parts.items()}  # fmt: skip
            total, squared = _written(g, parts, matrix.rows)
        return cls(weights, {name: given(name) for name in slots}, total, squared)


def _written(g: GraphBuilder, parts: Mapping[str, Value], n_rows: int) -> tuple[Value, Value]:
    """The gradient of a matrix from its parts, which the kernels that read it compute; and its sum of squares."""
    if "left" in parts:
        return product(g, parts["left"], parts["right"]), product_squared(g, parts["left"], parts["right"])
    first, more = g.RowChains(parts["indices"], rows=n_rows)
    sums = g.SumChains(parts["rows"], more)
    return g.RowsAt(sums, first), sum_of_squares(g, g.Reshape(sums, np.array([-1])))


def _clipped(g: GraphBuilder, gradient: Value, norm: Value, clip: Clip) -> Value:
    """As torch.nn.utils clips: a norm above the limit is brought to it, NaN stays NaN."""
    if clip.norm is not None:
        factor = g.Min(g.Div(g.const(clip.norm), g.Add(norm, 1e-6)), g.const(1.0))
        gradient = g.Mul(gradient, factor)
    if clip.value is not None:
        gradient = g.Clip(gradient, g.const(-clip.value), g.const(clip.value))
    return gradient
