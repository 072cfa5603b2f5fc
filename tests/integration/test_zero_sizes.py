"""Tensors without elements, static and at run time, through the whole compiler, every mode and way to share a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import parax
from parax import CompileOptions
from parax.compiler.frontend.oracle import oracle

Feeds = Mapping[str, np.ndarray]
_SESSIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"opt_level": 0}, {"instances": 1}),
    ({"opt_level": 2}, {"instances": 2, "micro_batch": 1}),
    ({"hint": "latency"}, {"cores_per_instance": 2, "instances": 1}),
    ({"mode": "layered"}, {}),
    ({"mode": "pipelined"}, {}),
]


def model(nodes: Sequence[NodeProto], inputs: Mapping[str, Sequence[int | str]], outputs: Sequence[str],
          constants: Mapping[str, np.ndarray] | None = None, opset: int = 20) -> ModelProto:  # fmt: skip
    """A model of f32 inputs."""
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def perceptron() -> ModelProto:
    make = helper.make_node
    nodes = [make("Gemm", ["x", "w", "b"], ["h"]), make("Relu", ["h"], ["r"]), make("MatMul", ["r", "v"], ["y"]),
             make("Sigmoid", ["h"], ["s"]), make("MatMul", ["s", "v"], ["z"])]  # fmt: skip
    return model(nodes, {"x": ["N", 20]}, ["y", "z"], {"w": normal(20, 33), "b": normal(33), "v": normal(33, 7)})


def network() -> ModelProto:
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), make("Relu", ["c"], ["r"]),
        make("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), make("Conv", ["p", "v"], ["d"]),
        make("Add", ["d", "p"], ["a"]), make("GlobalAveragePool", ["a"], ["g"]), make("Flatten", ["g"], ["f"]),
        make("MatMul", ["f", "u"], ["l"]), make("Softmax", ["l"], ["y"]),
    ]  # fmt: skip
    constants = {"w": normal(16, 3, 3, 3), "v": normal(16, 16, 1, 1), "u": normal(16, 5)}
    return model(nodes, {"x": ["N", 3, 8, 8]}, ["y"], constants)


def attention() -> ModelProto:
    """One step of a decoder: the cache is empty at first."""
    make = helper.make_node
    nodes = [
        make("Concat", ["past", "k"], ["keys"], axis=1), make("Transpose", ["keys"], ["kt"], perm=[0, 2, 1]),
        make("MatMul", ["q", "kt"], ["s"]), make("Softmax", ["s"], ["p"]), make("MatMul", ["p", "keys"], ["y"]),
    ]  # fmt: skip
    inputs: dict[str, Sequence[int | str]] = {"past": ["N", "P", 16], "k": ["N", "S", 16], "q": ["N", "S", 16]}
    return model(nodes, inputs, ["y", "keys"])


def reductions() -> ModelProto:
    """Sums over nothing are 0, the greatest of nothing is -inf, its mean is NaN."""
    make = helper.make_node
    kinds = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceL2", "ReduceLogSumExp")
    nodes = [make(kind, ["x", "axes"], [kind], keepdims=0) for kind in kinds]
    nodes += [make("MatMul", ["x", "w"], ["product"]), make("Relu", ["product"], ["rest"])]
    return model(nodes, {"x": ["N", "S"], "w": ["S", 5]}, [*kinds, "rest"], {"axes": np.array([1])})


CASES = [
    (perceptron, {"x": (0, 20)}),
    (network, {"x": (0, 3, 8, 8)}),
    (attention, {"past": (2, 0, 16), "k": (2, 3, 16), "q": (2, 3, 16)}),
    (attention, {"past": (0, 4, 16), "k": (0, 3, 16), "q": (0, 3, 16)}),
    (attention, {"past": (2, 0, 16), "k": (2, 0, 16), "q": (2, 0, 16)}),
    (reductions, {"x": (3, 0), "w": (0, 5)}),
    (reductions, {"x": (0, 4), "w": (4, 5)}),
    (reductions, {"x": (0, 0), "w": (0, 5)}),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("make", "shapes"), CASES, ids=lambda p: getattr(p, "__name__", str(p)).replace(" ", ""))
def test_a_dimension_of_0_at_run_time(make: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    proto = make()
    feeds = {name: normal(*shape) for name, shape in shapes.items()}
    with np.errstate(all="ignore"):  # ONNX Runtime's mean of nothing is 0, onnx.reference cannot pool nothing
        wanted = oracle(proto, "reference" if make is reductions else "onnxruntime")(feeds)
    ones = {name: normal(*(size or 3 for size in shape)) for name, shape in shapes.items()}
    for options, session in _SESSIONS:
        if options.get("mode") == "layered" and make is not perceptron:
            continue  # it has no branches
        plan = parax.compile(proto, options=CompileOptions(**options, cores=(0, 1), cache=False))
        with plan.session(**session) as s:
            if make is not reductions:
                s.run(ones)
            found = s.run(feeds)
            again = s.run(feeds)
        for name, array in wanted.items():
            assert found[name].shape == again[name].shape == array.shape, (options, session, name)
            np.testing.assert_allclose(found[name], array, 1e-5, 1e-5, err_msg=f"{options} {name}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("opt_level", [0, 2])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (2, 0, 3)])
def test_constants_without_elements(opt_level: int, shape: tuple[int, ...]) -> None:
    axis = shape.index(0)
    given: list[int | str] = [d or f"N{i}" for i, d in enumerate(shape)]
    proto = model([helper.make_node("Concat", ["x", "e"], ["y"], axis=axis)], {"x": given}, ["y"],
                  {"e": np.zeros(shape, np.float32)})  # fmt: skip
    x = normal(*(d or 5 for d in shape))
    if shape.count(0) > 1:
        x = x[:, :0]
    with parax.compile(proto, options=CompileOptions(opt_level=opt_level)).session(instances=1) as s:
        np.testing.assert_array_equal(s.run({"x": x})["y"], x)


@pytest.mark.parametrize("opt_level", [0, 2])
def test_a_slice_of_nothing_is_computed_with(opt_level: int) -> None:
    nodes = [helper.make_node("Slice", ["x", "two", "two"], ["e"]), helper.make_node("Relu", ["e"], ["y"])]
    proto = model(nodes, {"x": ["N", 4]}, ["y"], {"two": np.array([2])})
    with parax.compile(proto, options=CompileOptions(opt_level=opt_level)).session(instances=1) as s:
        assert s.run({"x": normal(3, 4)})["y"].shape == (0, 4)


def test_what_does_not_hold_at_0_is_refused_by_name() -> None:
    """x[-1:] has one row for every size but 0: a plan that relies on that says so, and one for size 0 can be made."""
    constants = {"start": np.array([-1]), "end": np.array([2**62])}
    proto = model([helper.make_node("Slice", ["x", "start", "end"], ["y"])], {"x": ["N", 4]}, ["y"], constants)
    plan = parax.compile(proto)
    assert [symbol.min for symbol in plan.manifest.symbols] == [1]
    with plan.session(instances=1) as s, pytest.raises(parax.InvalidInput, match="dimension N"):
        s.run({"x": normal(0, 4)})
    with parax.compile(proto, dims={"N": 0}).session(instances=1) as s:
        assert s.run({"x": normal(0, 4)})["y"].shape == (0, 4)


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_no_steps_leave_the_states(name: str, gates: int) -> None:
    """ONNX Runtime leaves them unwritten."""
    names = ["y", "h", "c"][: 3 if name == "LSTM" else 2]
    proto = model(
        [helper.make_node(name, ["x", "w", "r", "", "", "h0"], names, hidden_size=5)], {"x": ["S", 2, 3]}, names,
        {"w": normal(1, gates * 5, 3), "r": normal(1, gates * 5, 5), "h0": normal(1, 2, 5)},
    )  # fmt: skip
    with parax.compile(proto).session() as session:
        for steps in (0, 3, 0):
            found = session.run({"x": normal(steps, 2, 3)})
            assert found["y"].shape == (steps, 1, 2, 5)
            if steps == 0:
                np.testing.assert_array_equal(found["h"], normal(1, 2, 5))
                np.testing.assert_array_equal(found.get("c", np.zeros(1)), 0)


@pytest.mark.parametrize("shape", [(1, 1, "N", 1, 2), ("N", 3, 4), (3, "N")])
def test_flatten_of_no_elements(shape: tuple[int | str, ...]) -> None:
    proto = model([helper.make_node("Flatten", ["x"], ["y"])], {"x": shape}, ["y"])
    for options, arrangement in _SESSIONS[:3]:
        with parax.compile(proto, options=CompileOptions(**options)).session(**arrangement) as session:
            for n in (0, 3):
                x = normal(*(n if isinstance(d, str) else d for d in shape))
                wanted = x.reshape(x.shape[0], math.prod(x.shape[1:]))
                np.testing.assert_array_equal(session.run({"x": x})["y"], wanted)


@pytest.mark.parametrize("shape", [(0, 6, 5), (2, 6, 0), (2, 6, 0, 3), ("N", 6, 5)])
def test_group_normalization_of_no_elements(shape: tuple[int | str, ...]) -> None:
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    proto = model([node], {"x": shape}, ["y"], {"s": normal(6), "b": normal(6)}, opset=21)
    x = normal(*(0 if isinstance(d, str) else d for d in shape))
    with parax.compile(proto).session() as session:
        assert session.run({"x": x})["y"].shape == x.shape
