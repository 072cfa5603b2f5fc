"""Layers whose gradient is kept as factors: as with the gradient itself, in every exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.driver import compile_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.trainer import Trainer
from parax.compiler.training import factors
from parax.compiler.training.update_graph import Clip
from train.exchanging import assert_close, assert_same_bits, compact

ROWS, STEPS = 4, 4
SHAPES = {"w1": (40, 48), "w2": (36, 48), "w3": (36, 30), "bias": (30,)}


def model(bias: bool = True) -> onnx.ModelProto:
    """A product, a Gemm of transposed weights, and one of weights as they are."""
    rng, node = np.random.default_rng(3), helper.make_node
    nodes = [node("MatMul", ["x", "w1"], ["a"]), node("Relu", ["a"], ["b"]), node("Gemm", ["b", "w2"], ["c"], transB=1),
             node("Tanh", ["c"], ["d"]), node("Gemm", ["d", "w3", *(["bias"] if bias else [])], ["y"])]  # fmt: skip
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) / 6, name)
               for name, s in SHAPES.items() if bias or name != "bias"]  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n]) for name, n in (("x", 40), ("y", 30)))
    graph = helper.make_graph(nodes, "layers", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def batch(seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, 40)).astype(np.float32), "labels": rng.integers(0, 30, rows)}


def trainer(name: str = "fixed", instances: int = 1, bias: bool = True, **given: Any) -> Trainer:
    exchange = parax.Exchange(name, oversubscribe=True)
    given = {"optimizer": parax.Adam(lr=0.02), "batch": ROWS, "shards": 2, **given}
    return Trainer(model(bias), exchange=exchange, instances=instances, **given)


def trained(trainer: Trainer) -> dict[str, np.ndarray]:
    with trainer:
        for seed in range(STEPS):
            trainer.step(batch(seed))
        return trainer.parameters


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small gradients are worth it."""
    monkeypatch.setattr(factors, "LEAST_NBYTES", 0)
    yield


@pytest.mark.parametrize("settings", [
    {"optimizer": parax.SGD(lr=0.1, momentum=0.9, nesterov=True)},
    {"optimizer": parax.AdamW(lr=0.02, weight_decay=0.1)},
    {"clip": Clip(norm=0.1)}, {"clip": Clip(value=0.01)}, {"shards": 1}, {"instances": 2}, {"accumulate": 2},
    {"ema": 0.5}, {"groups": [parax.ParameterGroup(patterns=["w2"], lr_scale=0.5)]}, {"bias": False},
], ids=str)  # fmt: skip
def test_as_with_the_gradient_itself(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with trainer(**settings) as whole:
        assert compact(whole) == set()
        monkeypatch.setattr(factors, "LEAST_NBYTES", 0)
        with trainer(**settings) as made:
            assert compact(made) == {"w1", "w2", "w3"}
            for seed in range(STEPS):
                found, expected = made.step(batch(seed)), whole.step(batch(seed))
                np.testing.assert_allclose([found["loss"], found["norm"]], [expected["loss"], expected["norm"]], 2e-5)
            assert_close(made.parameters, whole.parameters)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_bits_do_not_depend_on_the_instances(accumulate: int, small: None) -> None:
    one, two = (trained(trainer(instances=n, shards=4 // accumulate, accumulate=accumulate)) for n in (1, 2))
    assert_same_bits(two, one)


@pytest.mark.parametrize("name", ["gradient-server", "parameter-server", "ring"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_exchange_gives_the_same_weights(name: str, bias: bool, small: None) -> None:
    expected = trained(trainer(bias=bias))
    assert_close(trained(trainer(name, 2, bias=bias)), expected)


def test_an_asynchronous_update_has_the_factors_of_its_own_shard(small: None) -> None:
    assert_same_bits(trained(trainer("asynchronous", shards=1)), trained(trainer(shards=1)))
    assert all(np.isfinite(array).all() for array in trained(trainer("asynchronous", 2)).values())


def test_which_layers(small: None) -> None:
    with trainer(batch=8) as made:
        assert compact(made) == set()  # the factors of 8 rows are no quarter of any gradient
    with trainer(optimizer=parax.LAMB(lr=0.1)) as made:
        assert compact(made) == set()  # its step of an element depends on the whole tensor
    with trainer(frozen=["w1"]) as made:
        assert compact(made) == {"w2", "w3"}


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_changes_nothing(wrong: float, small: None) -> None:
    with trainer() as made:
        made.step(batch(0))
        before, given = made.parameters, batch(1)
        given["x"][1, 3] = wrong
        with pytest.raises(parax.Diverged):
            made.step(given)
        assert_same_bits(made.parameters, before)
        made.step(batch(1))


def computed(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product and the sum of its squares as an update has them."""
    graph = Graph("g")
    a, b = (graph.add_input(name, TensorType(F32, v.shape)) for name, v in (("a", left), ("b", right)))
    g = GraphBuilder(graph, name="g")
    graph.set_outputs([factors.product(g, a, b), factors.product_squared(g, a, b)], ["product", "squared"])
    with compile_graph(graph, parax.CompileOptions(hint="latency")).session() as session:
        found = session.run({"a": left, "b": right})
    return found["product"], found["squared"]


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 33), st.integers(0, 99))
def test_products(n: int, rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.standard_normal((n, size)).astype(np.float32) for size in (rows, columns))
    left *= 10.0 ** rng.integers(-6, 6, (n, 1))  # outliers
    expected = left.T.astype(np.float64) @ right
    product, squared = computed(left, right)
    bound = 4 * n * 2**-24 * (np.abs(left).T.astype(np.float64) @ np.abs(right))
    assert (np.abs(product - expected) <= bound + 1e-30).all()
    np.testing.assert_allclose(squared, np.sum(expected**2), 1e-6)


def test_terms_that_cancel() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((1, 50)).astype(np.float32), rng.standard_normal((1, 30)).astype(np.float32)
    left, right = np.concatenate([one, one]), np.concatenate([other, -other])
    assert computed(left, right)[1] == 0
    right[1, 3] *= 1 + 1e-5  # what is left is 10⁻⁶ of the terms
    exact = np.sum((left.T.astype(np.float64) @ right) ** 2)
    np.testing.assert_allclose(np.sqrt(computed(left, right)[1]), np.sqrt(exact), 1e-3)
