"""The models that are trained, in JAX: one jitted step whose weights, momenta and running statistics are donated.

The model's nodes are called in turn while JAX traces (training_jax_operators), so that XLA sees what it would of the
model written by hand; pictures are channels-last, which is the layout of its convolutions on CPUs. Sizes are the
batch's own, and all that depends on sizes alone is worked out while tracing. Owns the step.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper

from parax.compiler.training.losses import BinaryCrossEntropy

from .training_cases import CASES, MOMENTUM, RATE
from .training_jax_operators import OPERATORS, Layer
from .training_protocol import Step

Values = dict[str, Any]
jax.devices()  # makes its CPU client, which is no memory of the model's


class Model:
    """A graph as a function of its weights and inputs, in training mode.

    Attributes:
        weights, statistics: what is trained and what normalisations keep, by name, as JAX lays it out.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        initializers = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
        pictures = any(node.op_type == "Conv" for node in graph.node)
        self._layers = [(node, Layer({a.name: helper.get_attribute_value(a) for a in node.attribute}, pictures))
                        for node in graph.node]  # fmt: skip
        # A loss of scores takes what a last Sigmoid takes, as it would be written.
        if graph.node[-1].op_type == "Sigmoid":
            self._layers.pop()
        self._result, self._pictures = self._layers[-1][0].output[0], pictures
        kept = {name for node in graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}
        laid_out = {}
        for node in graph.node:
            if node.op_type in ("Conv", "ConvTranspose"):
                laid_out[node.input[1]] = kernel(node.op_type, initializers[node.input[1]])
        found = initializers | laid_out
        trained = {name for name, array in found.items() if array.dtype == np.float32 and array.ndim} - kept
        self.weights = {name: jnp.asarray(found[name]) for name in sorted(trained)}
        self.statistics = {name: jnp.asarray(found[name]) for name in sorted(kept)}
        self._rest = {name: array for name, array in found.items() if name not in trained | kept}

    def __call__(self, weights: Values, statistics: Values, inputs: Values) -> tuple[Any, Values]:
        """The first output, channels last where it is one of pictures, and the statistics afterwards."""
        values: Values = {"": None, **self._rest, **weights, **statistics, **inputs}
        after = dict(statistics)
        for node, layer in self._layers:
            results = OPERATORS[node.op_type](layer, *(values[name] for name in node.input))
            results = results if isinstance(results, tuple) else (results,)
            if node.op_type == "BatchNormalization":
                after.update(zip(node.input[3:5], results[1:]))
                results = results[:1]
            values.update(zip(node.output, results))
        return values[self._result], after

    def placed(self, value: np.ndarray) -> Any:
        """An input or labels on the device, channels last where these are pictures'."""
        is_picture = self._pictures and value.ndim == 4
        return jnp.asarray(value.transpose(0, 2, 3, 1) if is_picture else _narrow(value))


def step_of(path: Path, name: str) -> Step:
    """The step of a model of the list, on the batch of its case."""
    case = CASES[name]
    model = Model(onnx.load(path).graph)
    data = {key: model.placed(value) for key, value in case.data(name).items()}
    labels = data.pop("labels")
    loss = _of_scores if isinstance(case.loss, BinaryCrossEntropy) else _of_classes

    def loss_of(weights: Values, statistics: Values) -> tuple[Any, Values]:
        result, after = model(weights, statistics, data)
        return loss(result, labels), after

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(weights: Values, momenta: Values, statistics: Values) -> tuple[Values, Values, Values, Any]:
        (value, after), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, statistics)
        momenta = {key: MOMENTUM * m + gradients[key] for key, m in momenta.items()}
        return {key: w - RATE * momenta[key] for key, w in weights.items()}, momenta, after, value

    momenta = {key: jnp.zeros_like(w) for key, w in model.weights.items()}
    state: tuple[Any, ...] = (model.weights, momenta, model.statistics)

    def step() -> float:
        nonlocal state
        *after, value = update(*state)
        state = jax.block_until_ready(tuple(after))
        return float(value)

    return step


def kernel(op: str, weights: np.ndarray) -> np.ndarray:
    """A convolution's weights as XLA's CPU convolutions take them, [height, width, in, out]; a transposed one's run
    backwards."""
    return weights.transpose(2, 3, 1, 0) if op == "Conv" else weights.transpose(2, 3, 0, 1)[::-1, ::-1]


def _narrow(value: np.ndarray) -> np.ndarray:
    return value.astype(np.int32) if value.dtype == np.int64 else value  # JAX's own width of integers


def _of_classes(result: Any, labels: Any) -> Any:
    """Softmax cross-entropy over the last axis: classes, channels of a picture, words."""
    logs = jax.nn.log_softmax(result, axis=-1)
    return -jnp.mean(jnp.take_along_axis(logs, labels[..., None], axis=-1))


def _of_scores(result: Any, labels: Any) -> Any:
    return -jnp.mean(labels * jax.nn.log_sigmoid(result) + (1 - labels) * jax.nn.log_sigmoid(-result))


