"""ONNX Runtime's weights in blocks, layers in bytes and activated products that it lacks on CPUs, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from catalogue.test_contrib import computed, uniform
from parax.compiler.ir.ops.contrib_block_weights import TABLES
from parax.errors import ParaxError

RNG = np.random.default_rng(41)


def _bnb(n: int, k: int, block: int, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B, absmax, and the matrix [n, k] that they stand for."""
    packed = RNG.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    absmax = RNG.uniform(0.1, 1, -(-n * k // block)).astype(np.float32)
    codes = [code for byte in packed for code in (byte >> 4, byte & 15)][: n * k]
    w = np.array([TABLES[kind][code] * absmax[i // block] for i, code in enumerate(codes)], np.float64)
    return packed, absmax, w.reshape(n, k)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float32, 1e-5), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)])
def test_floats_of_4_bits(kind: int, transposed: int, dtype: Any, epsilon: float) -> None:
    """ONNX Runtime has f32 alone on CPUs, and without transB multiplies by the transpose all the same."""
    packed, absmax, w = _bnb(7, 33, 16, kind)
    a = uniform(2, 3, 33 if transposed else 7, dtype=dtype)
    attrs = {"K": 33, "N": 7, "block_size": 16, "quant_type": kind, "transB": transposed, "training_mode": 1}
    (found,) = computed("MatMulBnb4", [a, packed, absmax.astype(dtype)], **attrs)
    assert found.dtype == np.dtype(dtype)
    wanted = a.astype(np.float64) @ (w.T if transposed else w)
    np.testing.assert_allclose(found.astype(np.float64), wanted, epsilon, 10 * epsilon)


def test_rows_of_a_table_in_bf16_and_of_a_vector() -> None:
    """ONNX Runtime has no bf16 on CPUs, and no table of one axis."""
    q, ids = RNG.integers(0, 256, (5, 32)).astype(np.uint8), np.array([[4, -5], [9, 0]])
    scales = uniform(5, 4, dtype=ml_dtypes.bfloat16)
    (found,) = computed("GatherBlockQuantized", [q, ids, scales], block_size=16)
    whole = np.stack([q & 15, q >> 4], -1).reshape(5, 64).astype(np.float32) - 8
    wanted = (whole * scales.astype(np.float32).repeat(16, 1))[np.where(ids == 9, 0, ids)]
    wanted[1, 0] = 0
    np.testing.assert_array_equal(found, wanted.astype(ml_dtypes.bfloat16))
    line, steps = RNG.integers(-8, 8, 40).astype(ml_dtypes.int4), uniform(3)
    (found,) = computed("GatherBlockQuantized", [line, ids, steps], block_size=16, quantize_axis=0)
    wanted = (line.astype(np.float32) * steps.repeat(16)[:40])[ids]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [(2,), (2, 32)])
def test_an_lstm_of_bytes_is_one_of_what_they_stand_for(dtype: Any, columns: tuple[int, ...]) -> None:
    low = np.iinfo(dtype).min
    w, r = (RNG.integers(low, low + 256, (2, n, 32)).astype(dtype) for n in (9, 8))
    scales = [uniform(*columns) / 300 for _ in range(2)]
    zeros = [RNG.integers(low + 100, low + 150, columns).astype(dtype) for _ in range(2)]
    more = [uniform(2, 64), np.array([3, 4, 1], np.int32), uniform(2, 3, 8), uniform(2, 3, 8), uniform(2, 24)]
    x, attrs = uniform(4, 3, 9), {"direction": "bidirectional", "hidden_size": 8, "clip": 1.5}
    found = computed("DynamicQuantizeLSTM", [x, w, r, *more, scales[0], zeros[0], scales[1], zeros[1]], 3, **attrs)
    real = []
    for q, scale, zero in zip((w, r), scales, zeros):
        step, middle = (v.reshape(2, 1, -1).astype(np.float32) for v in (scale, zero))
        real.append(((q.astype(np.float32) - middle) * step).transpose(0, 2, 1).copy())
    for a, b in zip(found, computed("LSTM", [x, *real, *more], 3, domain="", **attrs), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float32, 1e-5), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)])
def test_a_product_that_is_activated(biased: bool, dtype: Any, epsilon: float) -> None:
    """ONNX Runtime has it on GPUs alone."""
    operands = [uniform(2, 3, 17, dtype=dtype), uniform(17, 33, dtype=dtype), uniform(33, dtype=dtype)]
    x, w, bias = (v.astype(np.float64) for v in operands)
    y = x @ w + bias * biased
    wanted = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    (found,) = computed("GemmFastGelu", operands[: 2 + biased])
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_allclose(found.astype(np.float64), wanted, epsilon, epsilon)


