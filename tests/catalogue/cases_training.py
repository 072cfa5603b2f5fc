"""Cases of the optimisers: first and later steps, one weight and several, both modes, decays and norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from catalogue.cases import Case, case

DOMAIN = "ai.onnx.preview.training"
RATE = np.float32(0.1)
STEPS = [np.array(n, np.int64) for n in (0, 1, 7)]


def _update(op: str, states: int, attrs: dict[str, Any], step: np.ndarray, *shapes: str, rate: Any = RATE) -> Case:
    tensors = [f"f32[{shape}]" for _ in range(2 + states) for shape in shapes]
    return case(op, [np.asarray(rate), step, *tensors], attrs, outputs=len(shapes) * (1 + states), domain=DOMAIN,
                low=0.1, rtol=1e-5, atol=1e-6)  # fmt: skip


CASES = [
    *(_update("Adagrad", 1, attrs, step, "3,5") for step in STEPS for attrs in ({}, {"decay_factor": 0.1})),
    _update("Adagrad", 1, {"norm_coefficient": 0.01, "epsilon": 1e-3}, STEPS[2], "1", "2,3", "7"),
    _update("Adagrad", 1, {}, STEPS[1], "N=3,5"),
    _update("Adam", 2, {}, STEPS[0], "3,5"),
    *(_update("Adam", 2, {}, step, "3,5", "2") for step in STEPS),  # of one weight onnx.reference has f64 where T > 0
    _update("Adam", 2, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.1, "alpha": 0.7, "beta": 0.9,
                        "epsilon": 1e-3}, STEPS[2], "17", "2,3"),
    *(_update("Momentum", 1, {"alpha": 0.9, "beta": 0.8, "mode": mode, "norm_coefficient": norm}, step, "3,5")
      for step in STEPS for mode in ("standard", "nesterov") for norm in (0.0, 0.01)),
    _update("Momentum", 1, {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": 0.0}, STEPS[1],
            "33", "2,3", "1", rate=np.float32([0.5])),
]  # fmt: skip
