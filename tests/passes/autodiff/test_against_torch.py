"""Loss and every gradient of whole models, against PyTorch's autograd (skipped where PyTorch is not installed)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the other side of the comparison")
nn = torch.nn

import io  # noqa: E402

import onnx  # noqa: E402

import parax  # noqa: E402

MISS = 2e-4  # of the largest element of a gradient, in f32


class Residual(nn.Module):
    """Convolutions of every kind that a residual network has, pools, normalisation, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.wide = nn.Conv2d(8, 16, 1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.grouped = nn.Conv2d(16, 8, 3, padding=2, dilation=2, groups=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = self.grouped(nn.functional.silu(self.depthwise(nn.functional.hardswish(self.wide(x)))))
        return self.head(nn.functional.avg_pool2d(x + y, 2).mean((2, 3)))


class Block(nn.Module):
    """A block of a transformer with an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.project = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, ids):
        x = self.words(ids)
        q, k, v = self.project(self.norm(x)).reshape(ids.shape[0], ids.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        x = x + self.out((p @ v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


class Words(nn.Module):
    """A language model: an embedding, two recurrent layers, scores of all words."""

    def __init__(self, layer, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.layers = layer(16, 24, 2)
        self.head = nn.Linear(width, 11)

    def forward(self, ids):
        return self.head(self.layers(self.words(ids))[0])


def with_gradients(module, example) -> onnx.ModelProto:
    """The module as ONNX with weights as inputs, and the gradients of the sum of its result's squares."""
    buffer = io.BytesIO()
    torch.onnx.export(module, (example,), buffer, dynamo=False, input_names=["x"], output_names=["y"],
                      keep_initializers_as_inputs=True, training=torch.onnx.TrainingMode.PRESERVE,
                      do_constant_folding=False)  # fmt: skip
    model = onnx.load_from_string(buffer.getvalue())
    names = [n for n, _ in module.named_parameters()]
    graph = model.graph
    kept = [t for t in graph.initializer if t.name not in names]
    graph.ClearField("initializer")
    graph.initializer.extend(kept)
    fixed = {t.name for t in kept}
    inputs = [v for v in graph.input if v.name not in fixed]
    graph.ClearField("input")
    graph.input.extend(inputs)
    graph.node.append(onnx.helper.make_node("Mul", ["y", "y"], ["squares"]))
    graph.node.append(onnx.helper.make_node("ReduceSum", ["squares"], ["loss"], keepdims=0))
    graph.node.append(onnx.helper.make_node("Gradient", names, [f"d:{n}" for n in names],
                                            domain="ai.onnx.preview.training", xs=names, y="loss"))  # fmt: skip
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.preview.training", 1))
    graph.ClearField("output")
    shapes = dict(module.named_parameters())
    graph.output.append(onnx.helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, []))
    graph.output.extend(onnx.helper.make_tensor_value_info(f"d:{n}", onnx.TensorProto.FLOAT, tuple(shapes[n].shape))
                        for n in names)  # fmt: skip
    return model


@pytest.mark.parametrize(
    ("make", "example"),
    [(Residual, torch.linspace(-1, 1, 2 * 3 * 17 * 19).reshape(2, 3, 17, 19).sin()),
     (Block, torch.arange(14).reshape(2, 7) % 11),
     *((partial(Words, layer), torch.arange(15).reshape(5, 3) % 7) for layer in (nn.RNN, nn.GRU, nn.LSTM)),
     (partial(Words, partial(nn.LSTM, bidirectional=True, batch_first=True), 48), torch.arange(15).reshape(3, 5) % 7)],
)  # fmt: skip
def test_gradients_of_whole_models(make, example) -> None:
    torch.manual_seed(0)
    module = make()
    loss = module(example).square().sum()
    loss.backward()
    model = with_gradients(module, example)
    weights = {n: p.detach().numpy() for n, p in module.named_parameters()}
    found = parax.compile(model).session().run({"x": example.numpy(), **weights})
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in module.named_parameters():
        expected = parameter.grad.numpy()
        assert np.abs(found[f"d:{name}"] - expected).max() <= MISS * max(1e-3, np.abs(expected).max()), name
