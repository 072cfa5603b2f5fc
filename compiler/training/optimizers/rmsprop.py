"""RMSprop and Adagrad: a gradient divided by the root of what its squares have been."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.builder import GraphBuilder
from ...ir.graph import Value
from .base import Optimizer, Slots, Terms, decayed, mixed


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """p ← p - lr · d with d = g / (√v + eps), where v is the running mean of g²; weight decay adds to the gradient.

    Centred, v - m² takes the place of v, where m is the running mean of g, and rounding below 0 counts as 0. With a
    momentum, b ← momentum · b + d takes the place of d.

    As torch.optim.RMSprop (Tieleman and Hinton, "Lecture 6.5", 2012; Graves, 2013, for the centred one).
    """

    name = "rmsprop"
    slots = ("square", "mean", "momentum")
    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("alpha", "eps", "momentum"):
            self.require(field, 0, 1)

    def kept(self) -> tuple[str, ...]:
        return ("square", *("mean",) * self.centered, *("momentum",) * bool(self.momentum))

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        gradient = decayed(g, gradient, parameter, terms.decay)
        spread = square = mixed(g, slots["square"], g.Mul(gradient, gradient), self.alpha)
        new = {"square": square}
        if self.centered:
            new["mean"] = mean = mixed(g, slots["mean"], gradient, self.alpha)
            spread = g.Max(g.Sub(square, g.Mul(mean, mean)), g.const(0.0))
        d = g.Div(gradient, g.Add(g.Sqrt(spread), self.eps))
        if self.momentum:
            new["momentum"] = d = g.Add(g.Mul(slots["momentum"], self.momentum), d)
        return g.Sub(parameter, g.Mul(terms.rate, d)), new


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """p ← p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps), where s is the sum of all g² and t the step, 1 at first.

    As torch.optim.Adagrad (Duchi et al., "Adaptive Subgradient Methods", 2011); weight decay adds to the gradient.
    """

    name = "adagrad"
    slots = ("square",)
    lr: float = 1e-2
    lr_decay: float = 0.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("lr_decay", 0, math.inf)
        self.require("eps", 0, 1)

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        gradient = decayed(g, gradient, parameter, terms.decay)
        square = g.Add(slots["square"], g.Mul(gradient, gradient))
        rate = terms.rate
        if self.lr_decay:
            rate = g.Div(rate, g.Add(g.Mul(g.Sub(terms.step, 1.0), self.lr_decay), 1.0))
        d = g.Div(gradient, g.Add(g.Sqrt(square), self.eps))
        return g.Sub(parameter, g.Mul(rate, d)), {"square": square}
