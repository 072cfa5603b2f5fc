"""Exchanges between instances: the same weights, bits that no instance changes, what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.trainer import Trainer
from parax.runtime.train.exchange.gradient_server import BLOCK, cut
from parax.runtime.train.exchange.settings import SCHEMES
from parax.runtime.train.layout import Layout
from train.exchanging import ROWS, STEPS, assert_close, assert_same_bits, restarted, start_of, trained, trainer, usable
from train.small_models import classifier

SYNCHRONOUS = [name for name, scheme in SCHEMES.items() if scheme.is_synchronous]


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """What one instance in fixed order comes to."""
    with trainer() as one:
        return trained(one)


@pytest.mark.parametrize("instances", [1, 2, 3])
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_all_give_the_same_weights(name: str, instances: int, expected: dict[str, np.ndarray]) -> None:
    with trainer(name, instances) as own:
        assert_close(trained(own), expected)


def convolutions() -> onnx.ModelProto:
    """Conv → BatchNormalization → Relu → Conv → Relu → GlobalAveragePool → Gemm."""
    rng = np.random.default_rng(3)
    arrays = {
        "k1": rng.standard_normal((20, 3, 3, 3)) / 5, "k2": rng.standard_normal((24, 20, 3, 3)) / 13,
        "w": rng.standard_normal((5, 24)), "b": np.zeros(5), "scale": np.ones(20), "shift": np.zeros(20),
        "mean": np.zeros(20), "variance": np.ones(20),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "k1"], ["a"], pads=[1] * 4),
        node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["n"]), node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "k2"], ["c"], pads=[1] * 4), node("Relu", ["c"], ["d"]),
        node("GlobalAveragePool", ["d"], ["p"]), node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w", "b"], ["y"], transB=1),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "convolutions", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 11, 11])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_in_fixed_order_no_run_and_no_number_of_instances_changes_a_bit() -> None:
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((8, 3, 11, 11)).astype(np.float32), "labels": rng.integers(0, 5, 8)}
               for _ in range(3)]  # fmt: skip
    first: dict[str, np.ndarray] = {}
    for instances in (1, 2, 4):
        with trainer("fixed", instances, convolutions(), batch=8) as own:
            start = start_of(own)
            for _ in range(20):
                restarted(own, start)
                for given in batches:
                    own.step(given)
                first = first or start_of(own)
                assert_same_bits(own.state.tensors(), first)
    assert not np.array_equal(first["weights/k1"], start["weights/k1"])


def test_every_instance_of_a_ring_has_the_same_weights() -> None:
    with trainer("ring", 3) as own:
        first = trained(own)
        scheme: Any = own._stepper.scheme
        for state in scheme._states:
            assert_same_bits(state.parameters, first)
        restarted(own, start := start_of(own))
        again = trained(own)
        restarted(own, start)  # as from a checkpoint: the others follow
        assert_same_bits(trained(own), again)


@pytest.mark.parametrize("name", SCHEMES)
def test_weights_of_a_file_are_every_instances(name: str, tmp_path: Path) -> None:
    with trainer() as one, trainer(name, 2) as own:
        one.save(tmp_path / "start.safetensors")
        trained(one)
        trained(own)
        for each in (one, own):
            each.load(tmp_path / "start.safetensors")
        start = one.parameters
        assert_same_bits(own.parameters, start)
        scheme: Any = own._stepper.scheme
        scheme.begin(0.1)
        for instance in range(2):
            assert_same_bits(dict(scheme.parameters(instance)), start)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_bytes_are_those_of_the_formulas(n: int) -> None:
    """One shard an instance. The update reads and writes momentum, too, and writes the sum of several gradients."""
    exchanged = {"fixed": 0, "gradient-server": 3 * n - 1, "parameter-server": 5 * n - 1, "ring": 5 * (n - 1)}
    updated = {"fixed": n + 2 + 2 + (n > 1), "gradient-server": 5, "parameter-server": 5, "ring": 5 * n}
    total = {}
    for name in SYNCHRONOUS:
        given = {"optimizer": parax.SGD(lr=0.1, momentum=0.9), "shards": n}
        with trainer(name, n, **given) as own:
            trained(own, 2)
            found = own.counters()
        size = found.weights_nbytes
        assert size >= 4 * sum(array.size for array in own.parameters.values()) and found.steps == 2
        assert found.read + found.written == 2 * size * exchanged[name], name
        assert found.update_read + found.update_written == 2 * size * updated[name], name
        assert 0 < found.update_seconds < found.seconds and found.idle_seconds >= 0
        total[name] = found.read + found.written + found.update_read + found.update_written
    if n > 1:  # of the ways of the source
        assert total["gradient-server"] < min(total["parameter-server"], total["ring"])


def test_the_cores_of_servers_are_lost() -> None:
    with Trainer(classifier(), batch=ROWS, cores=usable()[:1]) as alone:
        assert alone.counters().cores_lost == 0
    cores = usable()[:2]
    if len(cores) == 2:
        with Trainer(classifier(), batch=ROWS, cores=cores, exchange="parameter-server") as own:
            assert own.instances == 1 and own.counters().cores_lost == 1
        with pytest.raises(parax.UsageError, match="more instances than cores"):
            Trainer(classifier(), batch=ROWS, cores=cores, exchange="parameter-server", instances=2)
    with pytest.raises(parax.UsageError, match="more instances than cores"):
        Trainer(classifier(), batch=ROWS, cores=cores[:1], exchange="parameter-server")


@pytest.mark.parametrize("accumulate", [2, 3])
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_micro_batches_are_the_batch(name: str, accumulate: int, expected: dict[str, np.ndarray]) -> None:
    with trainer(name, 2, shards=2, accumulate=accumulate) as own:
        assert own.batch == ROWS and own.program.rows == ROWS // 2 // accumulate
        assert_close(trained(own), expected)


def test_micro_batches_in_fixed_order_give_the_same_bits() -> None:
    found = []
    for instances in (1, 2, 4):
        with trainer("fixed", instances, accumulate=3, shards=4) as own:
            found.append(trained(own))
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


def test_each_numa_node_has_a_copy_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = usable()[:2]
    if len(cores) < 2:
        pytest.skip("one core is on one node")
    expected = {}
    with trainer("fixed", 2, cores=cores) as own:
        expected = trained(own)
        assert own.counters().read == 0
    monkeypatch.setenv("PARAX_NUMA", ",".join("1" if core == cores[1] else "0" for core in range(cores[1] + 1)))
    with trainer("fixed", 2, cores=cores) as own:
        assert_same_bits(trained(own), expected)
        found = own.counters()
        assert found.read == found.written == STEPS * found.weights_nbytes  # one copy of two
    with trainer("parameter-server", 2, cores=cores) as own:
        scheme: Any = own._stepper.scheme
        assert len(scheme._servers) == 2
        assert_close(trained(own), expected)


def test_groups_of_instances_begin_later() -> None:
    with trainer("fixed", 2, settings={"groups": 2, "delay": 0.05}) as own, trainer("fixed", 2) as other:
        assert_same_bits(trained(own, 4), trained(other, 4))
        assert own.counters().seconds >= 4 * 0.05
        assert own.counters().seconds > other.counters().seconds


def test_blocks_are_all_of_the_vectors() -> None:
    layouts = {"a": Layout.of({"x": (3 * BLOCK + 5,), "y": (7,)}), "b": Layout.of({"z": (1,)})}
    for n in (1, 2, 8):
        blocks = list(cut(layouts, n))
        assert len(blocks) >= 2 * n or n == 1
        for group, layout in layouts.items():
            parts = [part for name, part in blocks if name == group]
            assert parts[0].start == 0 and parts[-1].stop == layout.length
            assert all(a.stop == b.start and a.stop % 16 == 0 for a, b in zip(parts, parts[1:]))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"exchange": "rings"}, "no such exchange"),
        ({"batch": 24, "accumulate": 5}, "micro-batches must be equal parts"),
        ({"batch": 24, "accumulate": 8, "shards": 2}, "multiple of 16"),
        ({"accumulate": 0}, "whole number"),
    ],
)
def test_what_cannot_be_is_said(given: dict, message: str) -> None:
    with pytest.raises(parax.UsageError, match=message):
        Trainer(classifier(), **given)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"name": "ring", "staleness": 1}, "no gradient is stale"),
        ({"name": "asynchronous", "staleness": -1}, "whole number"),
        ({"groups": 0, "delay": 0.1}, "groups"),
        ({"groups": 2, "delay": -1.0}, "duration"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict, message: str) -> None:
    with pytest.raises(parax.UsageError, match=message):
        parax.Exchange(**given)


@pytest.mark.slow
def test_strictly_cores_of_an_instance_change_no_bit() -> None:
    """Otherwise those of several cores may have other blocks of Winograd's algorithm for the weights' gradient."""
    cores = usable()[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[N,64,28,28] x) => (float[N,10] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w1) b = Relu(a) c = Conv<pads = [1, 1, 1, 1]>(b, w2) d = Relu(c)
            e = GlobalAveragePool(d) f = Flatten(e) y = MatMul(f, w3)
        }""")
    random = np.random.default_rng(0)
    for name, shape in (("w1", (64, 64, 3, 3)), ("w2", (96, 64, 3, 3)), ("w3", (96, 10))):
        weights = (0.05 * random.normal(size=shape)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    batch = {"x": random.normal(size=(16, 64, 28, 28)).astype(np.float32), "labels": random.integers(0, 10, 16)}
    found = []
    for instances in (1, 2):
        with Trainer(model, batch=16, shards=2, instances=instances, cores=cores,
                     options=parax.CompileOptions(strict_fp=True)) as own:  # fmt: skip
            own.step(batch)
            own.step(batch)
            found.append(own.parameters)
    assert_same_bits(*found)
