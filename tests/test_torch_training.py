"""`parax.torch.compile_training`: torch's own training, step by step, and a module that has its weights back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parax

torch = pytest.importorskip("torch", reason="torch is an extra: pip install 'parax[torch]'")
pytest.importorskip("onnxscript", reason="onnxscript is an extra: pip install 'parax[torch]'")
nn, optim = torch.nn, torch.optim
CLASSES = 5


class Pictures(nn.Module):
    """Convolution, normalisation, a layer that is not used and a number without an axis."""

    def __init__(self, dropped: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6, momentum=0.2)
        self.drop = nn.Dropout(dropped) if dropped else nn.Identity()
        self.last = nn.Linear(6 * 9, CLASSES)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.last(self.drop(x.flatten(1))) * self.scale


class Words(nn.Module):
    """An LSTM whose last layer has the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.last = nn.Linear(8, CLASSES)
        self.last.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.last(self.lstm(self.embedding(x))[0][:, -1])


def pictures(rows: int) -> tuple[Any, Any]:
    return torch.randn(rows, 1, 6, 6), torch.randint(0, CLASSES, (rows,))


def words(rows: int) -> tuple[Any, Any]:
    return torch.randint(0, CLASSES, (rows, 4)), torch.randint(0, CLASSES, (rows,))


def numbers(rows: int) -> tuple[Any, Any]:
    return torch.randn(rows, 7), torch.rand(rows, 3)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 3))


CASES: dict[str, tuple[Callable, Callable, Any, Callable]] = {
    "convolutions": (Pictures, pictures, nn.CrossEntropyLoss(), lambda p: optim.SGD(p, 0.05, momentum=0.9)),
    "words": (Words, words, nn.CrossEntropyLoss(), lambda p: optim.Adam(p, 0.01, betas=(0.8, 0.99))),
    "mse": (perceptron, numbers, nn.MSELoss(), lambda p: optim.SGD(p, 0.1, 0.9, nesterov=True, weight_decay=0.01)),
    "mae": (perceptron, numbers, nn.L1Loss(), lambda p: optim.AdamW(p, 0.01, weight_decay=0.1)),
    "scores": (perceptron, numbers, nn.BCEWithLogitsLoss(), lambda p: optim.RMSprop(p, 0.01, centered=True)),
    "adagrad": (perceptron, numbers, nn.MSELoss(), lambda p: optim.Adagrad(p, 0.1, lr_decay=0.01)),
}


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps_are_torchs(name: str) -> None:
    make, drawn, loss, optimizer = CASES[name]
    module = make()
    twin = copy.deepcopy(module)
    theirs, own = optimizer(list(twin.parameters())), optimizer(list(module.parameters()))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with parax.torch.compile_training(module, loss, own, example=drawn(1)[0], batch=6, shards=1) as training:
        assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
        for _ in range(20):
            x, labels = drawn(6)
            expected = loss(twin(x), labels)
            theirs.zero_grad()
            expected.backward()
            theirs.step()
            found = training.step((x, labels))
            assert found["loss"] == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)
        training.write_back()
    for key, value in twin.state_dict().items():
        if key.endswith("running_var"):  # torch's is of a sample, ONNX's of all: 6 rows of 6 × 6
            n = 6 * 36
            moved, mine = value - 0.8**20, module.state_dict()[key] - 0.8**20
            torch.testing.assert_close(mine * n / (n - 1), moved, rtol=1e-3, atol=1e-4)
        else:
            torch.testing.assert_close(module.state_dict()[key], value, rtol=1e-3, atol=1e-4)


def test_what_is_not_trained_stays() -> None:
    module = Pictures()
    module.conv.weight.requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    given = [p for name, p in module.named_parameters() if name != "scale"]
    with parax.torch.compile_training(module, "softmax_cross_entropy", optim.SGD(given, 0.1), example=pictures(2)[0],
                                      batch=4) as training:  # fmt: skip
        assert sorted(training.parameters) == ["last.bias", "last.weight", "norm.bias", "norm.weight"]
        training.step(pictures(4))
        training.write_back()
    moved = {key for key, value in module.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == {"last.bias", "last.weight", "norm.bias", "norm.weight", "norm.running_mean", "norm.running_var",
                     "norm.num_batches_tracked"}  # fmt: skip


def test_a_schedule_of_torchs_is_followed() -> None:
    module = perceptron()
    own = optim.SGD(module.parameters(), 0.1)
    schedule = optim.lr_scheduler.StepLR(own, 2, 0.5)
    with parax.torch.compile_training(module, nn.MSELoss(), own, example=numbers(2)[0], batch=4) as training:
        rates = []
        for _ in range(4):
            rates.append(training.step(numbers(4))["rate"])
            schedule.step()
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05])


