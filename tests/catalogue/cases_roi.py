"""Cases of RoiAlign and MaxRoiPool."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Operand, case

CORNERS = np.array([[1, 2, 7, 8], [-3, -2, 20, 14], [5, 5, 4, 3], [0, 0, 0, 0], [9.5, 3.25, 10.75, 9], [-9, 2, -5, 3]],
                   np.float32)  # fmt: skip
IMAGES = np.array([0, 1, 1, 0, 1, 0])
BINS = {"output_height": 3, "output_width": 2, "spatial_scale": 0.7}
ALIGNED = [{**BINS, "mode": mode, "coordinate_transformation_mode": pixels, "sampling_ratio": ratio}
           for mode in ("avg", "max") for pixels in ("half_pixel", "output_half_pixel") for ratio in (0, 2, 3)]


def _regions(dtype: type = np.float32) -> list[Operand]:
    return [CORNERS.astype(dtype), IMAGES]


def _pooled(dtype: type = np.float32) -> np.ndarray:
    return np.concatenate([IMAGES[:, None], CORNERS], axis=1).astype(dtype)


CASES = [
    *(case("RoiAlign", ["f32[2,3,9,11]", *_regions()], attrs) for attrs in ALIGNED),
    *(case("RoiAlign", ["f32[2,85,9,11]", *_regions()], attrs, oracle="onnxruntime", opset=21)
      for attrs in ALIGNED[::3]),
    *(case("RoiAlign", ["f64[2,3,9,11]", *_regions(np.float64)], attrs, oracle="onnxruntime", opset=21)
      for attrs in ALIGNED[1::3]),
    *(case("RoiAlign", ["f16[2,3,9,11]", *_regions(np.float16)], {**attrs, "spatial_scale": 0.5})
      for attrs in ALIGNED[::4]),
    case("RoiAlign", ["f32[N=2,3,H=9,W=11]", *_regions()], ALIGNED[0]),
    case("RoiAlign", ["f32[2,17,9,11]", "f32[R=5,4]", np.array([0, 1, 1, 0, 0])], {"output_height": 2}, high=9),
    case("RoiAlign", ["f32[1,3,1,1]", *_regions()[:1], np.zeros(6, np.int64)], BINS),
    case("RoiAlign", ["f32[2,3,9,11]", "f32[0,4]", np.zeros(0, np.int64)], BINS),
    case("RoiAlign", ["f32[2,0,9,11]", *_regions()], BINS, oracle="onnxruntime", opset=21),
    *(case("MaxRoiPool", [f"f32[2,{channels},9,11]", _pooled()], {"pooled_shape": shape, "spatial_scale": scale},
           oracle="onnxruntime", opset=21)
      for channels in (1, 3, 85) for shape, scale in (([3, 2], 0.7), ([1, 1], 1.0), ([7, 20], 1.5))),
    case("MaxRoiPool", ["f32[N=2,3,H=9,W=11]", _pooled()], {"pooled_shape": [2, 3]}, oracle="onnxruntime", opset=21),
    case("MaxRoiPool", ["f32[2,3,9,11]", "f32[0,5]"], {"pooled_shape": [2, 3]}, oracle="onnxruntime", opset=21),
]
