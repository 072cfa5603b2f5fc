"""What each product loses where it alone is of bf16, by one plan that computes every product both ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Node
from ..ir.types import BF16, BOOL, F32, TensorType
from ..optimisation import halved_layers
from ..options import CompileOptions
from .metrics import Metric
from .samples import Request
from .search import LayerDrop, some_requests
from .trials import results, trial_plan

PREFIX = "parax.halves."


def losses_alone(
    graph: Graph, metric: Metric, requests: Sequence[Request], options: CompileOptions
) -> tuple[LayerDrop, ...]:
    """Every product that the pass `RoundProducts` makes of bf16, the one that loses most first.

    Args:
        graph: in f32. requests: the first of them judge.
    """
    copy, given = graph.clone(), some_requests(requests)
    nodes = [node for node in halved_layers(copy, options) if node.graph is copy]
    names = [_switched(copy, node) for node in nodes]
    plan = trial_plan(copy, options)

    def run(on: str) -> list[dict[str, np.ndarray]]:
        chosen = {PREFIX + name: np.array(name == on) for name in names}
        return list(results(plan, [Request({**r.inputs, **chosen}, r.others, r.n_samples) for r in given]))

    exact, found = run(""), []
    for node, name in zip(nodes, names, strict=True):
        both = exact, run(name), given
        found.append(LayerDrop(name, node.where, metric.drop(*both), metric.noise(*both)))
    return tuple(sorted(found, key=lambda each: -each.noise))


def _switched(graph: Graph, node: Node) -> str:
    """Let an input choose between a product and its twin, whose operands are rounded to bf16; the result's name."""
    old, (x, w) = node.output, node.operands[:2]
    assert w.data is not None
    switch = graph.add_input(PREFIX + old.name, TensorType(BOOL, ()))
    g = GraphBuilder(graph, before=node, name=node.name)
    with np.errstate(over="ignore"):  # what is beyond the greatest bf16 becomes an infinity
        rounded = w.data.astype(BF16.numpy).astype(np.float32)
    halved = [g.Cast(g.Cast(x, to=BF16), to=F32), g.const(rounded), *node.inputs[2:]]
    twin = graph.add_node(node.op, halved, after=node, name=node.name)
    chosen = GraphBuilder(graph, after=twin, name=node.name).Where(switch, twin.output, old)
    graph.replace_all_uses_with(old, chosen)
    chosen.producer.set_input(2, old)
    return old.name


__all__ = ["losses_alone"]
