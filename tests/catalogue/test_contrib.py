"""Operators of ONNX Runtime that it does not have on CPUs, or not in every type and form, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import erf
from typing import Any

import numpy as np
import pytest

from backend.harness import run_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import DType, TensorType
from parax.errors import ParaxError

RNG = np.random.default_rng(5)


def computed(op: str, operands: Sequence[np.ndarray | None], outputs: int = 1, domain: str = "com.microsoft",
             **attrs: Any) -> list[np.ndarray]:  # fmt: skip
    """What an operator gives for operands that are known at run time."""
    graph, feeds, values = Graph("case"), {}, []
    for i, operand in enumerate(operands):
        if operand is None:
            values.append(None)
            continue
        values.append(graph.add_input(f"x{i}", TensorType(DType.from_numpy(operand.dtype), operand.shape)))
        feeds[f"x{i}"] = operand
    node = graph.add_node(lookup(domain, op).from_attributes(attrs), values, n_outputs=outputs, name="the.node")
    graph.set_outputs(node.outputs)
    return run_graph(graph, feeds, {})


def uniform(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype(dtype)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x * np.sqrt(0.5)))


@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float32, 1e-5), (np.float16, 5e-3)])
def test_activations_of_images(dtype: Any, epsilon: float) -> None:
    x, bias, skip = uniform(2, 5, 34, dtype=dtype), uniform(34, dtype=dtype), uniform(2, 5, 34, dtype=dtype)
    wide = x.astype(np.float64) + bias
    (found,) = computed("BiasAdd", [x, bias, skip])
    np.testing.assert_allclose(found.astype(np.float64), wide + skip, epsilon, epsilon)
    (found,) = computed("BiasSplitGelu", [x, bias])
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), wide[..., :17] * gelu(wide[..., 17:]), epsilon, epsilon)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_statistics_and_the_sum_of_a_normalisation(op: str) -> None:
    """ONNX Runtime leaves the statistics unwritten on CPUs."""
    x, skip, gamma, bias = uniform(2, 3, 17), uniform(2, 3, 17), uniform(17), uniform(17)
    beta = [None] if op == "SkipLayerNormalization" else []
    y, mean, deviation, total = computed(op, [x, skip, gamma, *beta, bias], 4, epsilon=1e-3)
    wanted = x.astype(np.float64) + skip + bias
    middle = wanted.mean(-1, keepdims=True)
    centred = wanted - middle if beta else wanted
    inverse = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(total, wanted, 1e-5, 1e-5)
    np.testing.assert_allclose(mean, middle, 1e-5, 1e-5)
    np.testing.assert_allclose(deviation, inverse, 1e-5, 1e-5)
    np.testing.assert_allclose(y, centred * inverse * gamma, 1e-4, 1e-5)


def quantised(y: np.ndarray, scale: float, zero: int, dtype: Any) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y / scale) + zero, limits.min, limits.max)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_quantised_mean(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, (2, 3, 7), dtype)
    one = partial(np.asarray, dtype=np.float32)
    for axes, keepdims in (([1], 1), ([-1, 0], 0), ([], 1)):
        (found,) = computed("QLinearReduceMean", [x, one(0.05), dtype(3), one(0.02), dtype(5)], axes=axes,
                            keepdims=keepdims)  # fmt: skip
        mean = ((x.astype(np.float64) - 3) * 0.05).mean(tuple(axes) or None, keepdims=bool(keepdims))
        assert found.dtype == dtype and found.shape == mean.shape
        assert np.abs(found - quantised(mean, 0.02, 5, dtype)).max() <= 1


def test_zero_points_may_be_left_out() -> None:
    """ONNX Runtime's types of results do not reckon with it."""
    a, b = (RNG.integers(0, 256, 33, np.uint8) for _ in range(2))
    (found,) = computed("QLinearAdd", [a, np.float32(0.05), None, b, np.float32(0.02), None, np.float32(0.06)])
    assert np.abs(found - quantised(a * 0.05 + b * 0.02, 0.06, 0, np.uint8)).max() <= 1
    (found,) = computed("QLinearSigmoid", [a, np.float32(0.05), None, np.float32(1 / 256)])
    assert np.abs(found - quantised(1 / (1 + np.exp(-0.05 * a)), 1 / 256, 0, np.uint8)).max() <= 1


