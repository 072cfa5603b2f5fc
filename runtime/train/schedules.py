"""Learning rates by the number of a step: pure functions, so that a training goes on anywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import UsageError

SHAPES = ("constant", "step", "cosine", "polynomial", "one-cycle")
RISE = 0.3  # share of a one-cycle's steps in which it rises; Smith and Topin, 2018, as torch's OneCycleLR
START, END = 25.0, 1e4  # what the greatest rate is divided by at its beginning; the first one, at its end


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the rate goes over the steps, whatever their number and its greatest are.

    Attributes:
        shape: constant; step: times `factor` every `period` steps; cosine: to `least` by half a cosine (Loshchilov and
            Hutter, 2017); polynomial: lr · (1 - t / steps)^power, not below `least`; one-cycle: up by a cosine from
            lr / 25, then down to a ten-thousandth of that.
        warmup: steps in which the rate rises from lr / warmup in equal parts, before the shape begins.
    """

    shape: str = "constant"
    warmup: int = 0
    least: float = 0.0
    factor: float = 0.1
    period: int = 1
    power: float = 1.0

    def __post_init__(self) -> None:
        """Raises UsageError: a setting out of range."""
        if self.shape not in SHAPES:
            raise UsageError("no such schedule", where="schedule", expected=", ".join(SHAPES), found=self.shape[:60])
        for name, ok in (("warmup", self.warmup >= 0), ("period", self.period >= 1), ("least", self.least >= 0),
                         ("factor", self.factor > 0), ("power", self.power > 0)):  # fmt: skip
            self.require(ok, name)

    def require(self, ok: bool, name: str) -> None:
        """Refuse a setting. Raises UsageError."""
        if not ok:
            raise UsageError("out of range", where=f"schedule: {name}", found=getattr(self, name))


@dataclass(frozen=True)
class Schedule(Shape):
    """The rate of step t, counted from 0, of `steps` in all. lr: the greatest rate."""

    lr: float
    steps: int

    def __post_init__(self) -> None:
        """Raises UsageError: a setting out of range."""
        super().__post_init__()
        for name, ok in (("steps", self.steps >= 1), ("warmup", self.warmup < max(self.steps, 1)),
                         ("least", self.least <= self.lr)):  # fmt: skip
            self.require(ok, name)

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        t, total = step - self.warmup, max(1, self.steps - self.warmup)
        done = min(t / total, 1.0)
        if self.shape == "step":
            return self.lr * self.factor ** (t // self.period)
        if self.shape == "cosine":
            return _cosine(self.lr, self.least, done)
        if self.shape == "polynomial":
            return max(self.least, self.lr * (1 - done) ** self.power)
        if self.shape == "one-cycle":
            return self._one_cycle(t, total)
        return self.lr

    def _one_cycle(self, t: int, total: int) -> float:
        top, last = RISE * total - 1, total - 1
        first = self.lr / START
        if t <= top:
            return _cosine(first, self.lr, t / top if top > 0 else 1.0)
        return _cosine(self.lr, first / END, min(1.0, (t - top) / max(last - top, 1e-9)))


def _cosine(a: float, b: float, done: float) -> float:
    """From a to b by half a cosine."""
    return b + (a - b) * (1 + math.cos(math.pi * done)) / 2
