"""Tables whose gradient is kept as rows: against PyTorch, whose gradients are whole tables, and in every exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.trainer import Trainer
from parax.compiler.training.update_graph import Clip
from parax.errors import InvalidInput
from train.exchanging import assert_close, assert_same_bits, compact

A, B, CLASSES, ROWS, STEPS = (97, 5), (61, 19), 3, 8, 5
SHAPES = {"a": A, "b": B, "w": (A[1] + B[1] + A[1], CLASSES), "bias": (CLASSES,)}
Arrays = Mapping[str, np.ndarray]


def model(shapes: Mapping[str, tuple[int, ...]] = SHAPES, extra: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    """[a[user], sum of b[items], a[other]] · w + bias: one table is looked into twice. `extra`: makes y of scores."""
    rng, node = np.random.default_rng(3), helper.make_node
    nodes = [
        node("Gather", ["a", "user"], ["of_user"]), node("Gather", ["b", "items"], ["of_items"]),
        node("ReduceSum", ["of_items", "axes"], ["of_all"], keepdims=0), node("Gather", ["a", "other"], ["of_other"]),
        node("Concat", ["of_user", "of_all", "of_other"], ["x"], axis=1),
        node("Gemm", ["x", "w", "bias"], ["scores"]), *(extra or [node("Identity", ["scores"], ["y"])]),
    ]  # fmt: skip
    given = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), name) for name, s in shapes.items()]
    inputs = [helper.make_tensor_value_info("user", TensorProto.INT64, ["N"]),
              helper.make_tensor_value_info("items", TensorProto.INT64, ["N", 3]),
              helper.make_tensor_value_info("other", TensorProto.INT32, ["N"])]  # fmt: skip
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])
    graph = helper.make_graph(nodes, "tables", inputs, [y], [*given, numpy_helper.from_array(np.array([1]), "axes")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def batch(seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Most rows are looked up more than once, within a shard and by several; some are counted from the end."""
    rng = np.random.default_rng(seed)
    return {"user": rng.integers(-4, 4, rows), "items": rng.integers(-5, B[0], (rows, 3)),
            "other": rng.integers(0, 6, rows).astype(np.int32), "labels": rng.integers(0, CLASSES, rows)}  # fmt: skip


def trainer(name: str = "fixed", instances: int = 1, of: onnx.ModelProto | None = None, **given: Any) -> Trainer:
    exchange = parax.Exchange(name, oversubscribe=True)
    given = {"optimizer": parax.Adam(lr=0.05), "batch": ROWS, "shards": 2, **given}
    return Trainer(of or model(), exchange=exchange, instances=instances, **given)


def trained(trainer: Trainer) -> dict[str, np.ndarray]:
    with trainer:
        for seed in range(STEPS):
            trainer.step(batch(seed))
        return trainer.parameters


