"""A model's products in bf16, and what that loses and gains beside f32. Needs no ranges: bf16 has those of f32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...runtime.plan import Plan
from ..driver import compile_graph
from ..ir.graph import Graph
from ..options import HALF, CompileOptions
from ..passes.block.round_products import rounded_products
from .metrics import Metric
from .record import percent
from .samples import Samples
from .speed import Gain
from .trials import NATIVE, results, trial_plan


@dataclass(frozen=True)
class Halved:
    """A plan in bf16. drop, at_most: on held-back data. n_layers: products of bf16. gain: None where not measured."""

    plan: Plan
    drop: float
    at_most: float
    n_layers: int
    gain: Gain | None = None

    def __str__(self) -> str:
        speed = "" if self.gain is None else f", {self.gain}"
        return f"{HALF}: {percent(self.drop)} lost{speed}"


def halved(
    graph: Graph, options: CompileOptions, metric: Metric, exact: list[dict[str, np.ndarray]], samples: Samples
) -> Halved:
    """Compile a copy of a graph in bf16 and run it on the samples held back.

    Args:
        exact: what f32 gives for these.
    """
    plan = compile_graph(graph.clone(), replace(options, precision=HALF))
    here = plan if NATIVE in options.targets else trial_plan(graph, options, HALF)
    given = exact, list(results(here, samples.held_back)), samples.held_back
    return Halved(plan, metric.drop(*given), metric.at_most(*given), len(rounded_products(graph)))


__all__ = ["Halved", "halved"]
