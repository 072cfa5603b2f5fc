"""Cases of the quantised operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from catalogue.cases import Case, case, const

RNG = np.random.default_rng(7)


def _bytes(dtype: Any, *shape: int) -> np.ndarray:
    low, high = (0, 256) if dtype is np.uint8 else (-128, 128)
    return RNG.integers(low, high, shape).astype(dtype)


def _scales(*shape: int) -> Any:
    return const(RNG.uniform(0.01, 0.1, shape).astype(np.float32))


def _zero(value: int, dtype: Any) -> Any:
    return const(np.array(value, dtype))


def _conversions() -> list[Case]:
    zeros = const(np.array([3, 0, 250], np.uint8))
    return [
        case("QuantizeLinear", ["f32[3,17]", _scales()]),
        case("QuantizeLinear", ["f32[N=5,33]", _scales(), _zero(-5, np.int8)], low=-20, high=20),
        case("QuantizeLinear", ["f32[2,3,5]", _scales(3), zeros], low=-20, high=20),
        case("QuantizeLinear", ["f32[2,5,3]", _scales(3), zeros], {"axis": -1}),
        case("QuantizeLinear", ["f32[7]", _scales(), _zero(1000, np.uint16)], low=-20, high=20),
        case("QuantizeLinear", ["f32[]", _scales(), _zero(3, np.int16)]),
        case("QuantizeLinear", ["i32[9]", _scales(), _zero(3, np.int8)], low=-50, high=50),
        case("DequantizeLinear", [_bytes(np.uint8, 3, 17), _scales()]),
        case("DequantizeLinear", [_bytes(np.int8, 5, 33), _scales(), _zero(-5, np.int8)]),
        case("DequantizeLinear", [_bytes(np.uint8, 2, 3, 5), _scales(3), zeros]),
        case("DequantizeLinear", [_bytes(np.uint8, 3, 5), _scales(3), zeros], {"axis": 0}),
        case("DequantizeLinear", ["i32[2,9]", _scales()], low=-1000, high=1000),
        case("DequantizeLinear", ["u16[9]", _scales(), _zero(7, np.uint16)], low=0, high=1000),
    ]


def _products() -> list[Case]:
    a, b = _bytes(np.uint8, 2, 5, 17), _bytes(np.int8, 17, 9)
    columns = const(_bytes(np.int8, 9))
    quantised = [_scales(), _zero(100, np.uint8), b, _scales(), _zero(3, np.int8), const(np.float32(0.9))]
    return [
        case("MatMulInteger", [a, b], oracle="onnxruntime"),
        case("MatMulInteger", [a, b, _zero(100, np.uint8), _zero(-3, np.int8)], oracle="onnxruntime"),
        case("MatMulInteger", [a[0], b, _zero(9, np.uint8), columns]),
        case("MatMulInteger", [_bytes(np.uint8, 3, 700), _bytes(np.uint8, 700, 5)], oracle="onnxruntime"),
        case("QLinearMatMul", [a, *quantised, _zero(120, np.uint8)], oracle="onnxruntime"),
    ]


def _convolutions() -> list[Case]:
    x, w = _bytes(np.uint8, 1, 4, 9, 11), _bytes(np.int8, 6, 4, 3, 3)
    window = {"pads": [1, 1, 0, 2], "strides": [2, 1]}
    scaled = [x, _scales(), _zero(100, np.uint8), w]
    result = [const(np.float32(0.7)), _zero(128, np.uint8)]
    bias = const(RNG.integers(-1000, 1000, 6).astype(np.int32))
    one, each = [_scales(), _zero(0, np.int8)], [_scales(6), const(np.zeros(6, np.int8))]
    unsigned = const(_bytes(np.uint8, 6, 4, 3, 3))
    return [
        case("ConvInteger", [x, unsigned], window, oracle="onnxruntime"),
        case("ConvInteger", [x, unsigned, _zero(100, np.uint8), _zero(7, np.uint8)], window, oracle="onnxruntime"),
        case("QLinearConv", [*scaled, *one, *result], window, oracle="onnxruntime"),
        case("QLinearConv", [*scaled, *each, *result, bias], window, oracle="onnxruntime"),
        case("QLinearConv", [x, _scales(), _zero(9, np.uint8), _bytes(np.int8, 6, 2, 3, 3), *one, *result],
             {"group": 2, "dilations": [2, 1]}, oracle="onnxruntime"),
    ]  # fmt: skip


CASES = [*_conversions(), *_products(), *_convolutions()]