OPTIMIZERS: dict[str, tuple[Callable[..., Any], str, dict[str, Any], dict[str, Any]]] = {
    "sgd": (parax.SGD, "SGD", {"lr": 0.2}, {}),
    "decayed": (parax.SGD, "SGD", {"lr": 0.2, "weight_decay": 0.1}, {}),
    "momentum": (parax.SGD, "SGD", {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.01}, {}),
    "nesterov": (parax.SGD, "SGD", {"lr": 0.2, "momentum": 0.9, "nesterov": True}, {}),
    "adam": (parax.Adam, "Adam", {"lr": 0.05, "weight_decay": 0.01}, {}),
    "adamw": (parax.AdamW, "AdamW", {"lr": 0.05, "weight_decay": 0.1}, {}),
    "adagrad": (parax.Adagrad, "Adagrad", {"lr": 0.1}, {}),
    "rmsprop": (parax.RMSprop, "RMSprop", {"lr": 0.02, "momentum": 0.5}, {}),
    "by value": (parax.SGD, "SGD", {"lr": 0.2, "momentum": 0.9}, {"value": 0.02}),
    "by norm": (parax.Adam, "Adam", {"lr": 0.05}, {"norm": 0.1}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_semantics_of_every_optimizer(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the other side of the comparison")
    own, other, settings, clip = OPTIMIZERS[name]
    with trainer(optimizer=own(**settings), clip=Clip(**clip), instances=2) as made:
        assert compact(made) == {"a", "b"}
        p = {name: torch.nn.Parameter(torch.from_numpy(array)) for name, array in made.parameters.items()}
        optimizer = getattr(torch.optim, other)(p.values(), **settings)
        for seed in range(STEPS):
            given = batch(seed)
            user, items, target, labels = (torch.from_numpy(given[key].astype(np.int64))
                                           for key in ("user", "items", "other", "labels"))  # fmt: skip
            optimizer.zero_grad()
            x = torch.cat([p["a"][user], p["b"][items].sum(1), p["a"][target]], 1)
            loss = torch.nn.functional.cross_entropy(x @ p["w"] + p["bias"], labels)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(p.values(), clip.get("norm", 1e9))
            if "value" in clip:
                torch.nn.utils.clip_grad_value_(p.values(), clip["value"])
            optimizer.step()
            found = made.step(given)
            np.testing.assert_allclose([found["loss"], found["norm"]], [loss.item(), norm.item()], rtol=2e-5)
        assert_close(made.parameters, {name: value.detach().numpy() for name, value in p.items()})


@pytest.mark.parametrize("accumulate", [1, 2])
def test_bits_do_not_depend_on_the_instances(accumulate: int) -> None:
    one, two = (trained(trainer(instances=n, shards=4 // accumulate, accumulate=accumulate)) for n in (1, 2))
    assert_same_bits(two, one)


def test_micro_batches_give_the_batch_its_gradient() -> None:
    assert_close(trained(trainer(shards=1, accumulate=4)), trained(trainer(shards=1)))


@pytest.mark.parametrize("name", ["gradient-server", "parameter-server", "ring"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_exchange_gives_the_same_weights(name: str, accumulate: int) -> None:
    expected = trained(trainer())
    assert_close(trained(trainer(name, 2, accumulate=accumulate)), expected)


def test_an_asynchronous_update_has_the_rows_of_its_own_shard() -> None:
    assert_same_bits(trained(trainer("asynchronous", shards=1)), trained(trainer(shards=1)))
    found, steps = trainer("asynchronous", batch=ROWS, shards=2), trainer(batch=ROWS // 2, shards=1)
    with found, steps:
        found.step(batch(0))
        for half in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
            steps.step({name: array[half] for name, array in batch(0).items()})
        assert_same_bits(found.parameters, steps.parameters)


def test_more_instances_work_asynchronously() -> None:
    found = trained(trainer("asynchronous", 2, shards=2))
    assert all(np.isfinite(array).all() for array in found.values())


def test_averages_and_groups_of_tables() -> None:
    groups = [parax.ParameterGroup(patterns=["b"], weight_decay=0.0, lr_scale=0.0)]
    with trainer(optimizer=parax.AdamW(lr=0.1, weight_decay=0.5), groups=groups, ema=0.5) as made:
        first = made.parameters
        made.step(batch(0))
        for name, average in made.state.values(average=True).items():
            np.testing.assert_allclose(average, (first[name] + made.parameters[name]) / 2, rtol=1e-6, atol=1e-7)
        assert_same_bits({"b": made.parameters["b"]}, {"b": first["b"]})
        np.testing.assert_allclose(made.parameters["a"][50], first["a"][50] * 0.95, rtol=1e-6)  # looked up by nobody


def test_other_uses_have_tables_of_gradients() -> None:
    mean = [helper.make_node("ReduceMean", ["a"], ["m"], keepdims=0), helper.make_node("Add", ["scores", "m"], ["y"])]
    with trainer(of=model(extra=mean)) as made:
        assert compact(made) == {"b"}
    with trainer(optimizer=parax.LAMB(lr=0.1)) as made:
        assert compact(made) == set()  # its step of an element depends on the whole tensor
    with trainer(batch=32) as made:
        assert compact(made) == {"a"}  # 96 rows of b's 61
    with trainer(frozen=["a"]) as made:
        assert compact(made) == {"b"}


@pytest.mark.parametrize("index", [B[0], -B[0] - 1])
def test_an_index_out_of_range_changes_nothing(index: int) -> None:
    with trainer() as made:
        made.step(batch(0))
        before, wrong = made.parameters, batch(1)
        wrong["items"][-1, -1] = index
        with pytest.raises(InvalidInput, match="out of range"):
            made.step(wrong)
        assert_same_bits(made.parameters, before)
        made.step(batch(1))


def test_what_is_not_finite_changes_nothing() -> None:
    with trainer() as made:
        made.state.parameters["b"][0] = np.inf
        before, given = made.parameters, batch(0)
        given["items"][0, 0] = 0
        with pytest.raises(parax.Diverged):
            made.step(given)
        assert_same_bits(made.parameters, before)


def test_memory_counts_rows() -> None:
    with trainer() as made:
        rows = sum(of.nbytes for of in made.program.compact.values())
        assert rows == ROWS // 2 * (2 * (8 + 4 * A[1]) + 3 * (8 + 4 * B[1]))
        dense = made._stepper.scheme.place(0, 0).vectors["all"].nbytes
        assert made.memory().parts["gradients"] == 2 * (dense + rows)
