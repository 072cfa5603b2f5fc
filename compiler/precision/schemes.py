"""Schemes of 8 bits: a graph, its channels equalised or not, with what its activations were observed to hold.

Owns how a scheme follows from the observed part of the data. Knows no held-back data and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InvalidData
from ..ir.graph import Graph
from ..ir.types import noting_positive
from ..options import AUTO, CompileOptions
from ..passes.base import Pipeline
from ..passes.dataflow.dead_code import DeadCode
from ..passes.quantize.affine import ValueRange
from ..passes.quantize.equalise_channels import EqualiseChannels
from ..passes.quantize.layers import layers_of
from .metrics import Metric
from .quantized import quantized
from .ranges import METHODS, Observations
from .samples import Request
from .trials import results, trial_plan


@dataclass(frozen=True)
class Scheme:
    """What a choice of layers needs to be quantised.

    Attributes:
        graph: in f32. ranges, means: of its activations; see the pass `Quantize`. how: one of METHODS.
        reach: name of what layers read → f64[channels], the greatest magnitude of each.
        n_equalised: activations whose channels were equalised.
    """

    graph: Graph
    ranges: Mapping[str, ValueRange]
    means: Mapping[str, np.ndarray]
    how: str
    reach: Mapping[str, np.ndarray]
    n_equalised: int = 0

    def quantized(self, left_out: Collection[str], light: Collection[str] = ()) -> Graph:
        """A copy of the graph with all layers but some in 8 bits."""
        return quantized(self.graph, self.ranges, self.means, left_out, light)

    def equalised(self, requests: tuple[Request, ...], options: CompileOptions, inserts: bool) -> Scheme | None:
        """The scheme of the same graph with even channels; None where nothing changes.

        Args:
            requests: the observed ones. inserts: whether nodes may be added for it: see the pass `EqualiseChannels`.
        """
        copy = self.graph.clone()
        before = {layer.name: layer.node.inputs[1] for layer in layers_of(copy)}
        with noting_positive(copy.positive):
            Pipeline([EqualiseChannels(self.reach, inserts), DeadCode()]).run(copy)
        changed = {layer.activations for layer in layers_of(copy) if layer.node.inputs[1] is not before[layer.name]}
        if not changed:
            return None
        seen = Observations(copy, requests, options)
        return replace(self, graph=copy, ranges=seen.ranges(self.how), means=seen.means, n_equalised=len(changed))


def observed_scheme(graph: Graph, requests: tuple[Request, ...], metric: Metric, options: CompileOptions,
                    asked: str) -> Scheme:  # fmt: skip
    """The scheme of a graph as it is, with ranges found in the way that the options name, or in the best one.

    Args:
        requests: the observed ones. asked: the precision; only `auto` leaves out layers that tell no range.

    Raises:
        InvalidData: activations that are not finite, or the same number everywhere.
    """
    seen, layers = Observations(graph, requests, options), layers_of(graph)
    fixed = [layer for layer in layers if layer.activations.name in seen.constant]
    if fixed and (asked != AUTO or len(fixed) == len(layers)):
        raise InvalidData(
            "activations that are the same number everywhere tell no range", where=fixed[0].node.where,
            expected="calibration data as the model sees it in use", found=f"{len(fixed)} such layers",
            hint="give other data, or --precision auto, which leaves such layers in fp32")  # fmt: skip
    ways = [options.ranges] if options.ranges in METHODS else list(METHODS)
    schemes = [Scheme(graph, seen.ranges(how), seen.means, how, seen.reach) for how in ways]
    if len(schemes) == 1:
        return schemes[0]
    exact = list(results(trial_plan(graph, options), requests))
    drops = [_drop(scheme, exact, requests, metric, options) for scheme in schemes]
    return schemes[drops.index(min(drops))]


def _drop(scheme: Scheme, exact: list[dict[str, np.ndarray]], requests: tuple[Request, ...], metric: Metric,
          options: CompileOptions) -> float:  # fmt: skip
    """What is lost with it, in the finer measure, on the data that it was found on."""
    found = list(results(trial_plan(scheme.quantized(()), options), requests))
    return metric.noise(exact, found, requests)


__all__ = ["Scheme", "observed_scheme"]
