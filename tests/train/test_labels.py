"""Labels that are no class of the model are said by name before anything moves, in a step and in an evaluation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.trainer import Trainer
from parax.compiler.training.losses import SoftmaxCrossEntropy
from parax.runtime.train.exchange.settings import SCHEMES
from train.exchanging import assert_same_bits, start_of, trainer
from train.small_models import CLASSES, classifier, rows

N, TIME, WORDS = 6, 4, 7


def wrong(value: int, row: int = 3) -> dict[str, np.ndarray]:
    given = rows(0, 8)
    given["labels"][row] = value
    return given


@pytest.mark.parametrize("exchange", SCHEMES)
def test_a_label_out_of_range_moves_nothing(exchange: str) -> None:
    with trainer(exchange, 2, batch=8, shards=2) as own:
        own.step(rows(1, 8))
        before = start_of(own)
        for value, hint in ((CLASSES, "counted from 0"), (-1, "ignore_index"), (1 << 40, "counted from 0")):
            message = f"row 3 .* none of the model's {CLASSES} classes; expected 0 to 2; found {value}; .*{hint}"
            with pytest.raises(parax.InvalidInput, match=f"input 'labels', {message}"):
                own.step(wrong(value))
            with pytest.raises(parax.InvalidInput, match=f"input 'labels', {message}"):
                own.evaluate([wrong(value)])
        assert own.state.steps == 1
        assert_same_bits(own.state.tensors(), before)
        own.step(rows(2, 8))


@pytest.mark.parametrize("ignored", [-100, 1, 9])
def test_an_ignored_label_is_no_class(ignored: int) -> None:
    with Trainer(classifier(), SoftmaxCrossEntropy(ignore_index=ignored), batch=8) as own:
        own.step(wrong(ignored))
        own.evaluate([wrong(ignored)])
        with pytest.raises(parax.InvalidInput, match=f"expected 0 to 2, or {ignored}, which is ignored; found 5"):
            own.step(wrong(5))


def test_a_label_of_a_sequence_has_its_place() -> None:
    weight = numpy_helper.from_array(np.eye(5, WORDS, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "words",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", TIME, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", TIME, WORDS])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    labels = np.full((N, TIME), WORDS - 1)
    with Trainer(model, SoftmaxCrossEntropy(axis=-1), batch=N) as own:
        given = {"x": np.ones((N, TIME, 5), np.float32), "labels": labels}
        own.step(given)
        labels[2, 3] = WORDS
        with pytest.raises(parax.InvalidInput, match=r"row 2 of the batch, at \[3\]: .* 7 classes; expected 0 to 6"):
            own.step(given)


def test_labels_that_are_no_classes_may_be_any_number() -> None:
    given = {"x": rows(0, 8)["x"], "labels": np.full((8, CLASSES), 1e3, np.float32)}
    with Trainer(classifier(), "mse", batch=8) as own:
        assert own.step(given)["loss"] > 1e5
