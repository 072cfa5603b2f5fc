"""Training end to end: against the same steps in NumPy, whatever the instances are, and back into an ONNX model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.trainer import Trainer
from train.small_models import CLASSES, WIDTH
from train.small_models import classifier as model

ROWS = 12


def batch(seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, WIDTH)).astype(np.float32), "labels": rng.integers(0, CLASSES, rows)}


def twin_step(p: dict[str, np.ndarray], given: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients in f64."""
    x, labels = given["x"].astype(np.float64), given["labels"]
    h = x @ p["w1"] + p["b1"]
    r = np.maximum(h, 0)
    scores = r @ p["w2"].T + p["b2"]
    share = np.exp(scores - scores.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(share[rows, labels]).mean()
    ds = share.copy()
    ds[rows, labels] -= 1
    ds /= len(x)
    dh = ds @ p["w2"] * (h > 0)
    return loss, {"w1": x.T @ dh, "b1": dh.sum(0), "w2": ds.T @ r, "b2": ds.sum(0)}


def initial() -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model().graph.initializer}


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_steps_are_those_of_the_twin(shards: int) -> None:
    p, velocity = initial(), {name: 0 * array for name, array in initial().items()}
    with Trainer(model(), optimizer=parax.SGD(lr=0.3, momentum=0.9), batch=ROWS, shards=shards, instances=1) as trainer:
        for seed in range(15):
            loss, gradients = twin_step(p, batch(seed))
            found = trainer.step(batch(seed))
            assert found["loss"] == pytest.approx(loss, rel=2e-5)
            assert found["norm"] == pytest.approx(np.sqrt(sum((g**2).sum() for g in gradients.values())), rel=1e-4)
            for name, gradient in gradients.items():
                velocity[name] = 0.9 * velocity[name] + gradient
                p[name] = p[name] - 0.3 * velocity[name]
        for name, array in trainer.parameters.items():
            np.testing.assert_allclose(array, p[name], rtol=1e-3, atol=1e-5)


def test_instances_change_no_bit() -> None:
    found = []
    for instances in (1, 2):
        with Trainer(model(), optimizer=parax.Adam(lr=0.05), batch=ROWS, shards=4, instances=instances) as trainer:
            losses = [trainer.step(batch(seed))["loss"] for seed in range(10)]
            found.append((losses, trainer.parameters))
    assert found[0][0] == found[1][0]
    for name, array in found[0][1].items():
        np.testing.assert_array_equal(array.view(np.int32), found[1][1][name].view(np.int32))


def test_the_trained_model_is_the_model_with_other_weights(tmp_path: Path) -> None:
    with Trainer(model(), optimizer=parax.Adam(lr=0.05), batch=ROWS) as trainer:
        for seed in range(5):
            trainer.step(batch(seed))
        test = batch(99, 31)
        loss = trainer.evaluate([test])["loss"]
        trainer.export(tmp_path / "trained.onnx")
    trained = onnx.load(tmp_path / "trained.onnx")
    assert [n.op_type for n in trained.graph.node] == [n.op_type for n in model().graph.node]
    (y,) = onnxruntime.InferenceSession(tmp_path / "trained.onnx").run(None, {"x": test["x"]})
    assert -np.log(y[np.arange(31), test["labels"]]).mean() == pytest.approx(loss, rel=1e-4)


def test_frozen_parameters_stay() -> None:
    with Trainer(model(), optimizer=parax.SGD(lr=0.3), batch=ROWS, frozen=["*1"]) as trainer:
        assert set(trainer.parameters) == {"w2", "b2"}
        trainer.step(batch(0))
        assert not np.array_equal(trainer.parameters["b2"], initial()["b2"].astype(np.float32))


