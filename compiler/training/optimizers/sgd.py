"""Stochastic gradient descent, with or without momentum."""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import UsageError
from ...ir.builder import GraphBuilder
from ...ir.graph import Value
from .base import Optimizer, Slots, Terms, decayed


@dataclass(frozen=True)
class SGD(Optimizer):
    """p ← p - lr · d with d = g + weight_decay · p; with a momentum m ← momentum · m + d takes its place.

    Nesterov's step is d + momentum · m with the new m. After the first step, m takes in (1 - dampening) · d.

    As torch.optim.SGD (Sutskever et al., "On the importance of initialization and momentum", 2013).
    """

    name = "sgd"
    slots = ("momentum",)
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("momentum", 0, 1)
        self.require("dampening", 0, 1)
        if self.nesterov and self.dampening:
            raise UsageError("Nesterov's step has no dampening", where="sgd: dampening", found=self.dampening)
        if self.nesterov and not self.momentum:
            raise UsageError("Nesterov's step needs a momentum", where="sgd: nesterov", found="momentum 0")

    def kept(self) -> tuple[str, ...]:
        return self.slots if self.momentum else ()

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        d = decayed(g, gradient, parameter, terms.decay)
        if not self.momentum:
            return g.Sub(parameter, g.Mul(terms.rate, d)), {}
        taken = d
        if self.dampening:
            one = g.const(1.0)
            taken = g.Mul(d, g.Where(g.Less(terms.step, g.const(1.5)), one, g.const(1.0 - self.dampening)))
        velocity = g.Add(g.Mul(slots["momentum"], self.momentum), taken)
        d = g.Add(d, g.Mul(velocity, self.momentum)) if self.nesterov else velocity
        return g.Sub(parameter, g.Mul(terms.rate, d)), {"momentum": velocity}
