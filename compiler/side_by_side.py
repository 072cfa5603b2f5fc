"""A model at every precision: weights, predicted and measured time, what is lost, in a table.

Owns which precisions are looked at, and what a row says of one that cannot be had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import AccuracyMismatch, ParaxError, UsageError
from .driver import compile_model
from .frontend.exporter import to_onnx
from .frontend.parse import Source
from .options import BYTES, FULL, HALF, WEIGHTS_ONLY, CompileOptions
from .planning import planner_of
from .precision.decision import Decided
from .precision.gates import decided
from .precision.speed import Gain

LOWER = (HALF, BYTES, *WEIGHTS_ONLY)
ANY_DROP = 1.0  # all of it: what is lost is shown, and nothing refused for it

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class PrecisionRow:
    """A precision.

    Attributes:
        n_layers, n_lowered: products by constants, and those that have the precision.
        weights_nbytes: of the plan. predicted_seconds: of a request, by the planner for what it would choose.
        gain: measured beside f32. drop: lost by `metric` on data held back. None: f32's own row, or not known.
        reason: why there is no such plan; "": there is.
    """

    precision: str
    n_layers: int = 0
    n_lowered: int = 0
    weights_nbytes: int = 0
    predicted_seconds: float | None = None
    gain: Gain | None = None
    drop: float | None = None
    metric: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def side_by_side(model: Source, options: CompileOptions, progress: Progress) -> list[PrecisionRow]:
    """Compile, predict and measure a model in f32 and at each lower precision.

    Args:
        options: with calibration data; the precision and the budget are not looked at.

    Raises:
        UsageError: no calibration data. ParaxError: the model cannot be compiled in f32.
    """
    if options.calibration is None:
        raise UsageError("what a precision loses is measured on data", where="--precisions", found="no data",
                         expected="--calibrate DATA", hint="save a .npz file with an array for each input")  # fmt: skip
    plain = replace(options, precision=FULL, calibration=None)
    exact = compile_model(model, plain)
    rows = [PrecisionRow(FULL, weights_nbytes=exact.manifest.weights.size, predicted_seconds=_predicted(model, plain))]
    for number, precision in enumerate(LOWER):

        def tell(what: str, done: float, number: int = number, precision: str = precision) -> None:
            progress(f"{precision}: {what}", (number + done) / len(LOWER))

        asked = replace(options, precision=precision, max_accuracy_drop=ANY_DROP)
        try:
            rows.append(_row(decided(model, asked, tell), plain))
        except (AccuracyMismatch, UsageError) as error:
            rows.append(PrecisionRow(precision, reason=error.message))
    return rows


def _row(found: Decided, plain: CompileOptions) -> PrecisionRow:
    record = found.record
    if record.taken == FULL:
        return PrecisionRow(record.asked, record.n_layers, reason=record.reason)
    halves = record.taken == HALF
    predicted = _predicted(to_onnx(found.graph), replace(plain, precision=HALF) if halves else plain)
    return PrecisionRow(record.taken, record.n_layers, record.n_quantized, found.plan.manifest.weights.size, predicted,
                        record.gain, record.drop, record.metric)  # fmt: skip


def _predicted(model: Source, options: CompileOptions) -> float | None:
    """Seconds of a request by the planner's best arrangement; None where it cannot tell."""
    try:
        planner = planner_of(model, options)
        load = planner.load()
        choice = planner.choose(planner.rows(load), load).to_json()
    except ParaxError:
        return None
    return float(choice["candidates"][choice["chosen"]]["predicted"]["seconds"])


__all__ = ["LOWER", "PrecisionRow", "side_by_side"]
