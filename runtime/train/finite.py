"""Losses and gradients must be numbers: what ends a training that has gone astray."""

from __future__ import annotations

import math

from ...errors import Diverged


def require_finite(what: str, steps: int, *numbers: float) -> None:
    """Refuse NaN and infinity.

    Args:
        what: the numbers are. steps: done before.

    Raises:
        Diverged: one is not finite.
    """
    if not all(map(math.isfinite, numbers)):
        raise Diverged(f"the {what} is not finite", where=f"step {steps + 1}", found=numbers[0],
                       hint="try a smaller learning rate, clip gradients, or look for NaN in the data")  # fmt: skip
