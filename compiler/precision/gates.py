"""A model compiled at a lower precision, if both gates let it: accuracy within the budget, and faster than f32.

`int8` quantises every layer and `bf16` rounds every product, or says why not; `auto` quantises those layers that keep
the accuracy, or rounds all products, whichever is faster, and leaves f32 where neither is measured to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...env import NATIVE
from ...errors import AccuracyMismatch, IncompatiblePlan, UsageError
from ...runtime.plan import Plan
from ..compilation import Compilation
from ..driver import compile_graph, compile_model, quiet
from ..frontend.parse import Source
from ..ir.graph import Graph
from ..optimisation import halved_layers, light_layers, prepared
from ..options import AUTO, BYTES, FULL, HALF, WEIGHTS_ONLY, CompileOptions
from ..passes.quantize.layers import layers_of, readers_of
from .decision import Decided, too_much
from .halves import Halved, halved, with_others_halved
from .halves_alone import losses_alone
from .layer_speed import slower_nodes
from .metrics import Metric, metric_named
from .quantized import check_quantizable
from .record import KEY, PrecisionRecord, blamed
from .samples import Samples, count, read_samples
from .schemes import Scheme, observed_scheme
from .search import LayerDrop, Search
from .speed import Gain, measured_gain
from .trials import results, trial_plan
from .weights_only import decided_weights

Progress = Callable[[str, float], None]
SLOWER = "8 bits are not faster here"


def decided(
    model: Source, options: CompileOptions, progress: Progress | None = None, *, writes_onnx: bool = False
) -> Decided:
    """Compile a model at the precision of the options, below fp32, with calibration data but for weights alone.

    Args:
        writes_onnx: only precisions that a model in ONNX can have: not bf16 with sums in f32.

    Raises:
        UsageError: calibration data, metric or targets that do not fit. InvalidData: activations that tell nothing.
        AccuracyMismatch: one that was asked for loses more than the budget; which layers are to blame.
        ParaxError: as parax.compile.
    """
    if options.precision in WEIGHTS_ONLY:
        return decided_weights(model, options, progress or quiet)
    return _Decision(model, options, progress or quiet, writes_onnx).made()


@dataclass(frozen=True)
class _Trial:
    """A choice of layers. left_out: names of those in f32. drop, at_most: by the metric, on held-back data.

    Attributes:
        gain: None where not measured.
    """

    left_out: frozenset[str]
    graph: Graph
    plan: Plan
    drop: float
    at_most: float
    gain: Gain | None = None


class _Decision:
    """The way to one decision: what was read, observed and compiled so far."""

    def __init__(self, model: Source, options: CompileOptions, progress: Progress, writes_onnx: bool) -> None:
        assert options.calibration is not None
        self.model, self.asked, self.progress, self.writes_onnx = model, options.precision, progress, writes_onnx
        self.options = replace(options, precision=FULL, calibration=None)
        run = Compilation(self.options, quiet)
        progress("import", 0.0)
        self.graph = prepared(model, run)
        check_quantizable(self.graph)
        is_script = options.metric.endswith(".py")
        self.samples: Samples = read_samples(options.calibration, self.graph, takes_others=is_script)
        self.metric: Metric = metric_named(options.metric, has_labels=self.samples.has_labels)
        self.drops: tuple[LayerDrop, ...] = ()
        self.n_layers = len(layers_of(self.graph))
        self.light = light_layers(self.graph, self.options)

    def made(self) -> Decided:
        """The decision."""
        self.f32_trial = trial_plan(self.graph, self.options)
        self.exact = list(results(self.f32_trial, self.samples.held_back))
        if self.asked != HALF:
            self.progress("observe ranges", 0.1)
            self.scheme: Scheme = observed_scheme(self.graph, self.samples.observed, self.metric, self.options,
                                                  self.asked)  # fmt: skip
        self.progress("compile fp32", 0.2)
        f32 = compile_model(self.model, self.options)
        if self.asked == HALF:
            return self._in_halves(self._halved(self.graph, f32))
        found = self._in_bytes(f32)
        if self.asked == AUTO and not self.writes_onnx:
            if found.record.taken == BYTES and halved_layers(found.graph, self.options):
                found = with_others_halved(found, self._halved(found.graph, f32), self.options.max_accuracy_drop)
            found = self._with_halves(found, self._halved(self.graph, f32))
        return Decided(found.plan.with_provenance(**{KEY: found.record.to_json()}), found.graph, found.record)

    def _halved(self, graph: Graph, f32: Plan) -> Halved:
        """All products of f32 in bf16, and what that loses and gains."""
        self.progress("compile bf16", 0.4)
        found = halved(graph, self.options, self.metric, self.exact, self.samples)
        return replace(found, gain=self._gain(found.plan, f32))

    def _in_halves(self, found: Halved, beside: tuple[str, ...] = ()) -> Decided:
        """The plan in bf16. Raises AccuracyMismatch where it loses more than the budget."""
        options, samples = self.options, self.samples
        if found.drop > options.max_accuracy_drop:
            drops = losses_alone(self.graph, self.metric, samples.observed, options)
            raise self._too_much("products of bf16 lose", found.drop,
                                 f"most lose, each alone: {blamed(drops)}; --precision auto takes f32 then, or a "
                                 "larger --max-accuracy-drop")  # fmt: skip
        record = PrecisionRecord(
            self.asked, HALF, "", self.metric.name, options.max_accuracy_drop, found.drop, "", 0,
            count(samples.held_back), max(self.n_layers, found.n_layers), found.n_layers, gain=found.gain,
            beside=beside, at_most=found.at_most,
        )  # fmt: skip
        return Decided(found.plan.with_provenance(**{KEY: record.to_json()}), self.graph, record)

    def _with_halves(self, found: Decided, half: Halved) -> Decided:
        """What was decided of 8 bits, or bf16 where that keeps the accuracy and is faster than it and f32."""
        record = found.record
        least = record.gain.factor if record.taken != FULL and record.gain else 1.0
        keeps = half.at_most <= self.options.max_accuracy_drop
        if keeps and half.gain is not None and half.gain.is_faster and half.gain.factor > least:
            return self._in_halves(half, (f"{record.taken}: {record.gain}" if record.taken != FULL else record.reason,))
        return replace(found, record=replace(record, beside=(*record.beside, str(half))))

    def _in_bytes(self, f32: Plan) -> Decided:
        """What keeps the budget in 8 bits, or the plan in f32."""
        self.progress("compile int8", 0.4)
        trial = self._quantized(frozenset())
        if self._exceeds(trial) and self.light:
            self.light = frozenset()
            trial = self._quantized(frozenset())
        if self._exceeds(trial):
            trial = self._equalised(trial)
        trial = self._measured(trial, f32)
        if self.asked == AUTO:
            trial = self._without_slower_layers(trial, f32)
            if not _is_faster(trial.gain):
                return self._in_f32(f32, f"{SLOWER}: {trial.gain}", trial)
        slower = trial.left_out
        if self._exceeds(trial):
            trial = self._searched(trial, slower)
            if len(trial.left_out) >= self.n_layers:
                return self._in_f32(f32, "no layer keeps the budget of accuracy", trial)
            trial = self._measured(trial, f32)
            if not _is_faster(trial.gain):
                return self._in_f32(f32, f"the layers that keep the accuracy are not faster: {trial.gain}", trial)
        return Decided(trial.plan, trial.graph, self._record(BYTES, "", trial, slower))

    def _without_slower_layers(self, trial: _Trial, f32: Plan) -> _Trial:
        """The trial, or one that leaves those layers in f32 that are slower in 8 bits, if that is faster."""
        self.progress("compare layers", 0.45)
        layers = {layer.node.name: layer.name for layer in readers_of(self.scheme.graph, self.scheme.ranges).layers}
        slow = slower_nodes(trial.graph, self.graph, layers.keys() - {""}, self.samples.observed, self.options)
        if not slow or len(slow) == len(layers):
            return trial
        other = self._measured(self._quantized(frozenset(layers[name] for name in slow)), f32)
        return other if trial.gain and other.gain and other.gain.factor > trial.gain.factor else trial

    def _searched(self, trial: _Trial, slower: frozenset[str]) -> _Trial:
        """What keeps the budget. Raises AccuracyMismatch where all layers were asked for."""
        n_left = 0
        self.progress("search", 0.5)
        search = Search(self.scheme, slower, self.samples.observed, self.metric, self.options)
        self.drops = tuple(search.by_drop(lambda what, share: self.progress(what, 0.5 + 0.3 * share)))
        if self.asked != AUTO:
            hint = (f"most lose, each alone: {blamed(self.drops)}; --precision auto leaves such layers in fp32, other "
                    "--ranges or more data may do, or a larger --max-accuracy-drop")  # fmt: skip
            raise self._too_much("8 bits lose", trial.drop, hint)
        while self._exceeds(trial) and n_left < len(self.drops):
            n_left = search.within(self.options.max_accuracy_drop, self.drops, n_left + 1)
            left = {each.layer for each in self.drops[:n_left]}
            if n_left == len(self.drops):
                left = {layer.name for layer in layers_of(self.graph)}
                return replace(trial, left_out=frozenset(left))
            trial = self._quantized(slower | left)
        return trial

    def _equalised(self, plain: _Trial) -> _Trial:
        """The trial, or one of the same layers with even channels that loses less; with added nodes if need be."""
        self.progress("equalise channels", 0.45)
        trial, scheme = plain, self.scheme
        for inserts in (False, True):
            even = scheme.equalised(self.samples.observed, self.options, inserts)
            if even is None or not self._exceeds(trial):
                continue
            before, self.scheme = self.scheme, even
            found = self._quantized(plain.left_out)
            if found.drop < trial.drop:
                trial = found
            else:
                self.scheme = before
        return trial

    def _quantized(self, left_out: frozenset[str]) -> _Trial:
        """All layers but some quantised, and what that loses on held-back data."""
        graph = self.scheme.quantized(left_out, self.light)
        plan = compile_graph(graph.clone(), self.options)
        here = plan if NATIVE in self.options.targets else trial_plan(graph, self.options)
        given = self.exact, list(results(here, self.samples.held_back)), self.samples.held_back
        return _Trial(left_out, graph, plan, self.metric.drop(*given), self.metric.at_most(*given))

    def _exceeds(self, trial: _Trial) -> bool:
        """Whether it loses more than the budget; `auto` takes care that other data does not, either."""
        lost = trial.at_most if self.asked == AUTO else trial.drop
        return lost > self.options.max_accuracy_drop

    def _measured(self, trial: _Trial, f32: Plan) -> _Trial:
        """The same, with what it gains."""
        return replace(trial, gain=self._gain(trial.plan, f32))

    def _gain(self, plan: Plan, f32: Plan) -> Gain | None:
        """None where the plan is for another machine, and nobody asked which one is faster."""
        self.progress("compare speed", 0.9)
        try:
            return measured_gain(plan, f32, self.samples.held_back[0], lambda what, _: self.progress(what, 0.9))
        except IncompatiblePlan as error:
            if self.asked != AUTO:
                return None
            raise UsageError(
                "auto measures which precision is faster, and this machine cannot run the plan", where="--target",
                expected="a target that runs here", found=", ".join(self.options.targets),
                hint="--precision int8 does not ask") from error  # fmt: skip

    def _in_f32(self, plan: Plan, reason: str, trial: _Trial) -> Decided:
        return Decided(plan, self.graph, self._record(FULL, reason, trial, frozenset()))

    def _record(self, taken: str, reason: str, trial: _Trial, slower: frozenset[str]) -> PrecisionRecord:
        options, samples = self.options, self.samples
        scheme = self.scheme
        n_quantized = len(readers_of(scheme.graph, scheme.ranges, trial.left_out).layers) if taken != FULL else 0
        in_f32 = tuple(each for each in self.drops if taken != FULL and each.layer in trial.left_out)
        return PrecisionRecord(
            self.asked, taken, reason, self.metric.name, options.max_accuracy_drop, trial.drop, scheme.how,
            count(samples.observed), count(samples.held_back), self.n_layers, n_quantized, len(slower), in_f32,
            trial.gain, n_equalised=scheme.n_equalised if taken != FULL else 0, at_most=trial.at_most,
        )  # fmt: skip

    def _too_much(self, what: str, drop: float, hint: str) -> AccuracyMismatch:
        return too_much(what, self.metric.name, count(self.samples.held_back), self.options.max_accuracy_drop, drop,
                        hint)  # fmt: skip


def _is_faster(gain: Gain | None) -> bool:
    return gain is not None and gain.is_faster


__all__ = ["Decided", "decided"]
