"""Cases of the pools."""

from __future__ import annotations

from typing import Any

from catalogue.cases import Case, case


def _window(op: str, extra: dict[str, Any], **more: Any) -> list[Case]:
    def one(shape: str, **attrs: Any) -> Case:
        return case(op, [shape], {**attrs, **extra}, **more)

    return [
        one("f32[2,3,9,11]", kernel_shape=[3, 2]),
        one("f32[1,3,9,11]", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        one("f32[N=2,3,9,10]", kernel_shape=[3, 3], strides=[2, 3], pads=[1, 0, 1, 2]),
        one("f32[1,2,H=9,W=33]", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
        one("f32[1,2,9,20]", kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"),
        one("f32[1,4,40]", kernel_shape=[5], strides=[3]),
        one("f32[1,2,6,5,7]", kernel_shape=[3, 2, 3], strides=[2, 1, 2], pads=[1, 0, 1, 1, 1, 1]),
        one("f32[1,2,17]", kernel_shape=[17]),
    ]


def _same() -> list[Case]:
    return [case(op, ["f32[1,2,8,21]"], {"kernel_shape": [3, 4], "strides": [2, s], "auto_pad": auto}, oracle=oracle)
            for op, oracle in (("MaxPool", "onnxruntime"), ("AveragePool", "onnxruntime"))
            for auto in ("SAME_UPPER", "SAME_LOWER") for s in (1, 2)]


def _ceil(op: str, extra: dict[str, Any]) -> list[Case]:
    return [case(op, [shape], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": pads, **extra},
                 oracle="onnxruntime")
            for shape in ("f32[1,2,8,8]", "f32[2,1,7,20]") for pads in ([0] * 4, [1, 1, 1, 1])]


DILATED = {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [1, 2], "pads": [1, 1, 2, 0]}

CASES = [
    *_window("MaxPool", {}, oracle="onnxruntime"),
    *_window("MaxPool", {}, oracle="onnxruntime", outputs=2),
    *_window("AveragePool", {}),
    *_window("AveragePool", {"count_include_pad": 1}),
    *(case(op, [f"f32[1,2,{h},{w}]"], {"kernel_shape": kernel}, oracle="onnxruntime", opset=22)  # of more taps than
      for op in ("AveragePool", "MaxPool")                                                       # are written out
      for h, w, kernel in ((300, 1, [297, 1]), (400, 3, [397, 3]), (1, 3000, [1, 2997]))),
    *_window("LpPool", {"p": 2}, oracle="onnxruntime"),
    *_same(),
    *_ceil("MaxPool", {}),
    *_ceil("AveragePool", {"count_include_pad": 0}),
    *_ceil("AveragePool", {"count_include_pad": 1}),
    case("MaxPool", ["f32[1,3,10,19]"], DILATED, oracle="onnxruntime", outputs=2),
    case("AveragePool", ["f32[1,3,10,19]"], DILATED),
    case("AveragePool", ["f32[1,3,10,19]"], {**DILATED, "count_include_pad": 1}),
    case("LpPool", ["f32[1,3,10,19]"], {**DILATED, "p": 3}, oracle="onnxruntime"),
    case("LpPool", ["f32[1,3,10]"], {"kernel_shape": [3], "p": 1}, oracle="onnxruntime"),
    case("MaxPool", ["f32[2,3,6,7]"], {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1}, outputs=2),
    case("MaxPool", ["u8[1,3,9,33]"], {"kernel_shape": [3, 3]}, low=0, high=255, oracle="onnxruntime"),
    case("MaxPool", ["i8[1,3,9,9]"], {"kernel_shape": [2, 2]}, low=-128, high=127, oracle="onnxruntime"),
    case("MaxPool", ["f64[1,3,9,9]"], {"kernel_shape": [2, 2]}, oracle="onnxruntime"),
    case("MaxPool", ["f16[1,3,9,9]"], {"kernel_shape": [2, 2]}),
    case("AveragePool", ["f64[1,3,9,9]"], {"kernel_shape": [2, 2]}),
    case("AveragePool", ["f16[1,3,9,9]"], {"kernel_shape": [2, 2]}),
    *(case(op, [shape], oracle="onnxruntime", opset=18) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
      for shape in ("f32[2,3,7,7]", "f32[N=1,5,33]", "f32[1,2,3,4,5]", "f32[1,2,H=5,W=6]")),
    case("GlobalLpPool", ["f32[2,3,40]"], {"p": 1}, oracle="onnxruntime", opset=18),
    case("GlobalLpPool", ["f32[2,3,40]"], {"p": 3}, oracle="onnxruntime", opset=18),
    case("GlobalAveragePool", ["f64[2,3,40]"]),
    case("GlobalAveragePool", ["f16[2,3,40]"], rtol=2e-3, atol=1e-3),
]
