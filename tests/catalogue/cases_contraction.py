"""Cases of MatMul, Gemm, Conv and ConvTranspose; more sizes and layouts are with their kernels' own tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from catalogue.cases import Case, case, const


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def _conv(x: str, w: tuple[int, ...], bias: bool = True, op: str = "Conv", **attrs: object) -> list[Case]:
    """The same convolution with constant and with given weights."""
    channels = w[0] if op == "Conv" else w[1] * int(attrs.get("group", 1))  # type: ignore[call-overload]
    arrays = [_normal(*w), *([_normal(channels)] if bias else [])]
    # onnx.reference cannot do every grouped or asymmetric case
    return [case(op, [x, *operands], attrs, oracle="onnxruntime") for operands in (list(map(const, arrays)), arrays)]


def _nothing_summed(symbol: str, size: str) -> list[Case]:
    k = symbol + size
    return [
        *(case("MatMul", [f"{t}[5,{k}]", f"{t}[{k},20]"]) for t in ("f32", "f64", "f16", "i32")),
        case("MatMul", [f"f32[{k}]", f"f32[2,{k},3]"]),
        case("MatMul", [f"f32[{k}]", f"f32[{k}]"]),
        case("Gemm", [f"f32[4,{k}]", f"f32[{k},20]", "f32[20]"], {"beta": 2.0}),
        case("Gemm", [f"f32[{k},4]", f"f32[20,{k}]"], {"transA": 1, "transB": 1, "alpha": 0.5}),
    ]


CASES = [
    case("MatMul", ["f32[N=3,20,7]", const(_normal(7, 30))]),
    case("MatMul", ["f32[2,3,S=9,16]", "f32[2,3,16,30]"]),
    case("MatMul", ["f32[5,16]", "f32[2,1,16,3]"]),
    case("MatMul", ["f32[16]", "f32[2,16,3]"]),
    case("MatMul", ["f32[2,4,16]", "f32[16]"]),
    case("MatMul", ["f32[16]", "f32[16]"]),
    case("MatMul", ["f64[5,16]", "f64[16,3]"]),
    case("MatMul", ["i32[5,16]", "i32[16,3]"]),
    case("MatMul", ["i64[2,5,16]", "i64[16,3]"]),
    case("MatMul", ["f16[5,16]", "f16[16,20]"]),
    *_nothing_summed("", "0"),  # sums of nothing, and results without elements
    *_nothing_summed("K=", "0"),
    *(case("MatMul", [f"{t}[0,16]", f"{t}[16,20]"]) for t in ("f32", "f16", "i32")),
    *(case("MatMul", [f"{t}[5,16]", f"{t}[16,0]"]) for t in ("f32", "f16", "i32")),
    case("MatMul", ["f32[3,20,7]", const(_normal(7, 0))]),
    case("Gemm", ["f32[N=4,12]", const(_normal(20, 12)), const(_normal(20))], {"transB": 1}),
    case("Gemm", ["f32[12,4]", "f32[12,20]", "f32[4,1]"], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    case("Gemm", ["f32[4,12]", "f32[12,20]"], {"alpha": 0.0}),
    case("Gemm", ["f64[4,12]", "f64[20,12]", "f64[4,20]"], {"transB": 1, "beta": -1.0}),
    *_conv("f32[N=2,16,9,11]", (24, 16, 3, 3), pads=[1, 1, 1, 1]),
    *_conv("f32[1,3,H=15,W=17]", (8, 3, 5, 5), pads=[2, 1, 0, 2], strides=[2, 3]),
    *_conv("f32[1,12,9,11]", (8, 6, 3, 2), group=2, dilations=[2, 1], bias=False),
    *_conv("f32[2,10,9,11]", (10, 1, 3, 3), group=10, pads=[1, 1, 1, 1]),
    *_conv("f32[2,10,9,12]", (10, 1, 3, 3), group=10, pads=[1, 1, 1, 1], strides=[2, 2]),
    *_conv("f32[2,4,30]", (8, 4, 3), auto_pad="SAME_UPPER", strides=[2]),
    *_conv("f32[1,4,5,6,7]", (8, 4, 2, 3, 3), auto_pad="SAME_LOWER"),
    *_conv("f32[N=2,8,5,6]", (8, 12, 3, 3), op="ConvTranspose", strides=[2, 2], pads=[1, 1, 1, 1]),
    *_conv("f32[1,8,5,6]", (8, 6, 4, 2), op="ConvTranspose", strides=[2, 3], group=2, output_padding=[1, 2]),
    *_conv("f32[2,9,5,6]", (9, 1, 3, 4), op="ConvTranspose", strides=[2, 3], group=9, pads=[1, 0, 0, 2]),
    *_conv("f32[1,4,7]", (4, 3, 5), op="ConvTranspose", strides=[2], auto_pad="SAME_UPPER"),
    *_conv("f32[1,4,7,8]", (4, 3, 3, 3), op="ConvTranspose", strides=[3, 2], output_shape=[20, 18], bias=False),
    *_conv("f32[1,3,4,4]", (3, 5, 2, 3), op="ConvTranspose", strides=[3, 2], output_shape=[13, 10], bias=False),
    *(case("ConvTranspose", ["f32[1,3,4,4]", const(_normal(3, 5, 3, k))],  # begins with a margin
           {"auto_pad": "SAME_UPPER", "strides": [2, s], "output_shape": [10, (4 - 1) * s + k + 1]})
      for k, s in ((3, 2), (1, 3), (4, 3))),
    # sums of nothing: onnx.reference, as ONNX Runtime never ends there
    *(replace(c, oracle="reference") for c in (
        *_conv("f32[1,0,9,11]", (24, 0, 3, 3), pads=[1, 1, 1, 1]), *_conv("f32[N=2,0,9]", (8, 0, 1)),
        *_conv("f32[1,0,5,6]", (0, 12, 3, 3), op="ConvTranspose", strides=[2, 2]))),
    # a window shorter than the stride: total padding below 0 adds margins (ONNX Runtime gives a smaller result)
    *(case("ConvTranspose", [x, const(_normal(*w))], {"auto_pad": pad, "strides": strides, "output_padding": extra})
      for pad in ("SAME_UPPER", "SAME_LOWER") for x, w, strides, extra in (
          ("f32[1,1,2]", (1, 1, 1), [3], [0]), ("f32[2,4,5]", (4, 3, 2), [5], [1]),
          ("f32[1,4,N=3]", (4, 3, 1), [4], [0]), ("f32[1,4,3,5]", (4, 20, 1, 2), [4, 3], [0, 0]))),
    *_conv("f32[1,4,3,4,5]", (4, 3, 2, 2, 3), op="ConvTranspose", dilations=[1, 2, 1], strides=[2, 1, 2]),
]
