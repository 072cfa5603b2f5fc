"""Groups of parameters: whose settings a parameter gets, and the same steps as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import parax
from parax.compiler.trainer import Trainer
from parax.compiler.training.groups import ALL, ParameterGroup, grouped
from train.small_models import classifier, rows

SHAPES = {"stem.weight": (8, 3), "stem.bias": (8,), "head.weight": (8,), "head.bias": ()}


@pytest.mark.parametrize(
    "groups, expected",
    [
        ([], {ALL: list(SHAPES)}),
        ([ParameterGroup(["*"])], {"group.0": list(SHAPES)}),
        ([ParameterGroup(max_rank=1)], {"group.0": list(SHAPES)[1:], ALL: ["stem.weight"]}),
        ([ParameterGroup(["*.bias"]), ParameterGroup(["head.*", "stem.*"], max_rank=1)],
         {"group.0": ["stem.bias", "head.bias"], "group.1": ["head.weight"], ALL: ["stem.weight"]}),
    ],
)  # fmt: skip
def test_the_first_group_that_takes_a_parameter_has_it(groups: list[ParameterGroup], expected: dict) -> None:
    found = grouped(SHAPES, groups)
    assert {name: list(members) for name, (_, members) in found.items()} == expected
    assert all(members[name] == SHAPES[name] for _, members in found.values() for name in members)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: grouped(SHAPES, [ParameterGroup(["*.gamma"])]), "no parameter fits the pattern"),
        (lambda: grouped(SHAPES, [ParameterGroup(), ParameterGroup(["*.bias"])]), "takes no parameter"),
        (lambda: ParameterGroup("*.bias"), "list of texts"),
        (lambda: ParameterGroup(lr_scale=-1.0), "out of range"),
        (lambda: ParameterGroup(lr_scale=None), "out of range"),
        (lambda: ParameterGroup(weight_decay=float("nan")), "out of range"),
        (lambda: ParameterGroup(max_rank=1.5), "out of range"),
    ],
)
def test_what_cannot_be_is_said(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(parax.UsageError, match=message):
        make()


@pytest.mark.parametrize("instances, shards", [(1, 1), (2, 2)])
@pytest.mark.parametrize("optimizer, twin", [
    (parax.SGD(lr=0.1, momentum=0.9, weight_decay=0.1), "SGD"),
    (parax.AdamW(lr=0.02, weight_decay=0.2), "AdamW"),
], ids=["sgd", "adamw"])  # fmt: skip
def test_twenty_steps_of_torch(optimizer: parax.SGD | parax.AdamW, twin: str, instances: int, shards: int) -> None:
    torch = pytest.importorskip("torch")
    groups = [ParameterGroup(["b1"], lr_scale=3.0, weight_decay=0.0), ParameterGroup(max_rank=1, lr_scale=0.5)]
    with Trainer(classifier(), optimizer=optimizer, groups=groups, batch=12, shards=shards, instances=instances) as own:
        p = {name: torch.nn.Parameter(torch.tensor(array)) for name, array in own.parameters.items()}
        more: dict[str, float] = {"momentum": 0.9} if twin == "SGD" else {}
        other = getattr(torch.optim, twin)(
            [{"params": [p["b1"]], "lr": optimizer.lr * 3, "weight_decay": 0.0},
             {"params": [p["b2"]], "lr": optimizer.lr / 2}, {"params": [p["w1"], p["w2"]]}],
            lr=optimizer.lr, weight_decay=optimizer.weight_decay, **more,
        )  # fmt: skip
        for seed in range(20):
            batch = rows(seed, 12)
            found = own.step(batch)
            other.zero_grad()
            hidden = torch.relu(torch.tensor(batch["x"]) @ p["w1"] + p["b1"])
            loss = torch.nn.functional.cross_entropy(hidden @ p["w2"].T + p["b2"], torch.tensor(batch["labels"]))
            loss.backward()
            other.step()
            assert found["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
        for name, array in own.parameters.items():
            np.testing.assert_allclose(array, p[name].detach().numpy(), rtol=1e-3, atol=1e-5)