def test_a_data_loader_is_gone_through_and_the_model_exported(tmp_path: Path) -> None:
    from onnxruntime import InferenceSession

    x, _ = pictures(120)
    labels = (x.mean((1, 2, 3)) > 0).long()
    module = Pictures(dropped=0.3)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), 20, drop_last=True)
    with parax.torch.compile_training(module, nn.CrossEntropyLoss(), parax.Adam(lr=0.02), example=x[:2],
                                      batch=20, shards=2) as training:  # fmt: skip
        done = training.fit(data, 15)
        assert done.epochs == 15 and int(module.norm.num_batches_tracked) == 15 * 6
        found = training.evaluate([(x, labels)])
        training.export(tmp_path / "m.onnx")
    module.eval()
    with torch.no_grad():
        y = module(x)
    assert found["accuracy"] == pytest.approx((y.argmax(1) == labels).float().mean().item()) and found["accuracy"] > 0.9
    assert found["loss"] == pytest.approx(nn.functional.cross_entropy(y, labels).item(), rel=1e-4)
    session = InferenceSession(tmp_path / "m.onnx")
    (theirs,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})  # nothing is dropped in it
    np.testing.assert_allclose(theirs, y.numpy(), rtol=1e-4, atol=1e-5)


def test_weights_are_there_whatever_ends_it() -> None:
    module = perceptron()
    before = module[0].weight.clone()
    bad = [numbers(4), (torch.full((4, 7), torch.nan), torch.rand(4, 3))]
    training = parax.torch.compile_training(module, "mse", parax.SGD(lr=0.1), example=numbers(2)[0], batch=4)
    with training, pytest.raises(parax.Diverged):
        training.fit(bad)
    assert not torch.equal(module[0].weight, before) and torch.isfinite(module[0].weight).all()


class Odd(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


def _still(module: Any) -> Any:
    module.norm.eval()
    return module


def stepped(module: Any) -> Any:
    own = optim.Adam(module.parameters())
    module(pictures(2)[0]).sum().backward()
    own.step()
    return own


@pytest.mark.parametrize(
    ("module", "loss", "optimizer", "message"),
    [
        (3, "mse", None, "no module"),
        (Odd(), "mse", None, "nothing can be trained"),
        (_still(Pictures()), "mse", None, "norm.*evaluation mode"),
        (nn.Sequential(Pictures(), nn.BatchNorm1d(CLASSES, momentum=None)), "mse", None, "plain averages"),
        (nn.Sequential(Pictures(), nn.BatchNorm1d(CLASSES, track_running_stats=False)), "mse", None, "without running"),
        (Pictures(), nn.CrossEntropyLoss(label_smoothing=0.1), None, "label_smoothing"),
        (Pictures(), nn.CrossEntropyLoss(weight=torch.ones(CLASSES)), None, "weight=None"),
        (Pictures(), nn.MSELoss(reduction="sum"), None, "reduction='mean'"),
        (Pictures(), nn.HuberLoss(), None, "HuberLoss"),
        (Pictures(), "mse", lambda m: optim.Adam(m.parameters(), amsgrad=True), "amsgrad=False"),
        (Pictures(), "mse", lambda m: optim.SGD(m.parameters(), maximize=True), "maximize=False"),
        (Pictures(), "mse", lambda m: optim.Adadelta(m.parameters()), "Adadelta"),
        (Pictures(), "mse", stepped, "has taken steps"),
        (Pictures(), "mse", lambda m: optim.SGD([{"params": [p], "lr": i + 1.0} for i, p in
                                                 enumerate(m.parameters())]), "settings of their own"),
        (Words(), "mse", None, "cannot be called so"),
    ],
)  # fmt: skip
def test_what_training_would_not_be_torchs(module: Any, loss: Any, optimizer: Any, message: str) -> None:
    own = optimizer(module) if optimizer is not None else parax.SGD(lr=0.1)
    with pytest.raises(parax.ParaxError, match=message):
        parax.torch.compile_training(module, loss, own, example=pictures(2)[0])
