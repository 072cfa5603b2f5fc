"""ONNX's optimisers as operators: what they refuse, and several steps of a model beside float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import parax
from parax.errors import InvalidModel

DOMAIN = "ai.onnx.preview.training"


def _model(op: str, shapes: list[list[int]], results: int, **attributes: object) -> onnx.ModelProto:
    """One update; its inputs after R and T are `x0`, `x1`, … of the shapes."""
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = [helper.make_tensor_value_info("R", TensorProto.FLOAT, []),
              helper.make_tensor_value_info("T", TensorProto.INT64, []),
              *(helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes))]  # fmt: skip
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(results)]
    node = helper.make_node(op, ["R", "T", *names], [o.name for o in outputs], domain=DOMAIN, **attributes)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(helper.make_graph([node], "update", inputs, outputs), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("instances", [1, 2])
def test_adam_over_many_steps(instances: int) -> None:
    """The bias correction's 1 − betaᵀ is small at first: in f32 it would be off by 6e-5."""
    plan = parax.compile(_model("Adam", [[7, 3]] * 4, 3))
    rng = np.random.default_rng(0)
    x, v, h = rng.standard_normal((7, 3)), np.zeros((7, 3)), np.zeros((7, 3))
    state = [array.astype(np.float32) for array in (x, v, h)]
    alpha, beta, epsilon = (float(np.float32(number)) for number in (0.9, 0.999, 1e-6))
    with plan.session(instances=instances) as session:
        for t in range(1, 12):
            g = rng.standard_normal((7, 3)).astype(np.float32)
            feeds = {"R": np.float32(0.1), "T": np.int64(t), "x0": state[0], "x1": g, "x2": state[1], "x3": state[2]}
            found = session.run({key: np.asarray(value) for key, value in feeds.items()})
            state = [found[f"y{i}"] for i in range(3)]
            v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g.astype(float) ** 2
            rate = np.float32(0.1) * np.sqrt(1 - beta**t) / (1 - alpha**t)
            x = x - rate * v / (np.sqrt(h) + epsilon)
            np.testing.assert_allclose(state[0], x, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("op", "shapes", "results", "attributes", "message"), [
    ("Adam", [[3]] * 5, 3, {}, "for every weight 4 tensors are needed"),
    ("Adagrad", [[3]] * 3, 3, {}, "more results than weights and states"),
    ("Adagrad", [[3], [4], [3]], 2, {}, "must be of one shape"),
    ("Adagrad", [[3], [3, 1], [3]], 2, {}, "floats of one type and shape"),
    ("Momentum", [[3]] * 3, 2, {"alpha": 0.9, "beta": 1.0, "mode": "other", "norm_coefficient": 0.0}, "unknown mode"),
])  # fmt: skip
def test_what_is_wrong_is_said(
    op: str, shapes: list[list[int]], results: int, attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidModel, match=message):
        parax.compile(_model(op, shapes, results, **attributes))


def test_infinities_and_nans_stay_where_they_are() -> None:
    plan = parax.compile(_model("Momentum", [[4]] * 3, 2, alpha=0.9, beta=1.0, mode="nesterov", norm_coefficient=0.1))
    g = np.array([1.0, np.nan, np.inf, 0.0], np.float32)
    ones = np.ones(4, np.float32)
    with plan.session() as session:
        found = session.run({"R": np.array(0.1, np.float32), "T": np.array(3), "x0": ones, "x1": g, "x2": ones})
    assert np.isnan(found["y0"][1]) and found["y0"][2] == -np.inf and np.isfinite(found["y0"][[0, 3]]).all()
