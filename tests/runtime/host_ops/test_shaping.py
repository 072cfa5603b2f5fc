"""Data movement with parameters that only the run knows, compiled and run, against onnx.reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import parax
from parax.compiler.frontend.oracle import oracle

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
    ("OneHot", [ints(1), ints(0), np.array([0, 1])]),
])  # fmt: skip
def test_bad_parameters_are_refused(kind: str, operands: list[Any]) -> None:
    model = model_of(kind, operands, {}, 2 if kind in ("TopK", "Split") else 1)
    with pytest.raises(parax.InvalidInput):
        run(model, operands)


@pytest.mark.parametrize("kind, operands", [
    ("Expand", [X, ints(2**40, 2**40, 4, 5)]), ("Range", [np.array(0), np.array(2**60), np.array(1)]),
    ("Pad", [X, ints(2**40, 0, 0, 0, 0, 0)]),
])  # fmt: skip
def test_results_beyond_all_memory_are_refused(kind: str, operands: list[Any]) -> None:
    with pytest.raises(parax.ResourceLimit):
        run(model_of(kind, operands, {}, 1), operands)
