"""The graph of an optimiser's step: the gradients of all shards become one, and that moves the parameters.

    inputs   <group>.weights, <group>.gradient.<i>, <group>.<slot>, rate, step, scale
    outputs  <group>.weights.new, <group>.<slot>.new, norm

Parameters of a group lie in one flat vector, so that a model of hundreds of tensors has an update of a few operators.
Gradients are added in a fixed tree: no bit depends on who was first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Value
from ..ir.types import F32, TensorType
from .optimizers.base import Optimizer

RATE, STEP, SCALE, NORM = "rate", "step", "scale", "norm"
LEAST, MOST = 16, 4096  # numbers that are added one after the other, in vectors of sums
SCALAR = TensorType(F32, ())


@dataclass(frozen=True)
class Group:
    """Parameters that share their settings.

    Attributes:
        name: of the group. length: of its vector. lr_factor: what the learning rate is multiplied by.
        weight_decay: None: the optimiser's.
    """

    name: str
    length: int
    lr_factor: float = 1.0
    weight_decay: float | None = None


@dataclass(frozen=True)
class Clip:
    """What gradients are held to before they are used: each element, or the norm of all together."""

    value: float | None = None
    norm: float | None = None


def update_graph(optimizer: Optimizer, groups: Sequence[Group], n_shards: int, clip: Clip) -> Graph:
    """One step for every group.

    Args:
        n_shards: gradients per group; their sum times the input `scale` is the gradient.

    Returns:
        a graph as the file says; `rate` and `scale` f32[], `step` f32[] (1 at the first), `norm` f32[]: the Euclidean
        norm of the gradient of all groups, before clipping.
    """
    graph = Graph("update")
    g = GraphBuilder(graph, name="update")
    given = {group.name: _inputs(graph, optimizer, group, n_shards) for group in groups}
    rate, step, scale = (graph.add_input(name, SCALAR) for name in (RATE, STEP, SCALE))
    sums = {name: _tree(g, values[1 : n_shards + 1]) for name, values in given.items()}
    norm = g.Mul(_norm(g, list(sums.values())), g.Abs(scale))  # of what is there in memory if there is one shard
    outputs: dict[str, Value] = {}
    for group in groups:
        weights, slots = given[group.name][0], given[group.name][n_shards + 1 :]
        gradient = _clipped(g, g.Mul(sums[group.name], scale), norm, clip)
        own = g.Mul(rate, group.lr_factor) if group.lr_factor != 1 else rate
        decay = optimizer.weight_decay if group.weight_decay is None else group.weight_decay
        new, kept = optimizer.write(g, weights, gradient, dict(zip(optimizer.kept(), slots)), own, step, decay)
        outputs[f"{group.name}.weights.new"] = new
        outputs.update({f"{group.name}.{slot}.new": kept[slot] for slot in optimizer.kept()})
    outputs[NORM] = norm
    graph.set_outputs(list(outputs.values()), list(outputs))
    return graph


def _inputs(graph: Graph, optimizer: Optimizer, group: Group, n_shards: int) -> list[Value]:
    type_ = TensorType(F32, (group.length,))
    names = ["weights", *(f"gradient.{i}" for i in range(n_shards)), *optimizer.kept()]
    return [graph.add_input(f"{group.name}.{name}", type_) for name in names]


def _tree(g: GraphBuilder, values: Sequence[Value]) -> Value:
    """The sum, by halves."""
    if len(values) == 1:
        return values[0]
    half = (len(values) + 1) // 2
    return g.Add(_tree(g, values[:half]), _tree(g, values[half:]))


def _norm(g: GraphBuilder, gradients: Sequence[Value]) -> Value:
    return g.Sqrt(_tree(g, [_squares(g, gradient) for gradient in gradients]))


def _squares(g: GraphBuilder, x: Value) -> Value:
    """The sum of squares of a vector, f32[].

    By lines, then by lines of the lines' sums: no running sum is of more than MOST numbers, so that f32 is enough
    whatever the length (relative error below 1e-6 at 10⁸ elements), and every core has lines of its own.
    """
    parts, reduce = [], g.ReduceSumSquare
    while (length := _length(x)) > MOST:
        line = next((n for n in range(MOST // 2, LEAST - 1, -1) if length % n == 0), 0)
        if not line:  # copied; vectors of parameters, whose lengths are multiples of LEAST, come here as sums only
            line, rest = MOST // 4, length % (MOST // 4)
            x, odd = g.Split(x, np.array([length - rest, rest]), axis=0, n_outputs=2)
            parts.append(reduce(odd, keepdims=0))
        x = reduce(g.Reshape(x, np.array([length // line, line])), np.array([1]), keepdims=0)
        reduce = g.ReduceSum
    return _tree(g, [reduce(x, keepdims=0), *reversed(parts)])


def _length(x: Value) -> int:
    (length,) = x.tensor.dims
    assert isinstance(length, int)
    return length


def _clipped(g: GraphBuilder, gradient: Value, norm: Value, clip: Clip) -> Value:
    """As torch.nn.utils clips: a norm above the limit is brought to it, NaN stays NaN."""
    if clip.norm is not None:
        factor = g.Min(g.Div(g.const(clip.norm), g.Add(norm, 1e-6)), g.const(1.0))
        gradient = g.Mul(gradient, factor)
    if clip.value is not None:
        gradient = g.Clip(gradient, g.const(-clip.value), g.const(clip.value))
    return gradient