IDS, TABLE, SCALES = np.zeros((2, 3), np.int64), np.zeros((5, 32), np.uint8), np.zeros((5, 2), np.float32)
FOURS, EIGHTS = (np.zeros((5, 32), t) for t in (ml_dtypes.int4, ml_dtypes.float8_e4m3fn))
A, B, ABSMAX = np.zeros((2, 32), np.float32), np.zeros(64, np.uint8), np.zeros(8, np.float32)
BNB = {"K": 32, "N": 4, "block_size": 16, "quant_type": 1}
X, W, R = np.zeros((4, 3, 9), np.float32), np.zeros((1, 9, 32), np.int8), np.zeros((1, 8, 32), np.int8)
ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.int8)
NONE = [None] * 5
NUMBERS, BYTES, LINE = np.zeros((2, 3), np.int32), np.zeros((7, 12), np.uint8), np.zeros(12, np.uint8)
STEPS = [np.float32(1), np.float32(1), None, np.float32(1), np.float32(1)]
MIDDLES = [np.uint8(0), np.uint8(0), None, np.uint8(0), np.uint8(0)]


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"bits": 3, "block_size": 32}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"block_size": 24}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"block_size": 0}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"block_size": 16}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"block_size": 32, "gather_axis": 1}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"block_size": 32, "quantize_axis": 0}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES], {"block_size": 32, "quantize_axis": 2}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES[:1]], {"block_size": 32}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES[0]], {"block_size": 32}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES, TABLE[:, :2]], {"block_size": 32}),
        ("GatherBlockQuantized", [TABLE, IDS, SCALES, FOURS[:, :1]], {"block_size": 32}),
        ("GatherBlockQuantized", [FOURS, IDS, SCALES], {"block_size": 16, "bits": 8}),
        ("GatherBlockQuantized", [FOURS, IDS, SCALES, FOURS[0, :2]], {"block_size": 16}),
        ("GatherBlockQuantized", [EIGHTS, IDS, SCALES, EIGHTS[:, :2]], {"block_size": 16}),
        ("GatherBlockQuantized", [EIGHTS, IDS, SCALES[:2]], {"block_size": 16}),
        ("GatherBlockQuantized", [EIGHTS[:0], IDS, SCALES[:0]], {"block_size": 16}),
        ("GemmFastGelu", [A, A], {}), ("GemmFastGelu", [A, A.T, A[0]], {}), ("GemmFastGelu", [A, A[0], A[0]], {}),
        ("MatMulBnb4", [A, B, ABSMAX], BNB | {"quant_type": 2}),
        ("MatMulBnb4", [A, B, ABSMAX], BNB | {"block_size": 8}),
        ("MatMulBnb4", [A, B, ABSMAX], BNB | {"K": 0}), ("MatMulBnb4", [A, B, ABSMAX], BNB | {"transB": 0}),
        ("MatMulBnb4", [A, B[:-1], ABSMAX], BNB), ("MatMulBnb4", [A, B, ABSMAX[:-1]], BNB),
        ("MatMulBnb4", [A[0, 0], B, ABSMAX], BNB), ("MatMulBnb4", [A, B, ABSMAX], {"K": 32, "N": 4}),
        ("DynamicQuantizeLSTM", [X, W[0], R, *NONE, ONE, ZERO, ONE, ZERO], {"hidden_size": 8}),
        ("DynamicQuantizeLSTM", [X, W, R, *NONE, SCALES, ZERO, ONE, ZERO], {"hidden_size": 8}),
        ("DynamicQuantizeLSTM", [X, W, R, *NONE, ONE[0], ZERO, ONE, ZERO], {"hidden_size": 8}),
        ("DynamicQuantizeLSTM", [X, W, R, *NONE, ONE, ZERO, ONE, ZERO], {"hidden_size": 7}),
        ("DynamicQuantizeLSTM", [X, W, R, *NONE, ONE, ZERO, ONE, ZERO], {"direction": "sideways"}),
        ("DynamicQuantizeLSTM", [X, W, R, *NONE, ONE, ZERO, ONE, ZERO], {"activations": ["Tanh"]}),
        ("DynamicQuantizeLSTM", [X[..., :8], W, R, *NONE, ONE, ZERO, ONE, ZERO], {}),
        ("QEmbedLayerNormalization", [NUMBERS, NUMBERS, BYTES, BYTES, None, LINE, LINE, None, *STEPS, *MIDDLES], {}),
        ("QEmbedLayerNormalization", [NUMBERS, None, BYTES, BYTES, None, LINE[:5], LINE, None, *STEPS, *MIDDLES], {}),
        ("QEmbedLayerNormalization", [NUMBERS[0], None, BYTES, BYTES, None, LINE, LINE, None, *STEPS, *MIDDLES], {}),
        ("QEmbedLayerNormalization", [NUMBERS, None, BYTES, BYTES, None, LINE, LINE, None, SCALES, *STEPS[1:],
                                      *MIDDLES], {}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op: str, operands: list[np.ndarray | None], attrs: dict[str, Any]) -> None:
    with pytest.raises(ParaxError, match=rf"the\.node|{op}"):
        computed(op, operands, 2 if op.startswith("Q") else 1, **attrs)
