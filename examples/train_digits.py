"""Trains the bundled model, parax/models/digits.onnx, with numpy alone, and writes its sample pictures beside it.

    python examples/train_digits.py            # about a minute; the same file every time on the same numpy

The network: 3×3 convolutions of 8 and 16 channels, each with ReLU and 2×2 max-pooling, then one dense layer over
ten digits and a softmax. Training: Adam on cross entropy over drawn digits (`draw_digits.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from draw_digits import data_set
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

MODELS = Path(__file__).parents[1] / "parax" / "models"
CHANNELS = (1, 8, 16)
EPOCHS, BATCH, LEARNING_RATE = 5, 100, 2e-3
Parameters = dict[str, np.ndarray]


def initial(rng: np.random.Generator) -> Parameters:
    """He-initialised weights, zero biases."""
    parameters: Parameters = {}
    for layer, (cin, cout) in enumerate(zip(CHANNELS, CHANNELS[1:], strict=False), 1):
        parameters[f"conv{layer}.weight"] = rng.normal(0, np.sqrt(2 / (9 * cin)), (cout, cin, 3, 3))
        parameters[f"conv{layer}.bias"] = np.zeros(cout)
    parameters["fc.weight"] = rng.normal(0, np.sqrt(1 / 784), (10, CHANNELS[-1] * 49))
    parameters["fc.bias"] = np.zeros(10)
    return {name: value.astype(np.float32) for name, value in parameters.items()}


def columns(x: np.ndarray) -> np.ndarray:
    """The 3×3 patches of a zero-padded picture: [N,C,H,W] → [N·H·W, C·9]."""
    n, c, h, w = x.shape
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)


def convolve(patches: np.ndarray, weight: np.ndarray, bias: np.ndarray, side: int) -> np.ndarray:
    """Convolution of the patches: → [N,Cout,side,side]."""
    y = patches @ weight.reshape(len(weight), -1).T + bias
    return y.reshape(-1, side, side, len(weight)).transpose(0, 3, 1, 2)


def loss_and_gradient(p: Parameters, x: np.ndarray, digits: np.ndarray) -> tuple[float, Parameters]:
    """Mean cross entropy of a batch and its gradient, by the chain rule layer after layer."""
    saved, gradient, n = [], {}, len(x)
    for layer in (1, 2):
        patches, side = columns(x), x.shape[-1]
        y = np.maximum(convolve(patches, p[f"conv{layer}.weight"], p[f"conv{layer}.bias"], side), 0)
        blocks = y.reshape(n, -1, side // 2, 2, side // 2, 2)
        x = blocks.max(axis=(3, 5))
        saved.append((patches, y, blocks == x[:, :, :, None, :, None]))
    flat = x.reshape(n, -1)
    scores = flat @ p["fc.weight"].T + p["fc.bias"]
    scores -= scores.max(axis=1, keepdims=True)
    log_probabilities = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    loss = -float(log_probabilities[np.arange(n), digits].mean())
    d = np.exp(log_probabilities)
    d[np.arange(n), digits] -= 1
    d /= n
    gradient["fc.weight"], gradient["fc.bias"] = d.T @ flat, d.sum(axis=0)
    d = (d @ p["fc.weight"]).reshape(x.shape)
    for layer in (2, 1):
        patches, y, is_max = saved[layer - 1]
        d = (is_max * d[:, :, :, None, :, None]).reshape(y.shape) * (y > 0)
        weight = p[f"conv{layer}.weight"]
        rows = d.transpose(0, 2, 3, 1).reshape(-1, len(weight))
        gradient[f"conv{layer}.weight"] = (rows.T @ patches).reshape(weight.shape)
        gradient[f"conv{layer}.bias"] = rows.sum(axis=0)
        if layer > 1:  # the gradient of the input: convolve with the kernels turned by half a turn
            turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
            d = convolve(columns(d), np.ascontiguousarray(turned), np.zeros(turned.shape[0]), d.shape[-1])
    return loss, gradient


def train(x: np.ndarray, digits: np.ndarray) -> Parameters:
    """Adam (Kingma and Ba 2015), learning rate falling to zero along a cosine."""
    rng = np.random.default_rng(1)
    p = initial(rng)
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    steps, step = EPOCHS * (len(x) // BATCH), 0
    for epoch in range(EPOCHS):
        for chosen in rng.permutation(len(x)).reshape(-1, BATCH):
            loss, gradient = loss_and_gradient(p, x[chosen], digits[chosen])
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, g in gradient.items():
                mean[name] = 0.9 * mean[name] + 0.1 * g
                square[name] = 0.999 * square[name] + 0.001 * g**2
                corrected = mean[name] / (1 - 0.9**step), np.sqrt(square[name] / (1 - 0.999**step))
                p[name] = (p[name] - rate * corrected[0] / (corrected[1] + 1e-8)).astype(np.float32)
        print(f"epoch {epoch + 1}: loss {loss:.4f}")
    return p


def accuracy(p: Parameters, x: np.ndarray, digits: np.ndarray) -> float:
    """Share of pictures recognised."""
    for layer in (1, 2):
        side = x.shape[-1]
        y = np.maximum(convolve(columns(x), p[f"conv{layer}.weight"], p[f"conv{layer}.bias"], side), 0)
        x = y.reshape(len(x), -1, side // 2, 2, side // 2, 2).max(axis=(3, 5))
    scores = x.reshape(len(x), -1) @ p["fc.weight"].T + p["fc.bias"]
    return float(np.mean(scores.argmax(axis=1) == digits))


def to_onnx(p: Parameters) -> onnx.ModelProto:
    """The trained network as an ONNX model with a symbolic batch."""
    nodes, value = [], "picture"
    for layer in (1, 2):
        inputs = [value, f"conv{layer}.weight", f"conv{layer}.bias"]
        nodes += [
            helper.make_node("Conv", inputs, [f"c{layer}"], f"conv{layer}", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"], f"relu{layer}"),
            helper.make_node(
                "MaxPool", [f"r{layer}"], [f"p{layer}"], f"pool{layer}", kernel_shape=[2, 2], strides=[2] * 2
            ),
        ]
        value = f"p{layer}"
    nodes += [
        helper.make_node("Flatten", [value], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["scores"], "fc", transB=1),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, name) for name, value in p.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="parax")
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Train, measure on pictures never seen, write the model and ten of those pictures."""
    parameters = train(*data_set(10_000, seed=2))
    pictures, digits = data_set(2_000, seed=3)
    print(f"accuracy on 2,000 fresh pictures: {accuracy(parameters, pictures, digits):.2%}")
    MODELS.mkdir(exist_ok=True)
    onnx.save(to_onnx(parameters), MODELS / "digits.onnx")
    samples, names = data_set(10, seed=4)
    np.savez_compressed(MODELS / "digits.npz", picture=samples, digit=names)


if __name__ == "__main__":
    main()
