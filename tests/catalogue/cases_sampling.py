"""Cases of GridSample, AffineGrid, Col2Im and MaxUnpool."""

from __future__ import annotations

import numpy as np

from catalogue.cases import case, const

ATTRS = [{"mode": m, "padding_mode": p, "align_corners": a} for m in ("linear", "nearest", "cubic")
         for p in ("zeros", "border", "reflection") for a in (0, 1)]

CASES = [
    *(case("GridSample", ["f32[2,3,5,7]", "f32[2,4,33,2]"], a, low=-1.3, high=1.3, rtol=1e-3, atol=1e-4,
           oracle="onnxruntime", opset=20) for a in ATTRS),
    case("GridSample", ["f32[N=2,3,5,7]", "f32[N=2,4,9,2]"], low=-1.2, high=1.2, oracle="onnxruntime", opset=20),
    case("GridSample", ["f32[1,2,3,4,5]", "f32[1,2,3,2,3]"], low=-1.2, high=1.2, oracle="onnxruntime", opset=20),
    *(case("GridSample", [f"f32[21,{c},5,7]", f"f32[21,1,{n},2]"], low=-1.2, high=1.2, oracle="onnxruntime", opset=20)
      for c in (1, 3) for n in (1, 2)),  # of one channel and one position, lanes are images
    *(case("GridSample", ["f64[1,2,3,4]", "f64[1,2,3,2]"], a, low=-1.2, high=1.2, oracle="onnxruntime", opset=20)
      for a in ATTRS),  # onnx.reference takes positions in float32
    *(case("AffineGrid", ["f32[2,2,3]", const([2, 3, h, w])], {"align_corners": a})
      for a in (0, 1) for h, w in ((2, 5), (6, 33))),
    *(case("AffineGrid", ["f32[2,3,4]", const([2, 3, 2, 4, 5])], {"align_corners": a}) for a in (0, 1)),
    # the reference gives f32
    case("AffineGrid", ["f64[N=2,2,3]", const([2, 3, 4, 5])], oracle="onnxruntime", opset=20),
    case("Col2Im", ["f32[1,5,5]", const([5, 5]), const([1, 5])]),
    case("Col2Im", ["f32[2,18,12]", const([5, 6]), const([2, 3])], {"strides": [1, 2], "pads": [0, 1, 0, 1]}),
    case("Col2Im", ["f32[1,4,4]", const([5, 5]), const([2, 2])], {"dilations": [1, 5], "pads": [0, 0, 0, 1]}),
    case("Col2Im", ["f32[2,198,9]", const([13, 14]), const([9, 11])], {"strides": [3, 2], "pads": [1, 0, 2, 1]}),
    case("Col2Im", ["f32[1,10,12]", const([3, 4, 5]), const([1, 1, 5])]),
    case("MaxUnpool", ["f32[1,1,2,2]", np.array([[[[5, 7], [13, 15]]]])], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    case("MaxUnpool", ["f32[1,1,2,2]", np.array([[[[5, 7], [13, 15]]]]), const([1, 1, 5, 5])],
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
]
