"""Cases of operators whose result's size depends on values, which the runtime executes."""

from __future__ import annotations

import numpy as np

from catalogue.cases import case

BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5]]], np.float32)
REPEATED = np.array([[2, 1, 1], [3, 4, 3], [2, 1, 1]], np.float32)

CASES = [
    case("NonZero", ["i32[3,7]"], low=0, high=2),
    case("NonZero", ["bool[40]"]),
    case("NonZero", [np.zeros((2, 3), np.float32)]),
    case("Compress", ["f32[3,5]", np.array([True, False, True])], {"axis": 0}),
    case("Compress", ["f32[3,5]", np.array([False, True])], {"axis": -1}),
    case("Compress", ["i64[3,5]", np.array([True, False, False, True, True])]),
    case("Unique", [REPEATED], outputs=4),
    case("Unique", [REPEATED], {"axis": 0}, outputs=4),
    case("Unique", [REPEATED], {"sorted": 0}, outputs=4, oracle="onnxruntime"),
    case("NonMaxSuppression", [BOXES, SCORES, np.array([3]), np.array([0.5], np.float32), np.float32([0.55])]),
    case("NonMaxSuppression", [BOXES, SCORES, np.array([2])], {"center_point_box": 1}, oracle="onnxruntime"),
    case("NonMaxSuppression", [np.tile(BOXES, (2, 1, 1)), "f32[2,3,5]", np.array([1 << 40]), np.float32([0.3])], low=0,
         high=1, oracle="onnxruntime"),
    case("NonMaxSuppression", ["f32[1,N=90,4]", "f32[1,2,N=90]", np.array([7]), np.float32([0.2]), np.float32([0.1])],
         low=0, high=1, oracle="onnxruntime"),
    case("NonMaxSuppression", [BOXES, SCORES], oracle="onnxruntime"),
]
