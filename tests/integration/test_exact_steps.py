"""What rounds or compares comes out as if every operator before it had been rounded by itself, as IEEE 754 says.

Sums, products, quotients and roots of two numbers have one right result each. A compiler that takes another way is off
by the last bit, which floors, casts, comparisons and quantisation turn into another whole number; and quotients that
are whole, or half-way between whole numbers, are what positions and quantised values are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import parax
from sampling import thorough

f32 = np.float32
SHAPE = (6, 40)
Step = tuple[str, list[np.ndarray | None], dict[str, Any], Callable[..., np.ndarray]]
"""Operator, operands beside the value so far (None: the graph's input), attributes, and what it computes."""

CONSTANTS = st.sampled_from([0.1, 0.3, 0.7, 3.0, 5.0, 41.0, 49.0, 255.0, 0.0123, 1e-3, 8.0, 12582912.0, 1e20, 1e-20])
ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
}  # fmt: skip


def _cast(x: np.ndarray) -> np.ndarray:
    return np.trunc(np.clip(x, -1e9, 1e9)).astype(np.int64)


def _quantized(scale: float) -> Step:
    def compute(x: np.ndarray, s: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(x / s) + f32(z), -128, 127).astype(np.int8)

    return "QuantizeLinear", [np.array(scale, f32), np.array(3, np.int8)], {}, compute


@st.composite
def arithmetic(draw: st.DrawFn) -> Step:
    op, c = draw(st.sampled_from(sorted(ARITHMETIC))), f32(draw(CONSTANTS)) * draw(st.sampled_from([1, 1, -1]))
    if op in ("Add", "Sub") and draw(st.integers(0, 3)) == 0:
        return op, [None], {}, ARITHMETIC[op]
    if draw(st.booleans()) and abs(c) < 1e6:
        c = c * np.arange(1, SHAPE[1] + 1, dtype=f32)
    return op, [np.asarray(c, f32)], {}, ARITHMETIC[op]




MOVES: list[list[Step]] = [
    [("Transpose", [], {"perm": [1, 0]}, np.transpose), ("Transpose", [], {"perm": [1, 0]}, np.transpose)],
    [("Unsqueeze", [np.array([0])], {}, lambda x, a: x[None]), ("Squeeze", [np.array([0])], {}, lambda x, a: x[0])],
    [("Reshape", [np.array([40, 6])], {}, lambda x, s: x.reshape(40, 6)),
     ("Reshape", [np.array([6, 40])], {}, lambda x, s: x.reshape(6, 40))],
    [("Relu", [], {}, lambda x: np.maximum(x, 0))],
    [("Neg", [], {}, np.negative)],
    [("Abs", [], {}, np.abs)],
    [("ReduceMax", [np.array([1])], {"keepdims": 1}, lambda x, a: x.max(1, keepdims=True)),
     ("Expand", [np.array(SHAPE)], {}, lambda x, s: np.broadcast_to(x, SHAPE))],
]  # fmt: skip
JUMPS: list[Step] = [
    ("Floor", [], {}, np.floor), ("Ceil", [], {}, np.ceil), ("Round", [], {}, np.rint),
    ("Cast", [], {"to": TensorProto.INT64}, _cast), ("Sign", [], {}, np.sign),
    ("Equal", [np.array(2, f32)], {}, np.equal), ("Less", [np.array(2, f32)], {}, np.less),
    ("GreaterOrEqual", [np.array(0.5, f32)], {}, np.greater_equal),
    ("ArgMax", [], {"axis": 1}, lambda x: x.argmax(1)[:, None]),
    ("Cast", [], {"to": TensorProto.FLOAT16}, lambda x: x.astype(np.float16)),
    _quantized(1.0), _quantized(0.3), _quantized(0.0246),
]  # fmt: skip


@st.composite
def chains(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 3))):
        steps += [draw(arithmetic())] if draw(st.booleans()) or not steps else draw(st.sampled_from(MOVES))
    return [*steps, draw(st.sampled_from(JUMPS))]


