"""A model whose products keep their weights in 4, 8 or 16 bits, judged where there is data.

No ranges are needed, so calibration data is not either; where it is given, the accuracy that is lost on its held-back
part is measured and must keep the budget, and the plan's speed is measured beside f32's. Weights go to the nearest
numbers; where that loses too much, the observed part says which way to round loses least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...env import NATIVE
from ...errors import AccuracyMismatch, IncompatiblePlan, UsageError
from ...runtime.plan import Plan
from ..compilation import Compilation
from ..driver import compile_graph, compile_model, quiet
from ..frontend.parse import Source
from ..ir.graph import Graph
from ..optimisation import prepared
from ..options import FULL, ROUNDED_WEIGHTS, WEIGHTS_ONLY, CompileOptions
from ..passes.quantize.layers import Layer
from ..passes.quantize.quantize_weights import rounded_blocks, weight_layers
from .decision import Decided, too_much
from .metrics import Metric, metric_named
from .quantized import refuse_quantized
from .record import KEY, PrecisionRecord, blamed
from .samples import Samples, count, read_samples
from .search import LayerDrop
from .speed import Gain, measured_gain
from .trials import results, trial_plan
from .weight_rounding import NEAREST, Rounding, best_rounding, rounds

Progress = Callable[[str, float], None]
MOST_BLAMED = 8  # layers that are tried alone: those whose weights are rounded most


@dataclass(frozen=True)
class _Judged:
    """A way to round, the graph and the plan that it gives, and what that loses on held-back requests.

    Attributes:
        exact: f32's results of these. gain: the plan's speed by f32's; None: not measured.
    """

    metric: Metric
    samples: Samples
    exact: Sequence[dict[str, np.ndarray]]
    way: Rounding
    graph: Graph
    plan: Plan
    drop: float
    gain: Gain | None = None


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
    layers, n_layers = rounds(graph, options), len(weight_layers(graph))
    if not layers:
        raise UsageError("nothing to quantise", where="--precision", expected="MatMul or Gemm of f32 with constant "
                         "weights" + " below 65,520" * (options.precision == ROUNDED_WEIGHTS), found="none",
                         hint="compile it at fp32")  # fmt: skip
    progress(f"compile {options.precision}", 0.2)
    rounded = Rounding(NEAREST, graph).rounded(options)
    plan = compile_graph(rounded.clone(), plain)
    judged = None
    if options.calibration is not None:
        judged = _judged(graph, rounded, plan, options, progress)
        if judged.drop > options.max_accuracy_drop and options.precision != ROUNDED_WEIGHTS:
            judged = _rounded_better(judged, options, progress)
        if judged.drop > options.max_accuracy_drop:
            raise _too_much(layers, judged, options)
        rounded, plan = judged.graph, judged.plan
        progress("compare speed", 0.8)
        judged = replace(judged, gain=_gain(model, judged, plain))
    record = _record(options, n_layers, len(layers), judged)
    return Decided(plan.with_provenance(**{KEY: record.to_json()}), rounded, record)


def _judged(graph: Graph, rounded: Graph, plan: Plan, options: CompileOptions, progress: Progress) -> _Judged:
    """What rounding to the nearest loses."""
    assert options.calibration is not None
    plain = replace(options, precision=FULL, calibration=None)
    samples = read_samples(options.calibration, graph, takes_others=options.metric.endswith(".py"))
    metric = metric_named(options.metric, has_labels=samples.has_labels)
    progress("measure accuracy", 0.5)
    exact = list(results(trial_plan(graph, plain), samples.held_back))
    drop = _drop(metric, exact, samples, rounded, plan, plain)
    return _Judged(metric, samples, exact, Rounding(NEAREST, graph), rounded, plan, drop)


def _rounded_better(nearest: _Judged, options: CompileOptions, progress: Progress) -> _Judged:
    """The same, or what is lost in the way that loses least of the observed part."""
    progress("compare ways to round", 0.6)
    plain, samples = replace(options, precision=FULL, calibration=None), nearest.samples
    way = best_rounding(nearest.way.graph, samples.observed, nearest.metric, options, plain)
    if way.how == NEAREST:
        return nearest
    rounded = way.rounded(options)
    plan = compile_graph(rounded.clone(), plain)
    drop = _drop(nearest.metric, nearest.exact, samples, rounded, plan, plain)
    return replace(nearest, way=way, graph=rounded, plan=plan, drop=drop)


def _drop(metric: Metric, exact: Sequence[dict[str, np.ndarray]], samples: Samples, rounded: Graph, plan: Plan,
          plain: CompileOptions) -> float:  # fmt: skip
    """What a plan, or one of the same graph for this machine, loses of the held-back results."""
    here = plan if NATIVE in plain.targets else trial_plan(rounded, plain)
    return metric.drop(exact, list(results(here, samples.held_back)), samples.held_back)


def _gain(model: Source, judged: _Judged, plain: CompileOptions) -> Gain | None:
    """None where the plan is for another machine."""
    try:
        return measured_gain(judged.plan, compile_model(model, plain), judged.samples.held_back[0], quiet)
    except IncompatiblePlan:
        return None


def _too_much(layers: Sequence[Layer], judged: _Judged, options: CompileOptions) -> AccuracyMismatch:
    drops = tuple(sorted(_alone(layers, judged, options), key=lambda each: -each.noise))
    finer = "" if options.precision == ROUNDED_WEIGHTS else "a smaller --weight-block, int8-weights, fp16 or "
    hint = f"most lose, each alone: {blamed(drops)}; {finer}a larger --max-accuracy-drop may do"
    return too_much(f"{options.precision} loses", judged.metric.name, count(judged.samples.held_back),
                    options.max_accuracy_drop, judged.drop, hint)  # fmt: skip


def _alone(layers: Sequence[Layer], judged: _Judged, options: CompileOptions) -> Iterator[LayerDrop]:
    """What layers lose where one alone is rounded: those whose weights change most."""
    plain = replace(options, precision=FULL, calibration=None)
    most = sorted(layers, key=lambda layer: -_change(layer, options))[:MOST_BLAMED]
    for layer in most:
        others = [other.name for other in layers if other is not layer]
        held_back = judged.samples.held_back
        found = list(results(trial_plan(judged.way.rounded(options, others), plain), held_back))
        given = judged.exact, found, held_back
        yield LayerDrop(layer.name, layer.node.where, judged.metric.drop(*given), judged.metric.noise(*given))


def _change(layer: Layer, options: CompileOptions) -> float:
    """How far weights move, or the steps between numbers, by their mean size."""
    columns, tiny = layer.weights if layer.channels == 0 else layer.weights.T, np.finfo(np.float32).tiny
    if options.precision == ROUNDED_WEIGHTS:
        moved = np.abs(columns - columns.astype(np.float16).astype(np.float32))
    else:
        moved = np.abs(rounded_blocks(columns, WEIGHTS_ONLY[options.precision], options.weight_block)[1])
    return float(moved.mean() / max(np.abs(columns).mean(), tiny))


def _record(options: CompileOptions, n_layers: int, n_rounded: int, judged: _Judged | None) -> PrecisionRecord:
    precision, budget = options.precision, options.max_accuracy_drop
    block = 0 if precision == ROUNDED_WEIGHTS else options.weight_block
    if judged is None:
        return PrecisionRecord(precision, precision, "", "", budget, None, "", 0, 0, n_layers, n_rounded,
                               block_size=block, rounding=NEAREST)  # fmt: skip
    samples = judged.samples
    return PrecisionRecord(
        precision, precision, "", judged.metric.name, budget, judged.drop, "", count(samples.observed),
        count(samples.held_back), n_layers, n_rounded, gain=judged.gain, block_size=block, rounding=judged.way.how,
    )  # fmt: skip
