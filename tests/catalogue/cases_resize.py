"""Cases of Resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from catalogue.cases import Case, case, const

MODES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def _scales(shape: str, scales: list[float], oracle: str = "onnxruntime", **attrs: Any) -> Case:
    opset = 19 if oracle == "onnxruntime" else None
    return case("Resize", [shape, None, const(scales)], attrs, oracle=oracle, opset=opset)


def _sizes(shape: str, sizes: list[int], **attrs: Any) -> Case:
    return case("Resize", [shape, None, None, const(sizes)], attrs, oracle="onnxruntime", opset=19)


def _all_modes(mode: str) -> list[Case]:
    return [c for t in MODES for c in (
        _sizes("f32[2,3,5,7]", [2, 3, 9, 20], mode=mode, coordinate_transformation_mode=t),
        _scales("f32[1,2,9,12]", [1.0, 1.0, 0.5, 0.7], _oracle(t), mode=mode, coordinate_transformation_mode=t),
        _scales("f32[1,2,4,17]", [1.0, 1.0, 1.5, 2.0], mode=mode, coordinate_transformation_mode=t))]


def _oracle(coordinates: str) -> str:
    """ONNX Runtime rounds the new length before it aligns corners, the conformance tests do not."""
    return "reference" if coordinates == "align_corners" else "onnxruntime"


CASES = [
    *(c for mode in ("nearest", "linear", "cubic") for c in _all_modes(mode)),
    *(_scales("f32[1,1,4,10]", [1.0, 1.0, 1.5, 2.6], nearest_mode=n, coordinate_transformation_mode=t)
      for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") for t in ("half_pixel", "asymmetric")),
    *(_scales(f"{t}[1,2,3,9]", [1.0, 1.0, 2.0, 2.0]) for t in ("f32", "u8", "i8", "i32")),
    *(_scales(f"{t}[1,2,3,9]", [1.0, 1.0, 2.0, 2.0], "reference") for t in ("f64", "f16", "i64")),
    _scales("f64[1,1,4,5]", [1.0, 1.0, 2.0, 3.0], "reference", mode="linear"),
    *(case("Resize", ["f64[1,1,53,7]", None, None, const(sizes)], {"mode": m, **more})
      for sizes, m, more in (([1, 1, 7, 19], "linear", {}), ([1, 1, 1, 3], "linear", {}),
                             ([9, 19], "linear", {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}))),
    _scales("f16[1,1,4,5]", [1.0, 1.0, 2.0, 3.0], "reference", mode="linear"),
    _scales("f32[1,1,4,5]", [1.0, 1.0, 2.0, 3.0], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
    _scales("f32[2,3,8]", [1.0, 1.0, 2.5], mode="linear"),
    _scales("f32[3,2,4]", [2.0, 1.0, 1.0], mode="linear"),
    case("Resize", ["f32[3,2,4]", const([0.5, 0.0, 0.0, 1.5, 1.0, 1.0]), const([1.0, 1.0, 1.0])],
         {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}),
    _scales("f32[1,2,3,4,5]", [1.0, 1.0, 2.0, 2.0, 2.0], mode="linear"),
    _scales("f32[N=2,3,H=4,W=5]", [1.0, 1.0, 2.0, 2.0], mode="linear"),
    _scales("f32[N=2,3,H=4,W=5]", [1.0, 1.0, 2.0, 0.5], coordinate_transformation_mode="asymmetric",
            nearest_mode="floor"),
    _sizes("f32[N=2,3,H=4,W=5]", [2, 3, 9, 11], mode="linear"),
    _sizes("f32[1,1,3,4]", [1, 1, 1, 1], mode="linear", coordinate_transformation_mode="align_corners"),
    case("Resize", ["f32[1,2,4,6]", None, None, const([8, 7])], {"axes": [2, 3], "mode": "linear"}, opset=19,
         oracle="onnxruntime"),
    *(case("Resize", ["f32[1,1,4,6]", None, None, const([7, 8])],
           {"axes": [2, 3], "keep_aspect_ratio_policy": p, "mode": "nearest"}) for p in ("not_larger", "not_smaller")),
    *(case("Resize", ["f32[1,1,4,6]", const([0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 1.2, 0.6]), None, const([1, 1, 5, 3])],
           {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": m, "extrapolation_value": 10.0},
           oracle="onnxruntime", opset=19) for m in ("linear", "nearest", "cubic")),
    # roi that only a run knows; of f64, onnx.reference takes the roi's type for positions and blends what is outside
    *(case("Resize", [x, roi, None, const([5, 3])],
           {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": m, "extrapolation_value": 10.0,
            "axes": [2, 3]}, oracle="reference", opset=19)
      for x, roi in (("f32[1,2,4,6]", "f32[4]"), ("f32[N=2,1,H=4,W=6]", "f64[4]"), ("i32[1,2,4,6]", "f32[4]"),
                     ("f64[1,1,5,7]", "f64[4]"))
      for m in ("linear", "nearest", "cubic") if (x[:3], m) != ("f64", "cubic")),
    case("Resize", ["f32[3,2,4]", "f32[6]", const([1.0, 1.0, 1.5])],
         {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}, oracle="reference"),
    case("Resize", [np.zeros((2, 3), np.float32), None, const([1.0, 1.0])]),
]
