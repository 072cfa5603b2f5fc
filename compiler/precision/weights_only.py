"""A model whose products keep their weights in 4 or 8 bits: rounded to the nearest, judged where there is data.

No ranges are needed, so calibration data is not either; where it is given, the accuracy that is lost on its held-back
part is measured and must keep the budget, and the plan's speed is measured beside f32's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import AccuracyMismatch, IncompatiblePlan, UsageError
from ...runtime.plan import Plan
from ..compilation import Compilation
from ..driver import compile_graph, compile_model, quiet
from ..frontend.parse import Source
from ..ir.graph import Graph
from ..ir.types import noting_positive
from ..optimisation import prepared
from ..options import FULL, WEIGHTS_ONLY, CompileOptions
from ..passes.base import Pipeline
from ..passes.dataflow.dead_code import DeadCode
from ..passes.quantize.layers import Layer
from ..passes.quantize.quantize_weights import QuantizeWeights, rounded_blocks, weight_layers
from .decision import Decided, refuse_quantized
from .metrics import Metric, metric_named
from .record import KEY, PrecisionRecord, blamed, percent
from .samples import Request, count, read_samples
from .search import LayerDrop
from .speed import Gain, measured_gain
from .trials import NATIVE, results, trial_plan

Progress = Callable[[str, float], None]
MOST_BLAMED = 8  # layers that are tried alone: those whose weights are rounded most


@dataclass(frozen=True)
class _Judged:
    """What is lost on held-back requests, by a metric, and the plan's speed by f32's."""

    metric: Metric
    exact: Sequence[dict[str, np.ndarray]]
    held_back: Sequence[Request]
    drop: float
    gain: Gain | None


def decided_weights(model: Source, options: CompileOptions, progress: Progress) -> Decided:
    """Compile a model with the weights of its products rounded.

    Raises:
        UsageError: nothing to round; data or metric that do not fit. AccuracyMismatch: the budget is not kept; says
            which layers are to blame. ParaxError: as parax.compile.
    """
    plain = replace(options, precision=FULL, calibration=None)
    progress("import", 0.0)
    graph = prepared(model, Compilation(plain, quiet))
    refuse_quantized(graph)
    layers = weight_layers(graph)
    if not layers:
        raise UsageError("nothing to quantise", where="--precision", expected="MatMul or Gemm of f32 with constant "
                         "weights", found="none", hint="compile it at fp32")  # fmt: skip
    progress(f"compile {options.precision}", 0.2)
    rounded = with_rounded_weights(graph, options)
    plan = compile_graph(rounded.clone(), plain)
    judged = None
    if options.calibration is not None:
        judged = _judged(model, graph, rounded, plan, options, progress)
        if judged.drop > options.max_accuracy_drop:
            raise _too_much(graph, layers, judged, options)
    record = _record(options, len(layers), judged)
    return Decided(plan.with_provenance(**{KEY: record.to_json()}), rounded, record)


def with_rounded_weights(graph: Graph, options: CompileOptions, left_out: Collection[str] = ()) -> Graph:
    """A copy of a graph with the weights of all layers but some rounded as the options ask for."""
    copy = graph.clone()
    rounding = QuantizeWeights(WEIGHTS_ONLY[options.precision], options.weight_block, frozenset(left_out))
    with noting_positive(copy.positive):
        Pipeline([rounding, DeadCode()]).run(copy)
    return copy


def _judged(
    model: Source, graph: Graph, rounded: Graph, plan: Plan, options: CompileOptions, progress: Progress
) -> _Judged:
    assert options.calibration is not None
    plain = replace(options, precision=FULL, calibration=None)
    samples = read_samples(options.calibration, graph, takes_others=options.metric.endswith(".py"))
    metric, held_back = metric_named(options.metric, has_labels=samples.has_labels), samples.held_back
    progress("measure accuracy", 0.5)
    exact = list(results(trial_plan(graph, plain), held_back))
    here = plan if NATIVE in options.targets else trial_plan(rounded, plain)
    drop = metric.drop(exact, list(results(here, held_back)), held_back)
    gain = None
    if drop <= options.max_accuracy_drop:
        progress("compare speed", 0.8)
        try:
            gain = measured_gain(plan, compile_model(model, plain), held_back[0], quiet)
        except IncompatiblePlan:  # the plan is for another machine
            gain = None
    return _Judged(metric, exact, held_back, drop, gain)


def _too_much(graph: Graph, layers: Sequence[Layer], judged: _Judged, options: CompileOptions) -> AccuracyMismatch:
    drops = tuple(sorted(_alone(graph, layers, judged, options), key=lambda each: -each.noise))
    return AccuracyMismatch(
        f"{options.precision} loses too much by {judged.metric.name} on {count(judged.held_back)} samples held back",
        expected=f"{percent(options.max_accuracy_drop)} at most", found=percent(judged.drop),
        hint=f"most lose, each alone: {blamed(drops)}; a smaller --weight-block, int8-weights or a larger "
             "--max-accuracy-drop may do")  # fmt: skip


def _alone(
    graph: Graph, layers: Sequence[Layer], judged: _Judged, options: CompileOptions
) -> Iterator[LayerDrop]:
    """What layers lose where one alone is rounded: those whose weights change most."""
    plain = replace(options, precision=FULL, calibration=None)
    most = sorted(layers, key=lambda layer: -_change(layer, options))[:MOST_BLAMED]
    for layer in most:
        others = [other.name for other in layers if other is not layer]
        found = list(results(trial_plan(with_rounded_weights(graph, options, others), plain), judged.held_back))
        given = judged.exact, found, judged.held_back
        yield LayerDrop(layer.name, layer.node.where, judged.metric.drop(*given), judged.metric.noise(*given))


def _change(layer: Layer, options: CompileOptions) -> float:
    """A bound on how far weights move, by their mean size: half a step of the scales."""
    columns = layer.weights if layer.channels == 0 else layer.weights.T
    scales = rounded_blocks(columns, WEIGHTS_ONLY[options.precision], options.weight_block)[1]
    return float(np.abs(scales).mean() / max(np.abs(columns).mean(), np.finfo(np.float32).tiny))


def _record(options: CompileOptions, n_layers: int, judged: _Judged | None) -> PrecisionRecord:
    metric, drop, gain, n = ("", None, None, 0) if judged is None else (
        judged.metric.name, judged.drop, judged.gain, count(judged.held_back))  # fmt: skip
    return PrecisionRecord(
        options.precision, options.precision, "", metric, options.max_accuracy_drop, drop, "", 0, n, n_layers, n_layers,
        gain=gain, block_size=options.weight_block,
    )  # fmt: skip