def model_of(steps: list[Step]) -> onnx.ModelProto:
    nodes, constants, last = [], [], "x"
    for i, (op, operands, attributes, _) in enumerate(steps):
        names = [f"c{i}_{j}" for j in range(len(operands))]
        constants += [numpy_helper.from_array(o, n) for o, n in zip(operands, names, strict=True) if o is not None]
        names = [name if o is not None else "x" for o, name in zip(operands, names, strict=True)]
        nodes.append(helper.make_node(op, [last, *names], [f"v{i}"], **attributes))
        last = f"v{i}"
    x, y = helper.make_tensor_value_info("x", 1, ["N", SHAPE[1]]), helper.make_empty_tensor_value_info(last)
    if any(op in ("Reshape", "Expand") for op, *_ in steps):
        x = helper.make_tensor_value_info("x", 1, SHAPE)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def step_by_step(steps: list[Step], x: np.ndarray) -> np.ndarray:
    y = x
    with np.errstate(all="ignore"):
        for _, operands, _, compute in steps:
            y = compute(y, *(x if o is None else o for o in operands))
    return y


def inputs_for(steps: list[Step]) -> np.ndarray:
    """Whole multiples, and halves of them, of the first step's constant and of its inverse; and numbers beside them."""
    constant = steps[0][1][0]
    c = f32(0.3) if constant is None else np.abs(constant).astype(f32).reshape(-1)[0]
    k = np.arange(SHAPE[1], dtype=f32)
    with np.errstate(all="ignore"):
        beside = np.linspace(-4, 4, SHAPE[1]).astype(f32)
        rows = np.stack([k * c, (k + f32(0.5)) * c, -k * c, k / c, k + f32(0.5), beside])
    return np.nan_to_num(np.clip(rows, -1e30, 1e30)).astype(f32)


def run(steps: list[Step], x: np.ndarray) -> np.ndarray:
    with parax.compile(model_of(steps)).session() as session:
        (y,) = session.run({"x": x}).values()
    return y


@thorough(120, deadline=None)
@given(steps=chains())
def test_jumps_see_what_the_model_computes(steps: list[Step]) -> None:
    x = inputs_for(steps)
    want = step_by_step(steps, x)
    if steps[-1][1:3] == ([], {"to": TensorProto.INT64}) and np.abs(step_by_step(steps[:-1], x)).max() > 1e9:
        return  # beyond the integers everybody casts alike
    np.testing.assert_array_equal(run(steps, x).reshape(want.shape), want)


@pytest.mark.parametrize("scale", [0.3, 0.05, 0.0123, 0.7, 0.031])
def test_halves_of_quantised_sums_are_rounded_to_even(scale: float) -> None:
    """Two quantised numbers are added, and quantised by twice the scale, as exporters have it before residual sums."""
    small, large = np.array(scale, f32), np.array(f32(scale) * 2, f32)
    zero = np.array(0, np.int8)
    a = np.arange(-128, 128).astype(np.int8).reshape(1, -1)
    b = np.random.default_rng(0).permutation(a.reshape(-1)).reshape(1, -1)
    nodes = [helper.make_node("DequantizeLinear", ["a", "s", "z"], ["fa"]),
             helper.make_node("DequantizeLinear", ["b", "s", "z"], ["fb"]),
             helper.make_node("Add", ["fa", "fb"], ["sum"]),
             helper.make_node("QuantizeLinear", ["sum", "t", "z"], ["y"])]  # fmt: skip
    ins = [helper.make_tensor_value_info(n, TensorProto.INT8, ["N", 256]) for n in "ab"]
    constants = [numpy_helper.from_array(v, n) for n, v in (("s", small), ("t", large), ("z", zero))]
    graph = helper.make_graph(nodes, "g", ins, [helper.make_empty_tensor_value_info("y")], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with parax.compile(made).session() as session:
        found = session.run({"a": a, "b": b})["y"]
    want = np.clip(np.rint((a.astype(f32) * small + b.astype(f32) * small) / large), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(found, want)
