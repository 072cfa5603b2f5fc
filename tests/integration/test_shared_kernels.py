"""Cores that share an instance compute what one core does, in networks whose kernels have fewer elements than cores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.helper import make_node

import parax
from parax import CompileOptions
from parax.compiler.frontend.oracle import oracle
from parax.runtime.topology import machine

CORES = machine().default_cores()
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions may have two threads, however few cores there are."""
    chosen = tuple(CORES[i % len(CORES)] for i in (0, 1))
    monkeypatch.setattr("parax.runtime.session.choose_cores", lambda cores: chosen)
    yield


def model(nodes: list, width: int, initializers: dict[str, np.ndarray]) -> ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, ["N", width])], [value("y", 1, ["N", width])],
                              [numpy_helper.from_array(a, n) for n, a in initializers.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def scalars(keepdims: int) -> ModelProto:
    nodes = [make_node("ReduceMax", ["x"], ["m"], keepdims=keepdims), make_node("Neg", ["m"], ["d"]),
             make_node("Div", ["x", "d"], ["y"])]  # fmt: skip
    return model(nodes, 8, {})


def quantized(layers: int, width: int) -> ModelProto:
    """Linear layers as onnxruntime.quantization.quantize_dynamic writes them: scales and zero points are scalars.

    Weights are of seven bits: pairs of products of eight saturate in ONNX Runtime on CPUs that have AVX2 and no VNNI.
    """
    nodes, data, last = [], {}, "x"
    for i in range(layers):
        data |= {f"w{i}": RNG.integers(-63, 64, (width, width)).astype(np.int8), f"z{i}": np.array(0, np.int8),
                 f"s{i}": np.array(1 / width, np.float32)}  # fmt: skip
        nodes += [
            make_node("DynamicQuantizeLinear", [last], [f"q{i}", f"qs{i}", f"qz{i}"]),
            make_node("MatMulInteger", [f"q{i}", f"w{i}", f"qz{i}", f"z{i}"], [f"a{i}"]),
            make_node("Cast", [f"a{i}"], [f"f{i}"], to=1),
            make_node("Mul", [f"qs{i}", f"s{i}"], [f"m{i}"]),
            make_node("Mul", [f"f{i}", f"m{i}"], [f"p{i}"]),
            make_node("Tanh", [f"p{i}"], [f"t{i}" if i + 1 < layers else "y"]),
        ]
        last = f"t{i}"
    return model(nodes, width, data)


MODELS = {"scalars": scalars(0), "scalars of rank 2": scalars(1), "quantized": quantized(3, 64)}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", MODELS)
def test_two_cores_compute_what_one_does(name: str, level: int) -> None:
    m = MODELS[name]
    x = RNG.standard_normal((9, m.graph.input[0].type.tensor_type.shape.dim[1].dim_value)).astype(np.float32)
    (wanted,) = oracle(m, "onnxruntime")({"x": x}).values()
    plan = parax.compile(m, options=CompileOptions(opt_level=level, cache=False))
    for cores in (1, 2):
        with plan.session(instances=1, cores_per_instance=cores, mode="sequential") as session:
            results = [session.run({"x": x})["y"] for _ in range(20)]
        assert len({r.tobytes() for r in results}) == 1
        steps = 6e-2 if name == "quantized" else 1e-5  # of a few quantised numbers, where roundings differ
        np.testing.assert_allclose(results[0], wanted, rtol=1e-2, atol=steps)
