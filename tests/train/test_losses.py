"""Losses on other axes than the second and behind a model's last function, against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from parax.compiler.trainer import Trainer
from parax.compiler.training.losses import LOSSES, BinaryCrossEntropy, Loss, loss_named
from parax.compiler.training.optimizers.sgd import SGD
from parax.errors import InvalidInput, InvalidModel, UsageError

ROWS, STEPS, WIDTH, CLASSES = 4, 3, 5, 7


def model(*tail: onnx.NodeProto, result: str, shape: list[int | str]) -> onnx.ModelProto:
    """x [N,3,5] times a matrix: `scores` [N,3,7]; then the tail."""
    rng = np.random.default_rng(5)
    weight = numpy_helper.from_array(rng.standard_normal((WIDTH, CLASSES)).astype(np.float32), "w")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", STEPS, WIDTH])
    made = helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"]), *tail]
    graph = helper.make_graph(nodes, "small", [given], [made], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def given(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((ROWS, STEPS, WIDTH)).astype(np.float32)
    return x, numpy_helper.to_array(model(result="scores", shape=["N", STEPS, CLASSES]).graph.initializer[0])


def stepped(of: onnx.ModelProto, loss: Loss, data: dict[str, np.ndarray]) -> tuple[dict[str, float], np.ndarray]:
    """What a step of rate 1 and an evaluation say, and how it moves `w`."""
    with Trainer(of, loss=loss, optimizer=SGD(lr=1.0), batch=ROWS, shards=1) as trainer:
        before = trainer.parameters["w"]
        evaluated = trainer.evaluate([data])
        found = trainer.step(data)
        for name, value in evaluated.items():
            assert found[name] == pytest.approx(value, rel=1e-5)
        return found, before - trainer.parameters["w"]


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("tail", ["none", "Softmax", "swapped"])
def test_classes_may_lie_on_any_axis_behind_the_rows(axis: int, tail: str) -> None:
    rng = np.random.default_rng(1)
    x, w = given(rng)
    labels = rng.integers(0, CLASSES, (ROWS, STEPS))
    labels[0, 1] = -1
    if tail == "none":
        of = model(result="scores", shape=["N", STEPS, CLASSES])
    elif tail == "Softmax":
        of = model(helper.make_node("Softmax", ["scores"], ["y"], axis=2), result="y", shape=["N", STEPS, CLASSES])
    else:
        swap = helper.make_node("Transpose", ["scores"], ["y"], perm=[0, 2, 1])
        of, axis = model(swap, result="y", shape=["N", CLASSES, STEPS]), 1
    loss = loss_named("softmax_cross_entropy", axis=axis, ignore_index=-1)
    found, moved = stepped(of, loss, {"x": x, "labels": labels})
    scores, kept = x.astype(np.float64) @ w, labels >= 0
    p, places = softmax(scores), np.where(kept, labels, 0)[..., None]
    logs = -np.log(np.take_along_axis(p, places, -1))[..., 0]
    assert found["loss"] == pytest.approx((logs * kept).sum() / kept.sum(), rel=1e-5)
    assert found["accuracy"] == pytest.approx((scores.argmax(-1) == labels)[kept].mean(), abs=1e-6)
    slope = (p - np.eye(CLASSES)[places[..., 0]]) * kept[..., None] / kept.sum()
    np.testing.assert_allclose(moved, np.einsum("nti,ntc->ic", x, slope), rtol=1e-4, atol=1e-5)


def test_classes_in_the_middle_of_four_axes() -> None:
    rng = np.random.default_rng(2)
    x, w = given(rng)
    wide = helper.make_node("Unsqueeze", ["scores", "axes"], ["y"])
    of = model(helper.make_node("Constant", [], ["axes"], value_ints=[3]), wide, result="y",
               shape=["N", STEPS, CLASSES, 1])  # fmt: skip
    labels = rng.integers(0, CLASSES, (ROWS, STEPS, 1))
    found, _ = stepped(of, loss_named("softmax_cross_entropy", axis=2), {"x": x, "labels": labels})
    logs = np.log(softmax(x.astype(np.float64) @ w))
    assert found["loss"] == pytest.approx(-np.take_along_axis(logs, labels, -1).mean(), rel=1e-5)


def test_a_sigmoid_at_the_end_is_seen_through() -> None:
    rng = np.random.default_rng(3)
    x, w = given(rng)
    of = model(helper.make_node("Sigmoid", ["scores"], ["y"]), result="y", shape=["N", STEPS, CLASSES])
    labels = rng.integers(0, 2, (ROWS, STEPS, CLASSES)).astype(np.float32)
    found, moved = stepped(of, BinaryCrossEntropy(), {"x": x, "labels": labels})
    scores = x.astype(np.float64) @ w
    p = 1 / (1 + np.exp(-scores))
    assert found["loss"] == pytest.approx(-np.where(labels > 0, np.log(p), np.log1p(-p)).mean(), rel=1e-5)
    assert found["accuracy"] == pytest.approx(((scores > 0) == (labels > 0)).mean())
    np.testing.assert_allclose(moved, np.einsum("nti,ntc->ic", x, (p - labels) / labels.size), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 3, -3])
def test_an_axis_that_is_not_there_is_refused(axis: int) -> None:
    assert "nll" in LOSSES
    with pytest.raises(InvalidModel, match="no such axis of classes"):
        Trainer(model(result="scores", shape=["N", STEPS, CLASSES]), loss=loss_named("nll", axis=axis), batch=ROWS)


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "nll"])
@pytest.mark.parametrize("shards, accumulate", [(1, 1), (2, 1), (2, 2), (4, 1), (1, 3)])
def test_ignored_labels_count_in_no_piece_of_a_batch(name: str, shards: int, accumulate: int) -> None:
    """The mean is over all labels of the batch that count, however they lie in its pieces, one of which has none."""
    rng, rows = np.random.default_rng(4), 12
    x, labels = rng.standard_normal((rows, STEPS, WIDTH)).astype(np.float32), rng.integers(0, CLASSES, (rows, STEPS))
    labels[rng.random(labels.shape) < 0.4] = 2
    labels[:3] = 2
    w = numpy_helper.to_array(model(result="scores", shape=["N", STEPS, CLASSES]).graph.initializer[0])
    logs = helper.make_node("LogSoftmax", ["scores"], ["y"], axis=2)
    tail, result = ([logs], "y") if name == "nll" else ([], "scores")
    of = model(*tail, result=result, shape=["N", STEPS, CLASSES])
    loss = loss_named(name, axis=-1, ignore_index=2)
    with Trainer(of, loss, SGD(lr=1.0), batch=rows, shards=shards, accumulate=accumulate) as trainer:
        evaluated = trainer.evaluate([{"x": x[:3], "labels": labels[:3]}, {"x": x[3:], "labels": labels[3:]}])
        found = trainer.step({"x": x, "labels": labels})
        moved = w - trainer.parameters["w"]
        with pytest.raises(InvalidInput, match="no label of the batch counts"):
            trainer.step({"x": x, "labels": np.full_like(labels, 2)})
    p, kept = softmax(x.astype(np.float64) @ w), labels != 2
    expected = -np.log(np.take_along_axis(p, labels[..., None], -1))[..., 0][kept].mean()
    slope = (p - np.eye(CLASSES)[labels]) * kept[..., None] / kept.sum()
    np.testing.assert_allclose(moved, np.einsum("nti,ntc->ic", x, slope), rtol=1e-4, atol=1e-5)
    for each in (found, evaluated):
        assert each["loss"] == pytest.approx(expected, rel=1e-5)
        assert each["accuracy"] == pytest.approx((p.argmax(-1) == labels)[kept].mean(), abs=1e-6)


@pytest.mark.parametrize("options", [{"ignore_index": 1.0}, {"ignore_index": True}, {"axis": None}, {"axis": "1"}])
def test_settings_of_losses_are_whole_numbers(options: dict) -> None:
    with pytest.raises(UsageError, match="whole number"):
        loss_named("nll", **options)
    with pytest.raises(UsageError, match="no such option"):
        loss_named("mse", ignore_index=1)
