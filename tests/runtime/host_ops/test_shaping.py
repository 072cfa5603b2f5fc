"""Data movement with parameters that only the run knows, compiled and run, against onnx.reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import parax
from parax.compiler.frontend.oracle import oracle
from parax.runtime.host_ops.resample import resize
from parax.runtime.host_ops.shaping import KINDS

X = np.random.default_rng(3).normal(size=(3, 4, 5)).astype(np.float32)
IMAGE = np.random.default_rng(4).normal(size=(1, 2, 4, 6)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: list[tuple[str, list[Any], Mapping[str, Any]]] = [
    ("Slice", [X, ints(1, -1), ints(3, -9), ints(0, 2), ints(1, -2)], {}),
    ("Slice", [X, ints(0), ints(2)], {}),
    ("Pad", [X, ints(0, 1, 2, 1, 0, 0)], {}),
    ("Pad", [X, ints(1, 2), np.array(1.5, np.float32), ints(1)], {}),
    ("Pad", [X, ints(0, 1, 2, 0, 0, 1)], {"mode": "reflect"}),
    ("MaxUnpool", [IMAGE[:, :, :2, :2], ints(0, 5, 9, 15, 16, 20, 26, 31).reshape(1, 2, 2, 2), ints(1, 2, 4, 5)],
     {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("Expand", [X[:, :1], ints(2, 1, 4, 1)], {}),
    ("Tile", [X, ints(2, 1, 3)], {}),
    ("Reshape", [X, ints(0, -1)], {}),
    ("Squeeze", [X[:, :1], ints(-2)], {}),
    ("Unsqueeze", [X, ints(0, -1)], {}),
    ("ConstantOfShape", [ints(2, 3)], {"value": helper.make_tensor("v", 6, [1], [7])}),
    ("Range", [np.array(1, np.int32), np.array(-9, np.int32), np.array(-3, np.int32)], {}),
    ("Range", [np.array(0.5, np.float32), np.array(3, np.float32), np.array(0.75, np.float32)], {}),
    ("TopK", [X, ints(2)], {"axis": 1, "largest": 0}),
    ("OneHot", [ints(1, -1, 7), np.array(4), np.array([-1, 1], np.float32)], {"axis": 0}),
    ("Split", [X, ints(1, 3)], {"axis": 1}),
    ("Col2Im", [X[:, :, :4], ints(3, 3), ints(2, 2)], {}),
    *(("Resize", [IMAGE, None, np.array([1, 1, 0.6, 1.7], np.float32)], {"mode": m, "antialias": a})
      for m in ("linear", "cubic") for a in (0, 1)),
    ("Resize", [IMAGE, None, None, ints(1, 2, 7, 3)], {"coordinate_transformation_mode": "asymmetric"}),
    ("Resize", [IMAGE, None, None, ints(7, 8)], {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
]


def model_of(kind: str, operands: list[Any], attributes: Mapping[str, Any], outputs: int) -> onnx.ModelProto:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, names, results, **attributes)
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
              for n, x in zip(names, operands, strict=True) if x is not None]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(r) for r in results])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(model: onnx.ModelProto, operands: list[Any]) -> list[np.ndarray]:
    feeds = {f"x{i}": x for i, x in enumerate(operands) if x is not None}
    with parax.compile(model).session(instances=1, cores_per_instance=1) as session:
        return list(session.run(feeds).values())


@pytest.mark.parametrize("kind, operands, attributes", CASES, ids=lambda p: p if isinstance(p, str) else "")
def test_parameters_known_at_run_time(kind: str, operands: list[Any], attributes: Mapping[str, Any]) -> None:
    model = model_of(kind, operands, attributes, 2 if kind in ("TopK", "Split") else 1)
    wanted = oracle(model, "reference")({f"x{i}": x for i, x in enumerate(operands) if x is not None})
    for found, expected in zip(run(model, operands), wanted.values(), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("kind, operands", [
    ("Slice", [X, ints(0), ints(2), ints(0), ints(0)]), ("Slice", [X, ints(0), ints(2), ints(9)]),
    ("Reshape", [X, ints(7, -1)]), ("Reshape", [X, ints(-1, -1)]), ("Reshape", [X, ints(-2, 30)]),
    ("Expand", [X, ints(7)]), ("Tile", [X, ints(-1, 1, 1)]), ("Split", [X, ints(2, 2)]),
    ("ConstantOfShape", [ints(-1)]),
    ("Range", [np.array(0), np.array(2), np.array(0)]), ("TopK", [X, ints(99)]), ("Squeeze", [X, ints(0)]),
    ("OneHot", [ints(1), ints(0), np.array([0, 1])]), ("OneHot", [ints(1), np.array([np.nan]), np.array([0, 1])]),
    ("OneHot", [ints(1), np.array([np.inf]), np.array([0, 1])]), ("OneHot", [ints(1), ints(2), np.array([0, 1, 2])]),
    ("OneHot", [ints(1), ints(), np.array([0, 1])]), ("TopK", [X, ints()]), ("Pad", [X, ints(*[0] * 6), X[0, 0, :0]]),
    ("Range", [np.array(0), ints(), np.array(1)]),
    ("Resize", [IMAGE, np.float32([0] * 7 + [np.nan]), np.float32([1, 1, 2, 2])]),
    ("Resize", [IMAGE, np.float32([0] * 7), np.float32([1, 1, 2, 2])]), ("Resize", [IMAGE, None, np.float32([1] * 4)]),
    ("MaxUnpool", [IMAGE[:, :, :1, :1], ints(0, 8).reshape(1, 2, 1, 1), ints(1, 2, 2, 1)]),
    ("MaxUnpool", [IMAGE[:, :, :1, :1], ints(0), ints(1, 2, 2, 2)]),
])  # fmt: skip
def test_bad_parameters_are_refused(kind: str, operands: list[Any]) -> None:
    settings: dict[str, Any] = {"Resize": {"coordinate_transformation_mode": "tf_crop_and_resize"},
                                "MaxUnpool": {"kernel_shape": [2, 2]}}  # fmt: skip
    model = model_of(kind, operands, settings.get(kind, {}), 2 if kind in ("TopK", "Split") else 1)
    with pytest.raises(parax.InvalidInput):
        run(model, operands)


@pytest.mark.parametrize("pads, expected", [
    ((5, -4), [0, 0, 0, 0]), ((-4, 5), [0, 0, 0, 0]), ((5, -2), [0, 0, 0, 0, 0, 1]), ((-2, 1), [3, 0]),
    ((1, -4), []), ((2**62, -(2**62)), [0, 0, 0]),
])  # fmt: skip
def test_a_side_may_be_cut_by_more_than_there_is(pads: tuple[int, int], expected: list[int]) -> None:
    assert KINDS["Pad"]({}, np.array([1, 2, 3]), ints(*pads)).tolist() == expected


def test_texts_are_padded_with_empty_ones() -> None:
    padded = KINDS["Pad"]({}, np.array(["a"], object), ints(1, 1)).tolist()
    assert padded == ["", "a", ""] and {type(text) for text in padded} == {str}


@pytest.mark.parametrize("sizes", [1, 3])
def test_split_needs_a_size_for_each_output(sizes: int) -> None:
    model = model_of("Split", [X[:sizes], ints(*[1] * sizes)], {}, 2)
    with pytest.raises(parax.InvalidModel, match="a size for each output"):
        parax.compile(model)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(parax.InvalidInput, match="a size for each output"):
        run(model, [X[:sizes], ints(*[1] * sizes)])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_leaves_alone_what_does_not_read_infinity(mode: str) -> None:
    x = np.arange(12, dtype=np.float32)
    settings, sizes = {"mode": mode, "antialias": 1}, ints(6)
    finite = resize(settings, x, None, None, sizes)
    x[0] = np.inf
    found = resize(settings, x, None, None, sizes)
    assert found[0] == np.inf
    np.testing.assert_array_equal(found[2:], finite[2:])


def test_antialias_rounds_integers_and_may_leave_nothing() -> None:
    x = np.array([0, 255, 255, 0, 0, 0, 255, 254, 3, 200, 100, 7], np.uint8)
    settings = {"mode": "linear", "antialias": 1}
    assert resize(settings, x, None, None, ints(6)).tolist() == [128, 128, 32, 191, 120, 66]
    assert resize(settings, x, None, np.array([1e-30], np.float32), None).shape == (0,)


@pytest.mark.parametrize("indices", [np.array([2**64 - 1, 1], np.uint64), np.array([255, 1], np.uint8)])
def test_unsigned_indices_are_never_negative(indices: np.ndarray) -> None:
    operands = [indices, np.array(4), np.array([0, 1], np.float32)]
    model = model_of("OneHot", operands, {}, 1)
    constant = model_of("OneHot", operands, {}, 1)
    constant.graph.initializer.append(numpy_helper.from_array(operands[1], "x1"))
    del constant.graph.input[1]
    for found in (run(model, operands), run(constant, [indices, None, operands[2]])):
        assert found[0].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("kind, operands", [
    ("Expand", [X, ints(2**40, 2**40, 4, 5)]), ("Range", [np.array(0), np.array(2**60), np.array(1)]),
    ("Pad", [X, ints(2**40, 0, 0, 0, 0, 0)]), ("Range", [np.array(0.0), np.array(1e300), np.array(1e-300)]),
    ("Expand", [X[:0, :1, :1], ints(0, 2**40, 2**40)]), ("Tile", [X[:0, :1, :1], ints(1, 2**40, 2**40)]),
    ("ConstantOfShape", [ints(0, 2**63 - 1)]), ("Resize", [IMAGE, None, np.float32([1, 1, 3e38, 2])]),
    ("Reshape", [X[0, 0, :1], ints(*[1] * 70)]),
])  # fmt: skip
def test_results_beyond_all_memory_are_refused(kind: str, operands: list[Any]) -> None:
    with pytest.raises(parax.ResourceLimit):
        run(model_of(kind, operands, {}, 1), operands)
