"""What was decided about a plan's precision, and why: kept in the plan's provenance, and told in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...errors import CorruptPlan
from ..options import FULL, HALF, ROUNDED_WEIGHTS, WEIGHTS_ONLY

if TYPE_CHECKING:
    from .search import LayerDrop
    from .speed import Gain

KEY, LINES = "precision", "lines"  # of a plan's provenance, and of what stands there
MOST_TOLD = 5  # layers


@dataclass(frozen=True)
class PrecisionRecord:
    """A decision.

    Attributes:
        asked, taken: the precision asked for, and that of the plan. reason: why it is not lower; "" where it is.
        metric: in words. budget, drop: the most that may be lost, and what is, on held-back data; None: not measured.
        ranges: how activations' ranges were found. n_observed, n_held_back: samples of either part.
        n_layers, n_quantized: products with constant weights, and those of the plan in 8 bits, or of bf16.
        n_slower: layers that stay in f32 as they are faster there.
        in_f32: layers that stay in f32 to keep the budget, with what each would lose alone.
        gain: the plan's speed by the f32 plan's; None: not measured.
        beside: what else was tried, and what it gave.
        n_equalised: activations whose channels were equalised, where 8 bits lost too much without.
        block_size: of the weights that share a scale, where weights alone are rounded; 0: activations are, too.
        rounding: the way in which these are rounded.
        at_most: what other data loses at most, in about 19 of 20 cases; None: not measured.
        n_halved: layers in bf16 beside those in 8 bits; they are not in f32, whatever keeps them out of 8 bits.
    """

    asked: str
    taken: str
    reason: str
    metric: str
    budget: float
    drop: float | None
    ranges: str
    n_observed: int
    n_held_back: int
    n_layers: int
    n_quantized: int
    n_slower: int = 0
    in_f32: tuple[LayerDrop, ...] = ()
    gain: Gain | None = None
    beside: tuple[str, ...] = ()
    block_size: int = 0
    n_equalised: int = 0
    rounding: str = ""
    at_most: float | None = None
    n_halved: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON values; a drop that is not finite is None."""
        finite = [{**asdict(each), "drop": _finite(each.drop), "noise": _finite(each.noise)} for each in self.in_f32]
        drop = None if self.drop is None else _finite(self.drop)
        at_most = None if self.at_most is None else _finite(self.at_most)
        return {**asdict(self), "in_f32": finite, "drop": drop, "at_most": at_most, LINES: list(self.lines())}

    def lines(self) -> Iterator[str]:
        """For people, a line each."""
        kinds = {HALF: "of bf16", ROUNDED_WEIGHTS: "rounded to fp16"}
        kind = kinds.get(self.taken, f"in {WEIGHTS_ONLY.get(self.taken, 8)} bits")
        layers = f"{self.n_quantized} of {self.n_layers} layers {kind}"
        if self.taken in WEIGHTS_ONLY:
            way = "" if self.rounding == "nearest" else f", rounded by {self.rounding}"
            layers = f"the weights of {layers}" + f", a scale for each {self.block_size}{way}" * (self.block_size > 0)
        yield f"precision {self.taken}: {layers if self.taken != FULL else self.reason}"
        if self.drop is not None:
            ranges = f"; ranges by {self.ranges} of {self.n_observed} others" if self.ranges else ""
            says_more = self.at_most is not None and self.at_most != self.drop
            likely = f" (of other data {percent(self.at_most or 0.0)} at most)" if says_more else ""
            yield (f"accuracy: {percent(self.drop)} lost by {self.metric} on {self.n_held_back} samples held back"
                   f"{likely}, {percent(self.budget)} may be{ranges}")  # fmt: skip
        if self.n_equalised:
            yield f"channels equalised: of {self.n_equalised} activations"
        other = HALF if self.n_halved else FULL
        if self.n_halved:
            yield f"in bf16: {self.n_halved} layers beside those in 8 bits"
        if self.n_slower:
            yield f"in {other} for speed: {self.n_slower} layers"
        if self.in_f32:
            yield f"in {other} for accuracy: {blamed(self.in_f32)}"
        rest = self.n_layers - self.n_quantized - len(self.in_f32) - self.n_slower
        if self.taken == ROUNDED_WEIGHTS and rest:
            yield f"in {FULL}: {rest} layers with weights that fp16 has no numbers near"
        elif self.taken not in (FULL, HALF) and rest:
            yield f"in {other} for want of a range: {rest} layers whose activations never changed"
        if self.gain is not None:
            yield f"speed: {self.gain}"
        for each in self.beside:
            yield f"tried besides: {each}"


def told(provenance: Mapping[str, Any]) -> list[str]:
    """What a plan says of its precision, a line each; none where it was compiled in f32 as it is.

    Raises:
        CorruptPlan: what stands there is no record.
    """
    record = provenance.get(KEY)
    if record is None:
        return []
    lines = record.get(LINES) if isinstance(record, dict) else None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise CorruptPlan("no record of a precision", where=f"manifest.provenance.{KEY}", found=repr(record)[:200])
    return lines


def percent(share: float) -> str:
    """0.00123 → "0.123 %"."""
    return f"{100 * share:.3g} %"


def blamed(layers: tuple[LayerDrop, ...]) -> str:
    """Some layers and what each loses alone, in words."""
    shown = ", ".join(f"{each.where} ({percent(each.drop)})" for each in layers[:MOST_TOLD])
    return f"{shown}, and {len(layers) - MOST_TOLD} more" if len(layers) > MOST_TOLD else shown


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
