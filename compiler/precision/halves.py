"""A model's products in bf16, and what that loses and gains beside f32. Needs no ranges: bf16 has those of f32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...env import NATIVE
from ...runtime.plan import Plan
from ..driver import compile_graph
from ..ir.graph import Graph
from ..optimisation import halved_layers
from ..options import FULL, HALF, CompileOptions
from .decision import Decided
from .metrics import Metric
from .record import percent
from .samples import Samples
from .speed import LEAST_GAIN, Gain
from .trials import results, trial_plan


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
    return Halved(plan, metric.drop(*given), metric.at_most(*given), len(halved_layers(graph, options)))


def with_others_halved(found: Decided, half: Halved, budget: float) -> Decided:
    """A plan in 8 bits, or the one whose other layers are in bf16, where that keeps the budget and is faster.

    Args:
        half: of the graph in 8 bits. budget: of what other data loses at most.
    """
    record, gain = found.record, half.gain
    is_faster = gain is not None and gain.is_faster and (
        record.gain is None or gain.factor >= LEAST_GAIN * record.gain.factor)  # fmt: skip
    if half.at_most > budget or not is_faster:
        return replace(found, record=replace(record, beside=(f"the other layers in {half}",)))
    mixed = replace(record, drop=half.drop, at_most=half.at_most, gain=gain, n_halved=half.n_layers,
                    beside=(f"the other layers in {FULL}: {record.gain}",))  # fmt: skip
    return Decided(half.plan, found.graph, mixed)


__all__ = ["Halved", "halved", "with_others_halved"]
