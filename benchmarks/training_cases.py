"""What `python -m benchmarks.training` trains: models of the list with a loss, a batch and random data.

Owns batches, losses and labels; knows nothing of who trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from examples.models import build, feeds, options_of
from parax.compiler.training.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy

RATE, MOMENTUM = 0.001, 0.9
"""Of SGD, which both sides take."""
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        batch: rows of a step. loss: of the first output. labels: (model, rows, generator) → what the loss reads.
        prepared: what becomes of the list's model before it is trained.
    """

    batch: int
    loss: Loss
    labels: Callable[[str, int, np.random.Generator], np.ndarray]
    prepared: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda model: model

    def model(self, name: str) -> onnx.ModelProto:
        """The model to train."""
        return self.prepared(build(name))

    def data(self, name: str) -> Arrays:
        """A batch: the model's inputs by name, and `labels`."""
        return {**feeds(name, self.batch), "labels": self.labels(name, self.batch, np.random.default_rng(0))}


def _classes(name: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, options_of(name)["classes"], rows)


def _pixels(name: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    options = options_of(name)
    return rng.integers(0, options["classes"], (rows, options["size"], options["size"]))


def _words(name: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    options = options_of(name)
    vocabulary, length = (options[a] if a in options else options[b]
                          for a, b in (("vocabulary", "target_vocabulary"), ("length", "target_size")))  # fmt: skip
    return rng.integers(0, vocabulary, (rows, length))


def _liked(name: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, (rows, 1)).astype(np.float32)


def _either(name: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, rows)


def with_classifier(model: onnx.ModelProto, classes: int = 2) -> onnx.ModelProto:
    """BERT's pooled output behind a layer that tells classes apart, as it is fine-tuned; that is the only output."""
    graph, (pooled,) = model.graph, [value for value in model.graph.output if value.name == "pooler_output"]
    width = pooled.type.tensor_type.shape.dim[1].dim_value
    weight = np.random.default_rng(1).standard_normal((classes, width)).astype(np.float32) * np.float32(0.02)
    graph.initializer.append(numpy_helper.from_array(weight, "classifier.weight"))
    graph.initializer.append(numpy_helper.from_array(np.zeros(classes, np.float32), "classifier.bias"))
    names = [pooled.name, "classifier.weight", "classifier.bias"]
    graph.node.append(helper.make_node("Gemm", names, ["scores"], name="/classifier/Gemm", transB=1))
    batch = pooled.type.tensor_type.shape.dim[0].dim_param
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [batch, classes]))
    return model


_ONE, _EACH = SoftmaxCrossEntropy(), SoftmaxCrossEntropy(axis=-1)
CASES: Mapping[str, Case] = {
    "resnet50": Case(16, _ONE, _classes),
    "resnet18": Case(16, _ONE, _classes),
    "vgg16": Case(8, _ONE, _classes),
    "mobilenet-v1": Case(32, _ONE, _classes),
    "mobilenet-v2": Case(32, _ONE, _classes),
    "unet": Case(8, _ONE, _pixels),
    "word-lm": Case(32, _EACH, _words),
    "gnmt": Case(32, _EACH, _words),
    "bert-base": Case(8, _ONE, _either, with_classifier),
    "ncf": Case(1024, BinaryCrossEntropy(), _liked),
}
