"""Rows of elements narrower than 32 bits whose last vector holds a lane or two: nothing is written behind them.

LLVM 22.1 stored a last lane of its own too widely (backend/llvm_memory.py): over the row behind, and behind the output.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax

ROWS = 5
BEHIND = 64
LENGTHS = (1, 17, 33)


def model(nodes: list, source: int, to: int, length: int, constants: dict[str, np.ndarray]) -> bytes:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "rows", [value("x", source, ["N", length])], [value("y", to, ["N", length])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()])  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def run(graph: bytes, x: np.ndarray, dtype: Any, level: int) -> np.ndarray:
    """The result; fails where bytes behind it were changed."""
    memory = np.full(x.size * np.dtype(dtype).itemsize + BEHIND, 0x5A, np.uint8)
    result = memory[:-BEHIND].view(dtype).reshape(x.shape)
    plan = parax.compile(graph, options=parax.CompileOptions(opt_level=level))
    with plan.session(instances=1) as session:
        session.run({"x": x}, out={"y": result})
    changed = np.flatnonzero(memory[-BEHIND:] != 0x5A)
    assert not changed.size, f"bytes {changed.tolist()} behind the result were changed"
    return result


@pytest.mark.parametrize("level", (0, 2))
@pytest.mark.parametrize("length", LENGTHS)
def test_bf16_rows_in_place(length: int, level: int) -> None:
    """Each kernel reads what the one before left in the same memory."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, length)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal(length).astype(ml_dtypes.bfloat16)
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Add", ["a", "b"], ["c"]),
             helper.make_node("Softmax", ["c"], ["d"]), helper.make_node("Add", ["d", "b"], ["e"]),
             helper.make_node("Neg", ["e"], ["y"])]  # fmt: skip
    found = run(model(nodes, TensorProto.BFLOAT16, TensorProto.BFLOAT16, length, {"b": b}), x, x.dtype, level)
    wide = np.exp(np.abs(x.astype(np.float64)) + b.astype(np.float64))
    expected = -(wide / wide.sum(1, keepdims=True) + b.astype(np.float64))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("level", (0, 2))
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_quantised_by_axis(length: int, level: int) -> None:
    x = (np.random.default_rng(0).standard_normal((ROWS, length)) * 10).astype(np.float32)
    constants = {"s": np.full(length, 0.25, np.float32), "z": np.ones(length, np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=1)]
    found = run(model(nodes, TensorProto.FLOAT, TensorProto.INT8, length, constants), x, np.int8, level)
    np.testing.assert_array_equal(found, np.clip(np.rint(x / np.float32(0.25)) + 1, -128, 127).astype(np.int8))


@pytest.mark.parametrize("source, to", ((np.float32, np.int8), (np.float32, np.uint16), (np.int64, np.int32)))
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_cast_after_a_sum(source: Any, to: Any, length: int) -> None:
    """A row is added, so that the loop is by rows, with a tail each."""
    x = np.random.default_rng(0).integers(0, 100, (ROWS, length)).astype(source)
    code = [helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (source, to)]
    nodes = [helper.make_node("Add", ["x", "c"], ["q"]), helper.make_node("Cast", ["q"], ["y"], to=code[1])]
    found = run(model(nodes, *code, length, {"c": np.arange(length).astype(source)}), x, to, 2)
    np.testing.assert_array_equal(found, np.clip(x + np.arange(length), 0, np.iinfo(to).max).astype(to))
