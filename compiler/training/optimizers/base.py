"""What every optimiser says of itself: its settings, the state it keeps per parameter, and its step as a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ....errors import UsageError
from ...ir.builder import GraphBuilder
from ...ir.graph import Value

Slots = Mapping[str, Value]


@dataclass(frozen=True)
class Terms:
    """What a step is made with, beside the vectors.

    Attributes:
        rate: the learning rate, f32[]. step: f32[], 1 at the first. decay: the weight decay of these parameters.
        sizes: elements of each tensor in the vector, in order.
    """

    rate: Value
    step: Value
    decay: float
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Optimizer:
    """An optimiser.

    Attributes:
        slots: names of the tensors that are kept per parameter; all begin with zeros.
        by_element: whether an element moves by what is known of it alone, and not by others of its tensor.
        name: as users write it. lr: the learning rate. weight_decay: how much of the parameter adds to its gradient,
            or is taken off the parameter itself, as the optimiser says.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    by_element: ClassVar[bool] = True
    name: ClassVar[str] = ""
    lr: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self.require("lr", 0, math.inf)
        self.require("weight_decay", 0, math.inf)

    def require(self, field: str, least: float, below: float) -> None:
        """Refuse a setting outside of [least, below). Raises UsageError."""
        value = getattr(self, field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < below:
            raise UsageError("out of range", where=f"{self.name}: {field}", expected=f"{least} or more, below {below}",
                             found=repr(value)[:60])  # fmt: skip

    def kept(self) -> tuple[str, ...]:
        """Names of the slots that these settings need."""
        return self.slots

    def write(
        self, g: GraphBuilder, parameter: Value, gradient: Value, slots: Slots, terms: Terms
    ) -> tuple[Value, dict[str, Value]]:
        """One step.

        Args:
            parameter, gradient, slots: vectors of one length, f32; where `by_element`, of any one shape.

        Returns:
            the new parameter, and the new slots.
        """
        raise NotImplementedError


def decayed(g: GraphBuilder, gradient: Value, parameter: Value, decay: float) -> Value:
    """The gradient of the loss plus decay / 2 · |parameter|²."""
    return g.Add(gradient, g.Mul(parameter, decay)) if decay else gradient


def mixed(g: GraphBuilder, old: Value, new: Any, share: float) -> Value:
    """share · old + (1 - share) · new."""
    return g.Add(g.Mul(old, share), g.Mul(new, 1.0 - share))
