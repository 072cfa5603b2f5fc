"""Both trainings of `training_curves`, by parax and by PyTorch, from one start."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

import parax.torch

from .training_curves_cases import CASES, Case, Data

Batch = tuple[torch.Tensor, torch.Tensor]


def all_seeds(name: str, n_seeds: int, steps: int) -> tuple[list[dict[str, Any]], int]:
    """What `trained` gives for each seed, and how many labels an accuracy is a share of. A model is compiled once."""
    case, data = CASES[name], CASES[name].data()
    module = _drawn(case, data, 0)
    optimizer = case.optimizer(module.parameters())  # of which parax takes the settings, and before each step the rate
    with parax.torch.compile_training(
        module, nn.CrossEntropyLoss(), optimizer, batch=case.batch, shards=1,
        example=torch.from_numpy(data.train[0][: case.batch]),
    ) as training:  # fmt: skip
        runs = []
        for seed in range(n_seeds):
            runs.append(trained(training, optimizer, case, data, seed, steps))
            print(f"{name}: seed {seed} is trained", file=sys.stderr, flush=True)
        return runs, data.test[1].size


def trained(
    training: parax.torch.ModuleTrainer, optimizer: Optimizer, case: Case, data: Data, seed: int, steps: int
) -> dict[str, Any]:
    """One seed on both sides: `losses` of each step and `accuracy` at the end, by side, `parax` and `torch`."""
    module = _drawn(case, data, seed)
    _begin(training, module)
    batches = _batches(case, data, seed, steps)
    test = torch.from_numpy(data.test[0]), torch.from_numpy(data.test[1])
    losses = {"parax": [training.step(batch)["loss"] for batch in _paced(optimizer, batches)]}
    accuracy = {"parax": training.evaluate([test])["accuracy"]}
    losses["torch"] = _by_torch(module, case.optimizer(module.parameters()), batches)
    accuracy["torch"] = _accuracy(module, test)
    return {"seed": seed, "losses": losses, "accuracy": accuracy}


def _drawn(case: Case, data: Data, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return case.module(data).train()


def _begin(training: parax.torch.ModuleTrainer, module: nn.Module) -> None:
    """A training begins with the module's weights; what the optimiser keeps is nothing yet."""
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    begun = {}
    for key, array in training.state.tensors().items():
        kind, _, name = key.partition("/")
        begun[key] = own[name].detach().numpy() if kind in ("weights", "statistics") else np.zeros_like(array)
    training.state.restore(begun, 0)


def _batches(case: Case, data: Data, seed: int, steps: int) -> list[Batch]:
    """Whole batches of one epoch after the other, each in an order of its own."""
    x, labels = torch.from_numpy(data.train[0]), torch.from_numpy(data.train[1])
    rng, per_epoch = np.random.default_rng(seed), len(x) // case.batch
    orders = [rng.permutation(len(x)) for _ in range(math.ceil(steps / per_epoch))]
    parts = [order[i * case.batch : (i + 1) * case.batch] for order in orders for i in range(per_epoch)]
    return [(x[part], labels[part]) for part in parts[:steps]]


def _paced(optimizer: Optimizer, batches: list[Batch]) -> Iterator[Batch]:
    """The batches, at a rate that falls to nothing as a cosine: where a training ends is then little chance's."""
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = optimizer.defaults["lr"] * (1 + math.cos(math.pi * step / len(batches))) / 2
        yield batch


def _by_torch(module: nn.Module, optimizer: Optimizer, batches: list[Batch]) -> list[float]:
    """The loss of each step."""
    found = []
    for x, labels in _paced(optimizer, batches):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(x), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def _accuracy(module: nn.Module, test: Batch) -> float:
    """The share of labels that have the greatest score."""
    x, labels = test
    with torch.no_grad():
        return float((module.eval()(x).argmax(1) == labels).double().mean())
