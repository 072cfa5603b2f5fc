"""Host operators that pick elements, against onnx.reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from onnx.reference import ReferenceEvaluator

from parax.errors import InvalidInput
from parax.runtime.host_ops import HOST_OPS


def reference(op: str, n_outputs: int, inputs: list[np.ndarray], opset: int = 18, **attrs: Any) -> list[Any]:
    """onnx.reference on one node."""
    names = [f"i{k}" for k in range(len(inputs))]
    outs = [f"o{k}" for k in range(n_outputs)]
    kind = onnx.helper.np_dtype_to_tensor_dtype
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, outs, **attrs)],
        "g",
        [onnx.helper.make_tensor_value_info(n, kind(x.dtype), None) for n, x in zip(names, inputs, strict=True)],
        [onnx.helper.make_tensor_value_info(n, 1, None) for n in outs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


def ours(op: str, inputs: list[Any], domain: str = "", **attrs: Any) -> list[Any]:
    return HOST_OPS[domain, op](attrs)(inputs)


def same(a: list[Any], b: list[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype


small = arrays(np.int64, array_shapes(min_dims=1, max_dims=3, max_side=5), elements=st.integers(-3, 3))


@given(small)
def test_non_zero(x: np.ndarray) -> None:
    same(ours("NonZero", [x]), reference("NonZero", 1, [x]))


def test_non_zero_of_a_scalar() -> None:
    assert ours("NonZero", [np.array(5)])[0].tolist() == [[0]]
    assert ours("NonZero", [np.array(0)])[0].shape == (1, 0)


@given(small, st.booleans(), st.data())
def test_top_k(x: np.ndarray, largest: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    k = np.array([data.draw(st.integers(0, x.shape[axis]))])
    attrs = {"axis": axis, "largest": int(largest), "sorted": 1}
    same(ours("TopK", [x, k], **attrs), reference("TopK", 2, [x, k], **attrs))


def test_top_k_too_many() -> None:
    for k in (-1, 4):
        with pytest.raises(InvalidInput, match="TopK: k out of range"):
            ours("TopK", [np.zeros(3), np.array([k])])


@given(small)
def test_unique_sorted(x: np.ndarray) -> None:
    same(ours("Unique", [x], sorted=1), reference("Unique", 4, [x], sorted=1))
    for axis in range(x.ndim):
        same(ours("Unique", [x], axis=axis, sorted=1), reference("Unique", 4, [x], axis=axis, sorted=1))


@given(arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 3)), elements=st.integers(0, 2)))
def test_unique_of_texts(x: np.ndarray) -> None:
    """As of numbers, by the alphabet."""
    texts = np.array(["a", "b", "ba"], object)
    for axis in (None, 0, 1):
        attrs = {"sorted": 1} if axis is None else {"sorted": 1, "axis": axis}
        values, *places = ours("Unique", [texts[x]], **attrs)
        numbers, *wanted = ours("Unique", [x], **attrs)
        assert np.array_equal(values, texts[numbers])
        same(places, wanted)


@given(arrays(np.int64, st.integers(1, 12), elements=st.integers(-3, 3)))
def test_unique_in_order_of_appearance(x: np.ndarray) -> None:
    values, first, inverse, counts = ours("Unique", [x], sorted=0)
    assert values.tolist() == list(dict.fromkeys(x.tolist()))
    assert np.array_equal(x[first], values)
    assert np.array_equal(values[inverse], x)
    assert counts.sum() == x.size
    same([values, first, inverse, counts], reference("Unique", 4, [x], sorted=0))


@given(small, st.data())
def test_compress(x: np.ndarray, data: st.DataObject) -> None:
    for axis in (None, *range(x.ndim)):
        length = x.size if axis is None else x.shape[axis]
        condition = np.array(data.draw(st.lists(st.booleans(), min_size=1, max_size=length)))
        attrs = {} if axis is None else {"axis": axis}
        same(ours("Compress", [x, condition], **attrs), reference("Compress", 1, [x, condition], **attrs))
    with pytest.raises(InvalidInput):
        ours("Compress", [x, np.ones(x.size + 1, bool)])


def test_chosen_boxes() -> None:
    picks = np.array([[[4, 2, 9], [9, 9, 9]], [[1, 9, 9], [7, 3, 0]]], np.int32)
    (found,) = ours("ChosenBoxes", [picks, np.array([[2, 0], [1, 3]])], domain="parax")
    assert found.tolist() == [[0, 0, 4], [0, 0, 2], [1, 0, 1], [1, 1, 7], [1, 1, 3], [1, 1, 0]]
    (found,) = ours("ChosenBoxes", [np.zeros((0, 0, 5), np.int32), np.zeros((0, 0), np.int64)], domain="parax")
    assert found.shape == (0, 3)


def test_one_number_is_one_number() -> None:
    with pytest.raises(InvalidInput, match="one number"):
        ours("TopK", [np.ones(3, np.float32), np.zeros(0, np.int64)])
