"""Ways to round weights alone: to the nearest numbers, or as the observed activations say.

Owns the ways and their choice on observed data. Knows no held-back data and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..ir.graph import Graph
from ..ir.types import noting_positive
from ..options import ROUNDED_WEIGHTS, WEIGHTS_ONLY, CompileOptions
from ..passes.base import Pass, Pipeline
from ..passes.dataflow.dead_code import DeadCode
from ..passes.quantize.compensated import GREATEST_DEPTH
from ..passes.quantize.equalise_channels import EqualiseChannels
from ..passes.quantize.layers import Layer
from ..passes.quantize.quantize_weights import QuantizeWeights, weight_layers
from ..passes.quantize.round_weights import RoundWeights, fp16_layers
from .metrics import Metric
from .observing import Observing
from .samples import Request
from .trials import results, trial_plan

NEAREST, GPTQ, AWQ = "nearest", "GPTQ", "AWQ"
SHARE = 0.5  # the exponent of a channel's mean magnitude that its weights are multiplied by, as a rule best in AWQ


@dataclass(frozen=True)
class Rounding:
    """A way to round.

    Attributes:
        how: one of NEAREST, GPTQ, AWQ. graph: whose weights are rounded. moments: see the pass `QuantizeWeights`.
    """

    how: str
    graph: Graph
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)

    def rounded(self, options: CompileOptions, left_out: Collection[str] = ()) -> Graph:
        """A copy of the graph with the weights of all layers but some rounded as the options ask for."""
        if options.precision == ROUNDED_WEIGHTS:
            return _changed(self.graph, RoundWeights(frozenset(left_out)))
        bits = WEIGHTS_ONLY[options.precision]
        return _changed(self.graph, QuantizeWeights(bits, options.weight_block, frozenset(left_out), self.moments))


def rounds(graph: Graph, options: CompileOptions) -> list[Layer]:
    """The products whose weights are rounded as the options ask for."""
    return fp16_layers(graph) if options.precision == ROUNDED_WEIGHTS else weight_layers(graph)


def best_rounding(
    graph: Graph, requests: Sequence[Request], metric: Metric, options: CompileOptions, plain: CompileOptions
) -> Rounding:
    """The way that loses least on the observed requests, in the metric's finer measure.

    Args:
        options: that name bits and block. plain: the same in f32, without data.
    """
    ways = [Rounding(NEAREST, graph), *_informed(graph, requests, plain)]
    exact = list(results(trial_plan(graph, plain), requests))

    def drop(way: Rounding) -> float:
        return metric.noise(exact, list(results(trial_plan(way.rounded(options), plain), requests)), requests)

    return min(ways, key=drop)


def _informed(graph: Graph, requests: Sequence[Request], plain: CompileOptions) -> list[Rounding]:
    """The ways that ask what activations hold. A product of more than GREATEST_DEPTH inputs is rounded to the nearest.

    The sums are kept in f32 for want of room: the moments of 4096 inputs take 64 MiB.
    """
    values = list(dict.fromkeys(layer.activations for layer in weight_layers(graph)))
    moments: dict[str, np.ndarray] = {}
    means: dict[str, np.ndarray] = {}
    counts = dict.fromkeys((value.name for value in values), 0)
    for name, array in Observing(graph, values, requests, plain).arrays():
        lines = array.reshape(-1, array.shape[-1])
        means[name] = means.get(name, 0.0) + np.abs(lines).sum(0, np.float64)
        counts[name] += len(lines)
        if lines.shape[1] <= GREATEST_DEPTH:
            moments[name] = moments.get(name, np.float32(0)) + lines.T @ lines
    usual = {name: total / max(1, counts[name]) for name, total in means.items()}
    found = [Rounding(GPTQ, graph, {n: m / np.float32(max(1, counts[n])) for n, m in moments.items()
                                    if np.isfinite(m).all()})]  # fmt: skip
    loud = {name: mean**SHARE for name, mean in usual.items() if np.isfinite(mean).all()}
    return [*found, Rounding(AWQ, _changed(graph, EqualiseChannels(loud, alone=True)))]


def _changed(graph: Graph, change: Pass) -> Graph:
    copy = graph.clone()
    with noting_positive(copy.positive):
        Pipeline([change, DeadCode()]).run(copy)
    return copy


__all__ = ["AWQ", "GPTQ", "NEAREST", "Rounding", "best_rounding", "rounds"]
