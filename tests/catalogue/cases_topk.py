"""Cases of TopK."""

from __future__ import annotations

import numpy as np

from catalogue.cases import case, const

TIES = np.array([[1, 3, 3, 0, 3, -1, 1, 0]] * 2, np.float32)

CASES = [
    *(case("TopK", ["f32[3,50]", const([k])], {"largest": largest}, outputs=2, oracle="onnxruntime")
      for k in (1, 5, 30, 50) for largest in (0, 1)),
    *(case("TopK", [TIES, const([k])], {"largest": largest}, outputs=2, oracle="onnxruntime")
      for k in (3, 8) for largest in (0, 1)),
    case("TopK", ["f32[40,3,5]", const([7])], {"axis": 0}, outputs=2, oracle="onnxruntime"),
    case("TopK", ["f32[4,60,5]", const([33])], {"axis": 1}, outputs=2, oracle="onnxruntime"),
    case("TopK", ["f32[N=3,4,L=41]", const([30])], outputs=2, oracle="onnxruntime"),
    case("TopK", ["f32[5,2,N=33]", const([2])], outputs=2, oracle="onnxruntime"),
    *(case("TopK", [f"{t}[3,90]", const([k])], outputs=2, low=-9 if t != "u8" else 0, high=99, oracle="onnxruntime")
      for t in ("f64", "i32", "i64") for k in (4, 40)),
    case("TopK", ["f16[2,40]", const([3])], outputs=2),
    case("TopK", ["f32[7]", const([0])], outputs=2),
]