def test_a_wrong_batch_changes_nothing() -> None:
    with Trainer(model(), batch=ROWS) as trainer:
        before = trainer.parameters
        wrong = batch(0)
        wrong["labels"][5] = CLASSES
        for given, message in ((batch(0, 11), "another number of rows"), ({"x": batch(0)["x"]}, "other tensors"),
                               (wrong, "label|range|exist")):  # fmt: skip
            with pytest.raises(parax.InvalidInput, match=message):
                trainer.step(given)
        for name, array in trainer.parameters.items():
            np.testing.assert_array_equal(array, before[name])
        trainer.step(batch(0))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"batch": 0}, "whole number"),
        ({"batch": 7, "shards": 2}, "equal parts"),
        ({"instances": 1000}, "more instances than cores"),
        ({"loss": "mean_squared"}, "no such loss"),
        ({"frozen": ["v*"]}, "no parameter fits"),
        ({"frozen": ["*"]}, "nothing can be trained"),
        ({"result": "z"}, "no such output"),
        ({"optimizer": "sgd"}, "no optimiser"),
    ],
)
def test_what_cannot_be_is_said(given: dict, message: str) -> None:
    with pytest.raises(parax.ParaxError, match=message):
        Trainer(model(), **given)


def test_a_fixed_batch_must_be_that_of_a_shard() -> None:
    with pytest.raises(parax.InvalidModel, match=r"batch of the model is fixed.*a multiple of 5, with a shard"):
        Trainer(model(batch=5), batch=12)
    with pytest.raises(parax.InvalidModel, match="expected 6 rows a shard; found 12; shards = 1 cuts 12 rows"):
        Trainer(model(batch=12), batch=12, shards=2)
    with pytest.raises(parax.InvalidModel, match="shards = 2 cuts 12 rows in shards of 6"):
        Trainer(model(batch=6), batch=24, shards=1, accumulate=2)
    with Trainer(model(batch=6), batch=12, shards=2) as trainer:
        assert np.isfinite(trainer.step(batch(0))["loss"])


def scaled(dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """y = (x · w + b) · scale, of one column: b is f32[1], scale has no axis."""
    arrays = {"w": np.ones((WIDTH, 1)), "b": np.zeros(1), "scale": np.array(2.0)}
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Mul", ["h", "scale"], ["y"])]
    graph = helper.make_graph(
        nodes, "line", [helper.make_tensor_value_info("x", dtype, ["N", WIDTH])],
        [helper.make_tensor_value_info("y", dtype, ["N", 1])],
        [numpy_helper.from_array(array.astype(kind), name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_numbers_without_an_axis_are_trained_where_they_are_named() -> None:
    given = {"x": batch(0)["x"], "labels": np.full((ROWS, 1), 3.0, np.float32)}
    with Trainer(scaled(), "mse", parax.SGD(lr=0.01), batch=ROWS) as trainer:
        assert set(trainer.parameters) == {"w", "b"} and trainer.left_out == ("scale",)
        losses = [trainer.step(given)["loss"] for _ in range(20)]
        assert losses[-1] < losses[0] and trainer.parameters["b"] != 0
    with Trainer(scaled(), "mse", batch=ROWS, trained=["scale"]) as trainer:
        trainer.step(given)
        assert set(trainer.parameters) == {"scale"} and trainer.parameters["scale"] != 2


def test_parameters_are_f32() -> None:
    with pytest.raises(parax.UnsupportedOp, match="trained in f32"):
        Trainer(scaled(TensorProto.DOUBLE), "mse", batch=ROWS)


def test_a_fixed_batch_is_evaluated_in_its_pieces() -> None:
    with Trainer(model(batch=6), batch=12, shards=2) as trainer:
        test = batch(1, 18)
        trainer.fit(batch(0), 1, test=test)
        with pytest.raises(parax.InvalidData, match="multiple of 6 rows"):
            trainer.fit(batch(0), 2, test=batch(1, 20))


@pytest.mark.parametrize("instances", [1, 2])
def test_a_gradient_that_is_not_finite_changes_nothing(instances: int) -> None:
    """Every square of a gradient is above what f32 holds, the loss is not."""
    with Trainer(model(), optimizer=parax.Adam(lr=0.1), batch=ROWS, instances=instances, ema=0.9) as trainer:
        trainer.step(batch(0))
        before = {name: array.copy() for name, array in trainer.state.tensors().items()}
        huge = batch(1)
        huge["x"] = np.abs(huge["x"]) * np.float32(1e25)
        with pytest.raises(parax.Diverged, match="norm"):
            trainer.step(huge)
        for name, array in trainer.state.tensors().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
        assert trainer.state.steps == 1
