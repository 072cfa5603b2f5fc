"""Results that rounding makes jump: where, and to what."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

TIE_UNITS = 6.0
"""Units of rounding by which the greatest elements of a row may differ."""


def any_of_the_greatest(node: Any, x: np.ndarray, unit: float, last: bool) -> np.ndarray:
    """The first or the last place whose element is the greatest (or least) but for some units of rounding."""
    if x.shape[node.axis] == 0 or np.isnan(x).any():
        return np.asarray(node.run(x)[0])
    signed = x if node.op_type == "ArgMax" else -x
    best = signed.max(node.axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        near = (signed >= best - TIE_UNITS * unit * np.abs(best)) | (signed == best)
    places = near.shape[node.axis] - 1 - np.flip(near, node.axis).argmax(node.axis) if last else near.argmax(node.axis)
    return np.asarray(np.expand_dims(places, node.axis) if node.keepdims else places).astype(np.int64)


class Poles:
    """Between which of their poles the operands of tangents lie, without noise and with it.

    Of a large operand a few units of rounding are more than the distance of two poles, or enough to pass one: the
    tangent of what lies between may be any number, which a handful of noisy runs does not meet.
    """

    def __init__(self) -> None:
        self._sides: dict[tuple[str, int], np.ndarray] = {}  # by a node's result, and how often a loop made it before

    def begin(self, exact: bool) -> None:
        """A run begins; `exact`: the one without noise, which comes first."""
        self._exact, self._visits = exact, Counter[str]()

    def passed(self, name: str, x: np.ndarray) -> np.ndarray:
        """Where a pole lies between a tangent's operand and what it is without noise.

        Args:
            name: of the result.
        """
        key = name, self._visits[name]
        self._visits[name] += 1
        side = np.floor(x / math.pi + 0.5)
        if self._exact:
            self._sides[key] = side
        before = self._sides.get(key, side)
        return np.isfinite(x) & (side != before) if before.shape == side.shape else np.zeros(x.shape, bool)
