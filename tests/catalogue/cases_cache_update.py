"""Cases of TensorScatter: each rank and axis, both modes, with and without places, of several element types."""

from __future__ import annotations

import numpy as np

from catalogue.cases import case, const

PLACES = np.array([1, 0, 3])

CASES = [
    *(case("TensorScatter", [f"{t}[3,2,7,5]", f"{t}[3,2,4,5]", PLACES], low=0)
      for t in ("f32", "f16", "bf16", "f64", "i8", "u64", "bool", "f8e4m3fn")),
    *(case("TensorScatter", ["f32[3,2,7,5]", "f32[3,2,4,5]", np.array([6, 2, 13])], {"mode": "circular", "axis": a})
      for a in (-2, 2)),
    case("TensorScatter", ["f32[3,7]", "f32[3,1]", const(PLACES)], {"axis": 1}),
    case("TensorScatter", ["f32[3,7,5]", "f32[3,7,5]"]), case("TensorScatter", ["f32[3,7,5]", "f32[3,2,5]"]),
    case("TensorScatter", ["f32[3,5,7]", "f32[3,5,3]", PLACES], {"axis": -1, "mode": "circular"}),
    case("TensorScatter", ["f32[N=3,2,C=7,5]", "f32[N=3,2,S=4,5]", "i64[N=3]"], {"mode": "circular"}, low=0, high=7),
    case("TensorScatter", ["f32[3,2,7,0]", "f32[3,2,4,0]", PLACES]),
    case("TensorScatter", ["f32[3,7,5]", "f32[3,0,5]", PLACES]),
]  # fmt: skip
