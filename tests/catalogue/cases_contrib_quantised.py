"""Cases of ONNX Runtime's operators of quantised tensors, against ONNX Runtime, which may round one step off."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from catalogue.cases import Case, Operand, case, const

RNG = np.random.default_rng(29)
ours = partial(case, domain="com.microsoft", oracle="onnxruntime")
FULL = {"u8": (0, 256), "i8": (-128, 128)}


def _scale(value: float) -> Operand:
    return const(value)


def _zero(kind: str, value: int) -> Operand:
    return const(value, {"u8": np.uint8, "i8": np.int8}[kind])


def _bytes(op: str, kind: str, operands: list[Operand], attrs: dict[str, Any] | None = None, **more: Any) -> Case:
    low, high = FULL[kind]
    return ours(op, operands, attrs, low=low, high=high, atol=more.pop("atol", 1), **more)


def _pair(op: str, kind: str, a: str, b: str, c_scale: float = 0.06) -> Case:
    z = {"u8": (3, 200, 128), "i8": (-5, 7, 0)}[kind]
    operands = [f"{kind}[{a}]", _scale(0.05), _zero(kind, z[0]), f"{kind}[{b}]", _scale(0.02), _zero(kind, z[1]),
                _scale(c_scale), _zero(kind, z[2])]  # fmt: skip
    return _bytes(op, kind, operands)


def _one(op: str, kind: str, x: str, y_scale: float = 1 / 256, y_zero: int = 0, **attrs: Any) -> Case:
    operands = [f"{kind}[{x}]", _scale(0.04), _zero(kind, 17), _scale(y_scale), _zero(kind, y_zero)]
    return _bytes(op, kind, operands, attrs)


def _joined(kind: str, *shapes: str, axis: int) -> Case:
    operands: list[Operand] = [_scale(0.06), _zero(kind, 11)]
    for i, shape in enumerate(shapes):
        operands += [f"{kind}[{shape}]", _scale(0.03 + 0.02 * i), _zero(kind, 5 * i)]
    return _bytes("QLinearConcat", kind, operands, {"axis": axis})


def _matrix(kind: str, *shape: int) -> Operand:
    low, high = FULL[kind]
    return const(RNG.integers(low, high, shape), {"u8": np.uint8, "i8": np.int8}[kind])


def _columns(kind: str, n: int) -> Operand:
    return const(RNG.integers(0, 20, n), {"u8": np.uint8, "i8": np.int8}[kind])


def _scales(n: int) -> Operand:
    return const(RNG.uniform(0.01, 0.05, n), np.float32)


def _gemm(kind: str, weights: str, a: str, b: Operand, rest: list[Operand], n: int = 0, **attrs: Any) -> Case:
    """`n`: columns with scales and zero points of their own. One bias alone: the result is f32."""
    scale, zero = (_scales(n), _columns(weights, n)) if n else (_scale(0.02), _zero(weights, 3))
    return _bytes("QGemm", kind, [f"{kind}[{a}]", _scale(0.03), _zero(kind, 9), b, scale, zero, *rest], attrs,
                  atol=1e-3 if len(rest) == 1 else 1)  # fmt: skip


def _bias(*shape: int) -> Operand:
    return const(RNG.integers(-9000, 9000, shape), np.int32)


def _addend(n: int) -> Operand:
    return const(RNG.uniform(-1, 1, n), np.float32)


WHERE = ["bool[2,1,7]", "u8[3,7]", _scale(0.05), _zero("u8", 3), "u8[2,3,1]", _scale(0.02), _zero("u8", 20),
         _scale(0.06), _zero("u8", 7)]  # fmt: skip
CONV = ["u8[2,5,6,4]", _scale(0.03), _zero("u8", 9), _matrix("i8", 8, 4, 3, 3), _scales(8), const(np.zeros(8), np.int8),
        _scale(0.9), _zero("u8", 128), _bias(8)]  # fmt: skip

CASES = [
    *(found for op, scale in (("QLinearAdd", 0.06), ("QLinearMul", 0.3)) for found in (
        _pair(op, "u8", "3,17", "3,17", scale), _pair(op, "i8", "N=2,3,33", "33", scale),
        _pair(op, "u8", "2,1,5", "3,1", scale), _pair(op, "i8", "", "7", scale))),
    _one("QLinearSigmoid", "u8", "3,33"), _one("QLinearSigmoid", "i8", "N=3,17", y_zero=-128),
    _one("QLinearLeakyRelu", "u8", "3,33", 0.05, 40), _one("QLinearLeakyRelu", "i8", "N=3,17", 0.05, -9, alpha=0.3),
    _one("QLinearSoftmax", "u8", "3,33", opset=13),
    _one("QLinearSoftmax", "i8", "N=3,5,7", y_zero=-128, opset=13, axis=1),
    _one("QLinearSoftmax", "u8", "3,4,5", opset=12, axis=1), _one("QLinearSoftmax", "u8", "3,4,5", opset=11),
    _one("QLinearAveragePool", "u8", "1,3,9,9", 0.04, 9, kernel_shape=[2, 3]),
    _one("QLinearAveragePool", "i8", "N=2,3,9,9", 0.03, 4, kernel_shape=[3, 3], pads=[1, 0, 1, 1], strides=[2, 1]),
    _one("QLinearAveragePool", "u8", "1,3,9,9", 0.04, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    _one("QLinearAveragePool", "u8", "1,3,8,8", 0.04, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    _one("QLinearAveragePool", "u8", "1,9,9,5", 0.04, 9, kernel_shape=[2, 2], channels_last=1, auto_pad="SAME_UPPER"),
    _one("QLinearGlobalAveragePool", "u8", "2,3,5,7", 0.03, 100),
    _one("QLinearGlobalAveragePool", "i8", "N=2,5,7,6", 0.03, channels_last=1),
    _joined("u8", "2,3", "2,5", axis=1), _joined("i8", "N=2,3,4", "N=2,3,1", "N=2,3,7", axis=-1),
    _joined("u8", "5", axis=0),
    _bytes("QLinearWhere", "u8", WHERE),
    _bytes("QLinearWhere", "i8", ["bool[N=5]", "i8[N=5]", _scale(0.05), _zero("i8", 3), "i8[]", _scale(0.02),
                                  _zero("i8", 20), _scale(0.06), _zero("i8", 7)]),
    _gemm("u8", "i8", "3,17", _matrix("i8", 17, 5), [_bias(5), _scale(0.3), _zero("u8", 128)]),
    _gemm("u8", "u8", "17,3", _matrix("u8", 5, 17), [None, _scale(0.3), _zero("u8", 0)], transA=1, transB=1, alpha=0.5),
    _gemm("i8", "i8", "N=3,33", _matrix("i8", 33, 17), [_bias(1, 17)], 17),
    _gemm("u8", "i8", "3,17", _matrix("i8", 5, 17), [_bias(3, 1)], 5, transB=1, alpha=1.5),
    _gemm("i8", "i8", "3,17", "i8[17,5]", [_bias(3, 5), _scale(0.3), _zero("i8", 1)]),
    _bytes("MatMulIntegerToFloat", "u8", ["u8[3,17]", _matrix("i8", 17, 5), _scale(0.03), _scale(0.02)], atol=1e-4),
    _bytes("MatMulIntegerToFloat", "u8", ["u8[N=2,3,33]", _matrix("u8", 33, 5), _scale(0.03), _scales(5),
                                          _zero("u8", 100), _columns("u8", 5), _addend(5)], atol=1e-3),
    _bytes("MatMulIntegerToFloat", "i8", ["i8[2,3,33]", "i8[2,33,5]", _scale(0.03), _scale(0.02), _zero("i8", 1),
                                          _zero("i8", 2)], atol=1e-3),
    ours("DynamicQuantizeMatMul", ["f32[3,17]", _matrix("i8", 17, 5), _scale(0.02)], atol=1e-3),
    ours("DynamicQuantizeMatMul", ["f32[N=2,3,33]", _matrix("u8", 33, 5), _scales(5), _columns("u8", 5), _addend(5)],
         atol=1e-3),
    ours("DynamicQuantizeMatMul", ["f32[2,33]", _matrix("i8", 33, 5), _scale(0.02), _zero("i8", 3)], atol=1e-3, low=1),
    ours("DynamicQuantizeMatMul", [np.zeros((2, 3), np.float32), _matrix("i8", 3, 5), _scale(0.02)]),
    ours("QuantizeLinear", ["f32[3,17]", _scale(0.02), _zero("i8", 3)]),
    ours("QuantizeLinear", ["f32[N=2,3,5]", _scales(3), const([1, 2, 3], np.uint8)], {"axis": 1}),
    ours("QuantizeLinear", ["f32[2,7]", _scale(0.001), const(77, np.uint16)], low=0),
    _bytes("DequantizeLinear", "u8", ["u8[3,17]", _scale(0.02), _zero("u8", 3)], atol=1e-5),
    _bytes("DequantizeLinear", "i8", ["i8[N=2,3,5]", _scales(5), const(range(5), np.int8)], {"axis": 2}, atol=1e-5),
    _bytes("QLinearConv", "u8", CONV, {"channels_last": 1, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
    _bytes("QLinearConv", "u8", ["u8[2,4,5,6]", *CONV[1:]], {"group": 1, "kernel_shape": [3, 3]}),
]  # fmt: skip
