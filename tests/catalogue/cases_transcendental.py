"""Cases of logarithm, error function, trigonometric and hyperbolic functions. Accuracy has a test of its own."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case

SPECIAL = np.array([-np.inf, -1.5, -1, -0.0, 0.0, 1e-6, 1, 1.5, np.inf, np.nan], np.float32)
RANGES = {
    "Log": (0.1, 9), "Erf": (-4, 4), "Sin": (-9, 9), "Cos": (-9, 9), "Tan": (-1.4, 1.4), "Asin": (-1, 1),
    "Acos": (-1, 1), "Atan": (-9, 9), "Sinh": (-4, 4), "Cosh": (-4, 4), "Asinh": (-9, 9), "Acosh": (1, 9),
    "Atanh": (-0.9, 0.9),
}


def _function(op: str, low: float, high: float) -> list[Case]:
    types = ("f32[N=3,17]", "f32[]", "f32[0,3]", "f16[33]")
    return [*[case(op, [t], low=low, high=high) for t in types], case(op, [SPECIAL]),
            case(op, ["f64[33]"], low=low, high=high)]


CASES = [c for op, (low, high) in RANGES.items() for c in _function(op, low, high)]
