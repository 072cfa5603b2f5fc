"""Whole trainings against PyTorch from the same start: loss after loss (skipped where PyTorch is not installed)."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the other side of the comparison")
nn = torch.nn

import onnx  # noqa: E402

import parax  # noqa: E402
from parax.compiler.trainer import Trainer  # noqa: E402
from parax.compiler.training.optimizers.base import Optimizer  # noqa: E402

STEPS, LONG, ROWS, CLASSES = 40, 200, 16, 5
MISS = 1e-3  # of a loss


class Block(nn.Module):
    """A residual block with normalisation of the batch."""

    def __init__(self, c: int, m: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(c, m, 3, stride, 1, bias=False), nn.Conv2d(m, m, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(m), nn.BatchNorm2d(m)
        self.short = nn.Conv2d(c, m, 1, stride, bias=False)

    def forward(self, x):
        y = self.nb(self.b(torch.relu(self.na(self.a(x)))))
        return torch.relu(y + self.short(x))


class Residual(nn.Module):
    """A small ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(3, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))


class Mobile(nn.Module):
    """Depthwise and pointwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False)
        self.wide, self.norm, self.head = nn.Conv2d(16, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Linear(24, CLASSES)

    def forward(self, x):
        x = nn.functional.hardswish(self.depthwise(nn.functional.relu6(self.stem(x))))
        return self.head(torch.relu(self.norm(self.wide(x))).mean((2, 3)))


class Attention(nn.Module):
    """A block of a transformer over the lines of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.project = nn.Linear(30, 16), nn.LayerNorm(16), nn.Linear(16, 48)
        self.wide, self.narrow, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.into(x.permute(0, 2, 1, 3).reshape(x.shape[0], 10, 30))
        q, k, v = self.project(self.norm(x)).reshape(x.shape[0], 10, 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = x + (torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.narrow(nn.functional.gelu(self.wide(x)))
        return self.head(x.mean(1))


class Up(nn.Module):
    """A small U-Net: down, up by a transposed convolution, joined; scores of the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, CLASSES, 3, padding=1)

    def forward(self, x):
        a = torch.relu(self.down(x))
        b = torch.relu(self.deep(nn.functional.max_pool2d(a, 2)))
        return self.out(torch.cat([a, torch.relu(self.up(b))], 1)).mean((2, 3))


class Recurrent(nn.Module):
    """Two LSTM layers, the second one both ways, over the lines of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTM(30, 24), nn.LSTM(24, 12, bidirectional=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x):
        x, _ = self.first(x.permute(2, 0, 1, 3).flatten(2))
        x, _ = self.second(x)
        return self.head(x[-1] + x.mean(0))


def exported(module) -> onnx.ModelProto:
    """The module as ONNX, ready to be trained."""
    buffer = io.BytesIO()
    torch.onnx.export(module, (torch.zeros(2, 3, 10, 10),), buffer, dynamo=False, input_names=["x"],
                      output_names=["y"], dynamic_axes={"x": {0: "N"}}, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, opset_version=17)  # fmt: skip
    return onnx.load_from_string(buffer.getvalue())


def batches(steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    middles = rng.standard_normal((CLASSES, 3, 10, 10))
    labels = [rng.integers(0, CLASSES, ROWS) for _ in range(steps)]
    return [((middles[y] + rng.standard_normal((ROWS, 3, 10, 10))).astype(np.float32), y) for y in labels]


OPTIMIZERS: dict[str, Callable[[float], tuple[Optimizer, Callable]]] = {
    "sgd": lambda lr: (parax.SGD(lr=lr, momentum=0.9, weight_decay=1e-3),
                       lambda p: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=1e-3)),
    "adamw": lambda lr: (parax.AdamW(lr=lr), lambda p: torch.optim.AdamW(p, lr)),
}  # fmt: skip
KINDS = [Residual, Mobile, Attention, Up, Recurrent]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, rate", [("sgd", 0.05), ("adamw", 3e-3)])
def test_losses_are_the_same(kind: type, name: str, rate: float) -> None:
    torch.manual_seed(0)
    check(kind().train(), *OPTIMIZERS[name](rate), STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, rate", [("sgd", 0.01), ("adamw", 3e-4)])
def test_losses_stay_the_same(kind: type, name: str, rate: float) -> None:
    """Beside PyTorch in f64, and slowly: of a fast training, PyTorch's own losses in f32 and f64 differ by 1e-2 after
    200 steps, since rounding grows and now and then turns a ReLU's side."""
    torch.manual_seed(0)
    check(kind().train(), *OPTIMIZERS[name](rate), LONG, torch.float64)


def check(module, own: Optimizer, other: Callable, steps: int, dtype=torch.float32) -> None:
    """Losses of both from the same start, PyTorch's computed in that type."""
    model = exported(module)
    module = module.to(dtype)
    optimizer = other(module.parameters())
    with Trainer(model, optimizer=own, batch=ROWS, shards=1) as trainer:
        assert set(trainer.parameters) == {name for name, _ in module.named_parameters()}
        for x, y in batches(steps):
            found = trainer.step({"x": x, "labels": y})
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(torch.from_numpy(x).to(dtype)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
            assert found["loss"] == pytest.approx(loss.item(), rel=MISS, abs=MISS / 10)
        means = {name: b.numpy() for name, b in module.named_buffers() if name.endswith("running_mean")}
        assert set(means) == {name for name in trainer.state.statistics if name.endswith("mean")}
        for name, mean in means.items():
            np.testing.assert_allclose(trainer.state.statistics[name], mean, rtol=2e-2, atol=1e-3)