def test_packed_heads_are_those_apart() -> None:
    """ONNX Runtime takes packed operands on GPUs alone."""
    q, k, v = (uniform(2, 5, 3, 8) for _ in range(3))
    bias, mask = uniform(72), np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    flat = [x.reshape(2, 5, 24) for x in (q, k, v)]
    (wanted,) = computed("MultiHeadAttention", [*flat, bias, mask], num_heads=3)
    packed = [np.stack([q, k, v], 3), None, None, bias, mask]
    np.testing.assert_allclose(computed("MultiHeadAttention", packed, num_heads=3)[0], wanted, 1e-5, 1e-5)
    packed = [flat[0], np.stack([k, v], 3), None, bias, mask]
    np.testing.assert_allclose(computed("MultiHeadAttention", packed, num_heads=3)[0], wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("causal", [0, 1])
def test_a_mask_of_4_axes_is_read_behind_the_past(causal: int) -> None:
    """ONNX Runtime takes them on GPUs alone."""
    x, weights, past = uniform(2, 2, 7), uniform(7, 72), uniform(2, 2, 3, 4, 8)
    mask = RNG.integers(0, 2, (2, 1, 9, 9)).astype(np.int32)
    mask[..., 0] = 1
    attrs = {"num_heads": 3, "unidirectional": causal}
    found = computed("Attention", [x, weights, None, mask, past], **attrs)[0]
    wanted = computed("Attention", [x, weights, None, mask[:, 0, 4:6, :6], past], **attrs)[0]
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_normed_heads_are_those_that_were_normed_before() -> None:
    """ONNX Runtime norms queries and keys on GPUs alone."""
    q, k, v = uniform(2, 1, 64), uniform(2, 1, 32), uniform(2, 1, 32)
    past, weights = uniform(2, 2, 6, 16), uniform(2, 16)
    rest = [past, past, np.array([6, 4], np.int32), np.array(7, np.int32), *uniform(2, 9, 8)]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}

    def normed(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
        heads = x.reshape(2, 1, -1, 16)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weight).reshape(x.shape)

    wanted = _grouped([normed(q, weights[0], 0.1), normed(k, weights[1], 0.01), v, *rest], attrs)
    found = _grouped([q, k, v, *rest, *[None] * 5, *weights], {**attrs, "qk_norm_epsilon": 0.1, "k_norm_epsilon": 0.01})
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


def _grouped(operands: Sequence[np.ndarray | None], attrs: dict[str, Any]) -> list[np.ndarray]:
    """GroupQueryAttention, whose total length must be a constant."""
    graph, feeds, values = Graph("case"), {}, []
    for i, operand in enumerate(operands):
        if operand is None or i == 6:
            values.append(None if operand is None else graph.add_constant(operand))
            continue
        values.append(graph.add_input(f"x{i}", TensorType(DType.from_numpy(operand.dtype), operand.shape)))
        feeds[f"x{i}"] = operand
    op = lookup("com.microsoft", "GroupQueryAttention").from_attributes(attrs)
    graph.set_outputs(graph.add_node(op, values, n_outputs=3, name="the.node").outputs)
    return run_graph(graph, feeds, {})


FORM = {"num_heads": 4, "kv_num_heads": 2}
NEW, KEYS, CACHED = (np.zeros(shape, np.float32) for shape in ((2, 3, 32), (2, 3, 16), (2, 2, 5, 8)))
ENDS, TOTAL = np.array([2, 2], np.int32), np.array(3, np.int32)


@pytest.mark.parametrize(
    ("operands", "attrs"),
    [
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"kv_num_heads": 3}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"kv_num_heads": 0}),
        ([NEW, KEYS, KEYS[..., :8], None, None, ENDS, TOTAL], {}), ([NEW, KEYS, None, None, None, ENDS, TOTAL], {}),
        ([NEW, KEYS, KEYS, CACHED, None, ENDS, TOTAL], {}), ([NEW, KEYS, KEYS, CACHED, CACHED[:, :1], ENDS, TOTAL], {}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL + 1], {}), ([NEW, KEYS, KEYS, CACHED, CACHED, ENDS, TOTAL + 6], {}),
        ([NEW, KEYS, KEYS, None, None, ENDS[:1], TOTAL], {}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"causal": 2}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"causal": 0, "local_window_size": 2}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"local_window_size": 0}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"do_rotary": 1}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"sliding_window_cache": 1}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"qk_output": 1}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL], {"k_quant_type": "PER_TENSOR"}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL, *[None] * 4, np.zeros(3, np.float32)], {}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL, *[None] * 7, np.zeros(8, np.float32)], {}),
        ([NEW, KEYS, KEYS, None, None, ENDS, TOTAL, *[None] * 3, np.zeros((2, 4, 3, 4), np.float32)], {}),
        ([NEW[..., :30], None, None, None, None, ENDS, TOTAL], {}),
    ],
)  # fmt: skip
def test_grouped_attention_that_does_not_fit(operands: list[np.ndarray | None], attrs: dict[str, Any]) -> None:
    with pytest.raises(ParaxError, match=r"the\.node"):
        _grouped(operands, FORM | attrs)


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_halves_are_rounded_once(op: str) -> None:
    """ONNX Runtime has them on GPUs alone."""
    shapes = [(2, 5, 7), (7, 72), (72,)] if op == "Attention" else [(2, 5, 24), (2, 4, 24), (2, 4, 24), (72,)]
    halves = [uniform(*shape, dtype=np.float16) for shape in shapes]
    found = computed(op, halves, num_heads=3)[0]
    wanted = computed(op, [x.astype(np.float32) for x in halves], num_heads=3)[0]
    np.testing.assert_array_equal(found, wanted.astype(np.float16))


