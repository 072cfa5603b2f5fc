"""What a training takes: predicted and measured, and held to a limit without changing a bit."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.memory_limit import MemoryLimit
from parax.compiler.trainer import Trainer
from parax.errors import ResourceLimit, UsageError
from parax.runtime.train.memory import TrainingMemory

ROWS, LAYERS, CHANNELS, SIZE = 4, 6, 16, 24


def network(layers: int = LAYERS, channels: int = CHANNELS, size: int = SIZE, ratio: float = 0.3) -> onnx.ModelProto:
    """Convolution, batch norm and Relu, one after the other, each added to what came in; then Dropout and classes."""
    rng, node = np.random.default_rng(0), helper.make_node
    weights = {"first.w": rng.standard_normal((channels, 3, 1, 1)), "last.w": rng.standard_normal((channels, 5))}
    nodes = [node("Conv", ["x", "first.w"], ["h0"])]
    for i in range(layers):
        weights[f"{i}.w"] = rng.standard_normal((channels, channels, 3, 3)) * 0.1
        statistics = {"scale": np.ones(channels), "bias": np.zeros(channels), "mean": np.zeros(channels),
                      "var": np.ones(channels)}  # fmt: skip
        weights |= {f"{i}.{name}": array for name, array in statistics.items()}
        nodes += [
            node("Conv", [f"h{i}", f"{i}.w"], [f"c{i}"], pads=[1] * 4),
            node("BatchNormalization", [f"c{i}", *(f"{i}.{name}" for name in statistics)], [f"b{i}"]),
            node("Relu", [f"b{i}"], [f"r{i}"]), node("Add", [f"r{i}", f"h{i}"], [f"h{i + 1}"]),
        ]  # fmt: skip
    nodes += [
        node("Dropout", [f"h{layers}", "ratio"], ["d"]), node("GlobalAveragePool", ["d"], ["p"]),
        node("Flatten", ["p"], ["f"]), node("MatMul", ["f", "last.w"], ["y"]),
    ]  # fmt: skip
    given = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    given.append(numpy_helper.from_array(np.float32(ratio), "ratio"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, size, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])
    graph = helper.make_graph(nodes, "network", [x], [y], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def batch(seed: int, rows: int = ROWS, size: int = SIZE) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, 3, size, size)).astype(np.float32), "labels": rng.integers(0, 5, rows)}


def trained(max_memory: int | str | None, instances: int = 1) -> tuple[list[float], dict, TrainingMemory]:
    """Losses, parameters with running statistics, and memory after some steps."""
    with Trainer(network(), optimizer=parax.SGD(lr=0.1, momentum=0.9), batch=ROWS, instances=instances,
                 max_memory=max_memory) as trainer:  # fmt: skip
        losses = [trainer.step(batch(seed))["loss"] for seed in range(4)]
        state = {name: array.copy() for name, array in trainer.state.tensors().items()}
        return losses, state, trainer.memory()


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("share", [90, 70])
def test_less_memory_changes_no_bit(share: int, instances: int) -> None:
    """Of losses, weights, momentum and running statistics, with a layer that drops elements."""
    losses, state, free = trained(None, instances)
    found, same, less = trained(f"{share}%", instances)
    assert found == losses
    for name, array in state.items():
        np.testing.assert_array_equal(same[name], array, err_msg=name)
    assert less.steps <= free.steps * share / 100 and less.parts["arenas"] < free.parts["arenas"]


def test_bytes_are_a_limit_as_well() -> None:
    _, _, free = trained(None)
    _, _, less = trained(free.steps - 100_000)
    assert less.steps <= free.steps - 100_000
    _, _, same = trained(2 * free.steps)
    assert same.parts == free.parts


def test_too_little_memory_says_what_is_enough() -> None:
    with pytest.raises(ResourceLimit, match="needs more memory than it may take") as caught:
        trained("5%")
    least = int(str(caught.value.expected).split()[0])
    assert trained(least)[2].steps <= least


@pytest.mark.parametrize(("given", "expected"), [
    (None, MemoryLimit()), (1000, MemoryLimit(1000)), ("1000", MemoryLimit(1000)), ("2GiB", MemoryLimit(2 << 30)),
    ("1.5 MB", MemoryLimit(1_500_000)), ("60%", MemoryLimit(share=0.6)), ("12.5 %", MemoryLimit(share=0.125)),
    ("100%", MemoryLimit(share=1.0)),
])  # fmt: skip
def test_amounts_of_memory(given: int | str | None, expected: MemoryLimit) -> None:
    assert MemoryLimit.of(given) == expected


@pytest.mark.parametrize("given", [0, -1, True, "", "0%", "101%", "-5%", "5 apples", "0GiB", 1.5, "nan%", [], "1e3"])
def test_other_things_are_no_amounts(given: object) -> None:
    with pytest.raises(UsageError, match="max_memory"):
        MemoryLimit.of(given)  # type: ignore[arg-type]


MEASURED = """
import parax
from train.test_memory import batch, network
rows = 8
for kind, instances in (("no", 1), ("no", 2), ("70%", 1)):
    with parax.Trainer(network(6, 64, 64), optimizer=parax.Adam(), batch=rows, instances=instances,
                       max_memory=None if kind == "no" else kind) as trainer:
        for seed in range(2):
            trainer.step(batch(seed, rows, 64))
        memory = trainer.memory()
        print(memory.steps, memory.measured)
        trainer.evaluate([batch(5, rows, 64)])
        print(memory.total, trainer.memory().measured)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read off /proc")
def test_what_is_predicted_is_measured() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": ":".join(sys.path)})  # fmt: skip
    for line in done.stdout.splitlines():
        predicted, measured = map(int, line.split())
        assert measured == pytest.approx(predicted, rel=0.1, abs=4 << 20), done.stdout
