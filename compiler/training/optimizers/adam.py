"""Adam, and AdamW, whose weight decay is not part of the gradient."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.builder import GraphBuilder
from ...ir.graph import Value
from ...ir.types import F32, F64
from .base import Optimizer, Slots, Terms, decayed, mixed


@dataclass(frozen=True)
class Adam(Optimizer):
    """p ← p - lr · m̂ / (√v̂ + eps), where m and v are the running means of g and g², and a hat divides by 1 - βᵗ.

    As torch.optim.Adam (Kingma and Ba, "Adam", 2015, algorithm 1); weight decay adds to the gradient.
    """

    name = "adam"
    slots = ("mean", "square")
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("beta1", "beta2"):
            self.require(field, 0, 1)
        self.require("eps", 0, 1)

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        return self.moved(g, parameter, decayed(g, gradient, parameter, terms.decay), slots, terms)

    def moved(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        """The step for a gradient that has its weight decay."""
        mean, deviation, left, kept = self._means(g, gradient, slots, terms)
        return g.Sub(parameter, g.Mul(g.Div(terms.rate, left), g.Div(mean, deviation))), kept

    def direction(
        self, g: GraphBuilder, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:  # fmt: skip
        """m̂ / (√v̂ + eps), and the new slots."""
        mean, deviation, left, kept = self._means(g, gradient, slots, terms)
        return g.Div(mean, g.Mul(deviation, left)), kept

    def _means(
        self, g: GraphBuilder, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, Value, Value, dict[str, Value]]:
        """m, √v̂ + eps, 1 - beta1ᵗ, and the new slots."""
        mean = mixed(g, slots["mean"], gradient, self.beta1)
        square = mixed(g, slots["square"], g.Mul(gradient, gradient), self.beta2)
        left, right = (one_minus_power(g, b, terms.step) for b in (self.beta1, self.beta2))
        deviation = g.Add(g.Div(g.Sqrt(square), g.Sqrt(right)), self.eps)
        return mean, deviation, left, {"mean": mean, "square": square}


def one_minus_power(g: GraphBuilder, base: float, step: Value) -> Value:
    """1 - base^step, f32[], by f64: of 0.999 the difference has lost four digits in f32 at the first steps."""
    power = g.Pow(g.const(base, F64), g.Cast(step, to=F64))
    return g.Cast(g.Sub(g.const(1.0, F64), power), to=F32)


@dataclass(frozen=True)
class AdamW(Adam):
    """As Adam, but lr · weight_decay of the parameter is taken off before (Loshchilov and Hutter, 2019)."""

    name = "adamw"
    weight_decay: float = 0.01

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        if terms.decay:
            parameter = g.Sub(parameter, g.Mul(parameter, g.Mul(terms.rate, terms.decay)))
        return self.moved(g, parameter, gradient, slots, terms)
