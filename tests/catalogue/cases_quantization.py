"""Cases of the quantised operators."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from catalogue.cases import Case, case, const

RNG = np.random.default_rng(9)
U8, I8, U16, I16, I32 = np.uint8, np.int8, np.uint16, np.int16, np.int32


def _q(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def _scale(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], np.float32)


def _quantize() -> list[Case]:
    ties = np.array([[0.5, 1.5, -0.5, -2.5, 400, -400, 2.4999]], np.float32)
    scale3, blocks = _scale(0.1, 0.2, 0.5), np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32)
    return [
        *(case("QuantizeLinear", [ties, _scale(1.0), const(z, t)]) for t, z in ((U8, 3), (I8, -1), (U16, 9), (I16, 0))),
        case("QuantizeLinear", ["f32[N=3,33]", _scale(0.01)]),
        case("QuantizeLinear", ["f16[900]", const(np.float16(0.1)), const(3, U8)]),
        case("QuantizeLinear", ["bf16[900]", const(0.1, ml_dtypes.bfloat16), const(3, U8)]),
        case("QuantizeLinear", ["f32[900]", _scale(0.01), const(99, U8)], {"precision": 10}),
        case("QuantizeLinear", ["f16[900]", const(np.float16(0.1)), const(3, U8)], opset=21, oracle="onnxruntime"),
        case("QuantizeLinear", ["f32[2,3,4]", scale3, const([1, 2, 3], U8)]),
        case("QuantizeLinear", ["f32[2,4,3]", scale3, const([0, 0, 0], I8)], {"axis": -1}),
        case("QuantizeLinear", ["f32[3,8]", blocks, const(np.zeros((3, 2)), I8)], {"axis": 1, "block_size": 4}),
        case("QuantizeLinear", ["f32[8,3]", blocks.T.copy(), const(1 + blocks.T, U8)], {"axis": -2, "block_size": 4}),
        case("QuantizeLinear", ["f32[2,8,3]", np.stack([blocks.T, 2 * blocks.T])], {"axis": 1, "block_size": 4}),
        case("QuantizeLinear", ["f16[3,8]", np.array(0.0625, np.float16), const(2, U8)]),
        case("QuantizeLinear", ["f32[3,8]", _scale(0.05)], {"output_dtype": 3}),
        *(case("DequantizeLinear", [_q((3, 33), t), _scale(0.3), const(5, t)]) for t in (U8, I8, U16, I16)),
        case("DequantizeLinear", [_q((3, 33), I32), _scale(0.3)]),
        case("DequantizeLinear", [_q((2, 3, 4), U8), scale3, const([1, 2, 3], U8)]),
        case("DequantizeLinear", [_q((3, 7), I8), blocks], {"axis": 1, "block_size": 4}),
        case("DequantizeLinear", [_q((4, 3), I8), const(blocks.T.copy())], {"axis": 0, "block_size": 2}),
        case("DequantizeLinear", [_q((3, 8), I8), np.array(0.5, np.float16), const(-3, I8)]),
    ]


def _products() -> list[Case]:
    a, b = _q((3, 40), U8), _q((40, 5), I8)
    long_a, long_b = _q((2, 700), U8), _q((700, 3), U8)
    x, w = _q((2, 3, 7, 8), U8), _q((4, 3, 3, 3), I8)
    # ONNX Runtime adds pairs of u8 x i8 in 16 bits, saturating, where a CPU has no VNNI: 7 bits of weight always fit.
    narrow_w = const((w // 2).astype(np.int8))
    deep_x, deep_w = _q((1, 40, 5, 5), U8), _q((2, 40, 3, 3), U8)
    group_x, group_w = _q((1, 64, 4, 4), U8), _q((6, 32, 3, 3), U8)
    q = [_scale(0.02), const(128, U8)]
    return [
        case("MatMulInteger", [a, b]),
        case("MatMulInteger", [a, const(b), const(12, U8), const(-7, I8)]),
        case("MatMulInteger", [long_a, long_b, const(3, U8), const(255, U8)]),
        case("MatMulInteger", [_q((2, 3, 4), U8), _q((2, 4, 5), U8), const(1, U8)]),
        case("ConvInteger", [x, const(w), const(3, U8)], {"pads": [1, 1, 1, 1]}),
        case("ConvInteger", [x, w], {"strides": [2, 2]}),
        case("ConvInteger", [deep_x, deep_w, const(200, U8)], {"pads": [1, 1, 1, 1]}),
        case("ConvInteger", [deep_x, const(deep_w), const(200, U8)]),
        case("ConvInteger", [group_x, group_w], {"group": 2}, oracle="onnxruntime"),
        case("QLinearMatMul", [a, _scale(0.01), const(7, U8), const(_q((40, 5), U8)), _scale(0.02), const(9, U8), *q]),
        case("QLinearMatMul", [long_a, _scale(0.01), const(7, U8), long_b, _scale(0.002), const(9, U8), *q]),
        case("QLinearConv", [x, _scale(0.02), const(5, U8), const(_q((4, 3, 3, 3), U8)), _scale(0.03), const(77, U8),
                             *q], {"pads": [1, 0, 1, 0]}),
        case("QLinearConv", [x, _scale(0.02), const(5, U8), narrow_w, _scale(0.03, 0.1, 0.2, 0.01),
                             const([0, 0, 0, 0], I8), *q, const([1, -2, 3000, 4], I32)], oracle="onnxruntime"),
        case("QLinearConv", [deep_x, _scale(0.02), const(5, U8), deep_w, _scale(0.03), const(0, U8), *q,
                             np.array([1, -2], I32)], oracle="onnxruntime"),
    ]


CASES = [*_quantize(), *_products()]