X = np.zeros((2, 3, 8), np.float32)
LINE = np.zeros(8, np.float32)
CACHE = np.zeros((9, 4), np.float32)
IDS = np.zeros((2, 3), np.int32)
W, OLD = np.zeros((8, 24), np.float32), np.zeros((2, 2, 2, 4, 4), np.float32)
Q, ONE, ZERO = np.zeros((2, 3, 8), np.uint8), np.float32(1), np.uint8(0)


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("BiasGelu", [X, LINE[:7]], {}), ("BiasGelu", [X, X], {}), ("FastGelu", [LINE[0], LINE], {}),
        ("BiasSplitGelu", [X[..., :7], LINE[:7]], {}), ("BiasAdd", [X, LINE, X[:1]], {}),
        ("FusedMatMul", [X[0], LINE], {"transBatchA": 1}), ("FusedMatMul", [X, X], {}),
        ("SkipLayerNormalization", [X, X[:, :2], LINE], {}), ("SkipLayerNormalization", [X, X, LINE[:4]], {}),
        ("SkipLayerNormalization", [LINE, LINE, LINE], {}), ("SkipLayerNormalization", [X, LINE, LINE], {}),
        ("SkipSimplifiedLayerNormalization", [X, X, X[0]], {}),
        ("EmbedLayerNormalization", [IDS, IDS, CACHE, CACHE, None, LINE[:4], LINE[:4]], {}),
        ("EmbedLayerNormalization", [IDS[0], None, CACHE, CACHE, None, LINE[:4], LINE[:4]], {}),
        ("EmbedLayerNormalization", [IDS, None, CACHE, CACHE, None, LINE, LINE[:4]], {}),
        ("RotaryEmbedding", [X, np.zeros(2, np.int64), CACHE, CACHE], {}),
        ("RotaryEmbedding", [X[..., :7], np.zeros((2, 3), np.int64), CACHE, CACHE], {}),
        ("RotaryEmbedding", [X, np.zeros(1, np.int64), CACHE, CACHE], {"scale": 2.0}),
        ("RotaryEmbedding", [X, np.zeros(1, np.int64), CACHE, CACHE], {"is_packed_batching": 1}),
        ("RotaryEmbedding", [X, np.zeros(1, np.int64), CACHE, CACHE], {"rotary_embedding_dim": 4}),
        ("RotaryEmbedding", [X, np.zeros(1, np.int64), CACHE, CACHE], {"num_heads": 3}),
        ("QLinearAdd", [Q, LINE, ZERO, Q, ONE, ZERO, ONE, ZERO], {}),
        ("QLinearAdd", [Q, ONE, ZERO, Q[..., :7], ONE, ZERO, ONE, ZERO], {}),
        ("QLinearMul", [Q, ONE, ZERO, Q.astype(np.int8), ONE, np.int8(0), ONE, ZERO], {}),
        ("QLinearSoftmax", [Q, ONE, ZERO, ONE, ZERO], {"opset": 13, "axis": 3}),
        ("QLinearSoftmax", [Q, ONE, ZERO, ONE, ZERO], {"opset": 0}), ("QLinearSoftmax", [Q, ONE, ZERO, ONE, ZERO], {}),
        ("QLinearReduceMean", [Q, ONE, ZERO, ONE, ZERO], {"axes": [4], "keepdims": 1}),
        ("QLinearAveragePool", [Q[0], ONE, ZERO, ONE, ZERO], {"kernel_shape": [2]}),
        ("QLinearAveragePool", [Q, ONE, ZERO, ONE, ZERO], {"kernel_shape": [2, 2]}),
        ("QLinearAveragePool", [Q, ONE, ZERO, ONE, ZERO], {"kernel_shape": [2], "auto_pad": "some"}),
        ("QLinearGlobalAveragePool", [Q[0, 0], ONE, ZERO, ONE, ZERO], {}),
        ("QLinearConcat", [ONE, ZERO, Q, ONE], {"axis": 0}), ("QLinearConcat", [ONE, ZERO, Q, ONE, ONE], {"axis": 0}),
        ("QLinearConcat", [ONE, ZERO, Q, ONE, ZERO], {"axis": 3}),
        ("QLinearConcat", [ONE, ZERO, Q, LINE, ZERO], {"axis": 0}),
        ("QLinearWhere", [Q, Q, ONE, ZERO, Q, ONE, ZERO, ONE, ZERO], {}),
        ("QGemm", [Q, ONE, ZERO, Q, ONE, ZERO], {}), ("QGemm", [Q[0], ONE, ZERO, Q[0], ONE, ZERO], {}),
        ("QGemm", [Q[0], ONE, ZERO, Q[0], LINE[:2], ZERO], {"transB": 1}),
        ("QGemm", [Q[0], ONE, ZERO, Q[0], ONE, ZERO, np.zeros(2, np.int32)], {"transB": 1}),
        ("QGemm", [Q[0], ONE, ZERO, Q[0], ONE, ZERO, None, None, ZERO], {"transB": 1}),
        ("MatMulIntegerToFloat", [Q, Q[0].T, LINE[:2], ONE], {}),
        ("MatMulIntegerToFloat", [Q, Q[0].T, ONE, LINE], {}), ("MatMulIntegerToFloat", [Q, Q[0], ONE, ONE], {}),
        ("DynamicQuantizeMatMul", [X, Q[0].T, ONE, ZERO, LINE], {}), ("DynamicQuantizeMatMul", [X, Q[0, 0], ONE], {}),
        ("QLinearConv", [Q[0], ONE, ZERO, Q, ONE, ZERO, ONE, ZERO], {"channels_last": 1}),
        ("Attention", [X, W], {"num_heads": 3}), ("Attention", [X, W], {"num_heads": 0}), ("Attention", [X, W], {}),
        ("Attention", [X[0], W], {"num_heads": 2}), ("Attention", [X[..., :7], W], {"num_heads": 2}),
        ("Attention", [X, W[:, :23]], {"num_heads": 2}), ("Attention", [X, W, LINE], {"num_heads": 2}),
        ("Attention", [X, W], {"num_heads": 2, "qkv_hidden_sizes": [8, 8]}),
        ("Attention", [X, W], {"num_heads": 2, "qkv_hidden_sizes": [4, 8, 12]}),
        ("Attention", [X, W], {"num_heads": 2, "do_rotary": 1}),
        ("Attention", [X, W], {"num_heads": 2, "past_present_share_buffer": 1}),
        ("Attention", [X, W, None, np.zeros(3, np.int32)], {"num_heads": 2}),
        ("Attention", [X, W, None, np.zeros((2, 2), np.int32)], {"num_heads": 2}),
        ("Attention", [X, W, None, np.zeros((2, 2, 3), np.int32)], {"num_heads": 2}),
        ("Attention", [X, W, None, np.zeros((2, 1, 2, 2), np.int32)], {"num_heads": 2}),
        ("Attention", [X, W, None, IDS, OLD], {"num_heads": 2}),
        ("Attention", [X, W, None, None, OLD], {"num_heads": 4}),
        ("Attention", [X, W, None, None, None, X], {"num_heads": 2}),
        ("QAttention", [Q, Q[0].T, LINE[:3], ONE, ONE], {"num_heads": 2}),
        ("QAttention", [Q, np.zeros((8, 24), np.uint8), LINE, ONE, ONE], {"num_heads": 2}),
        ("MultiHeadAttention", [X], {"num_heads": 2}), ("MultiHeadAttention", [X, X], {"num_heads": 2}),
        ("MultiHeadAttention", [X, X, X], {"num_heads": 3}),
        ("MultiHeadAttention", [X, X[..., :4], X], {"num_heads": 2}),
        ("MultiHeadAttention", [X, X, X[:, :2]], {"num_heads": 2}),
        ("MultiHeadAttention", [X, LINE, X], {"num_heads": 2}),
        ("MultiHeadAttention", [X, X, X, LINE], {"num_heads": 2}), ("MultiHeadAttention", [X, X, X], {"num_heads": -1}),
        ("MultiHeadAttention", [X, X, X, None, None, None, OLD[0]], {"num_heads": 2}),
        ("MultiHeadAttention", [X, X, X, None, None, None, OLD[0], OLD[0, :1]], {"num_heads": 2}),
        ("MultiHeadAttention", [X, X, X, None, IDS[:, :2]], {"num_heads": 2}),
        ("MultiHeadAttention", [X, X, X, None, None, None, OLD[0], OLD[0], IDS[0]], {"num_heads": 2}),
        ("MultiHeadAttention", [np.zeros((2, 3, 2, 2, 4), np.float32)], {"num_heads": 2}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op: str, operands: list[np.ndarray | None], attrs: dict[str, Any]) -> None:
    with pytest.raises(ParaxError, match=rf"the\.node|{op}"):
        computed(op, operands, **attrs)
