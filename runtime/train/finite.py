"""Losses and gradients must be numbers: what ends a training that has gone astray."""

from __future__ import annotations

import math

import numpy as np

from ...errors import Diverged
from .state import TrainingState

HINT = "try a smaller learning rate, clip gradients, or look for NaN in the data"


def require_finite(what: str, steps: int, *numbers: float) -> None:
    """Refuse NaN and infinity.

    Args:
        what: the numbers are. steps: done before.

    Raises:
        Diverged: one is not finite.
    """
    for number in numbers:
        if not math.isfinite(number):
            raise Diverged(f"the {what} is not finite", where=f"step {steps + 1}", found=number, hint=HINT)


def require_number(what: str, steps: int, number: float) -> None:
    """Refuse NaN, which compares with nothing; infinity may be a loss of data that it is not trained on.

    Raises:
        Diverged: it is NaN.
    """
    if math.isnan(number):
        raise Diverged(f"the {what} is no number", where=f"after step {steps}", found=number, hint=HINT)


def require_finite_parameters(state: TrainingState) -> None:
    """Refuse parameters that the last update took out of range: the loss that would tell is the next step's.

    Raises:
        Diverged: one is not finite.
    """
    for name, array in state.parameters.items():
        if not np.isfinite(array).all():
            raise Diverged("a parameter is not finite", where=f"{name!r} after step {state.steps}", hint=HINT)
