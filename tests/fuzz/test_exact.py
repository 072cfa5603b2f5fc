"""The judge's own operators against ONNX Runtime's, on ordinary inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from fuzz import exact
from fuzz.compare import Expected
from fuzz.widening import types_of
from parax.compiler.frontend.oracle import oracle
from parax.runtime.host_ops.reduce import KINDS as REDUCTIONS

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 2


def _model(op: str, feeds: dict[str, np.ndarray], names: list[str], outputs: list[str], given: dict[str, Any]
           ) -> onnx.ModelProto:  # fmt: skip
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **given)], "g", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _compare(op: str, feeds: dict[str, np.ndarray], names: list[str], outputs: list[str], **given: Any) -> None:
    model = _model(op, feeds, names, outputs, given)
    wanted, found = oracle(model, "onnxruntime")(feeds), exact.run(model, feeds)
    for name in filter(None, outputs):
        assert found[name].dtype == wanted[name].dtype
        np.testing.assert_allclose(found[name], wanted[name], 1e-5, 1e-5)


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _recurrent(op: str, extra: list[str], **given: Any) -> tuple[dict[str, np.ndarray], list[str], dict[str, Any]]:
    """Feeds, operand names and attributes; `extra`: operands beside X, W and R."""
    n, gates = 2 if given.get("direction") == "bidirectional" else 1, GATES[op] * HIDDEN
    every = {
        "x": _normal(STEPS, BATCH, WIDTH), "w": _normal(n, gates, WIDTH), "r": _normal(n, gates, HIDDEN),
        "b": _normal(n, 2 * gates), "lengths": np.array([4, 1, 2], np.int32), "h": _normal(n, BATCH, HIDDEN),
        "c": _normal(n, BATCH, HIDDEN) + 1, "p": _normal(n, 3 * HIDDEN),
    }  # fmt: skip
    feeds = {k: v for k, v in every.items() if k in ("x", "w", "r", *extra)}
    names = [k if k in feeds else "" for k in every]
    while not names[-1]:
        names.pop()
    return feeds, names, {"hidden_size": HIDDEN, **given}


BOTH = {"direction": "bidirectional"}
LSTM_BOTH = {**BOTH, "activations": ["HardSigmoid", "Softsign", "Tanh", "Sigmoid", "Elu", "LeakyRelu"],
             "activation_alpha": [0.3, 0.7, 0.05], "activation_beta": [0.4]}  # fmt: skip


@pytest.mark.parametrize("op, extra, given", [
    ("RNN", ["b", "lengths", "h"], {**BOTH, "activations": ["Relu", "ScaledTanh"], "activation_alpha": [0.5],
                                    "activation_beta": [0.8]}),
    ("RNN", ["lengths"], {"direction": "reverse", "clip": 0.5}),
    ("GRU", ["b", "h"], {**BOTH, "linear_before_reset": 1}),
    ("GRU", ["b", "lengths"], {"direction": "reverse", "activations": ["HardSigmoid", "Softplus"]}),
    ("LSTM", ["b", "lengths", "h", "c", "p"], BOTH),
    ("LSTM", ["b", "p"], {"input_forget": 1, "clip": 0.7}),
    ("LSTM", ["b", "lengths", "c"], LSTM_BOTH),
])  # fmt: skip
def test_recurrent_operators(op: str, extra: list[str], given: dict[str, Any]) -> None:
    if len(given.get("activations", ())) == 2 and op == "RNN":
        # older ones read what they may not, and die, where two directions have functions of their own
        pytest.importorskip("onnxruntime", "1.30")
    feeds, names, attributes = _recurrent(op, extra, **given)
    _compare(op, feeds, names, ["y", "", "y_c"] if op == "LSTM" else ["", "y_h"], **attributes)


def test_an_infinite_cell_meets_no_peepholes_where_there_are_none() -> None:
    feeds, names, attributes = _recurrent("LSTM", ["b", "c"], direction="forward")
    feeds["c"][0, 0, :2] = np.inf, -np.inf
    _compare("LSTM", feeds, names, ["y", "y_h", "y_c"], **attributes)


def test_batches_may_come_first_and_there_may_be_no_step() -> None:
    feeds, names, attributes = _recurrent("LSTM", ["b", "lengths", "h", "c"], direction="bidirectional")
    outputs = ["y", "y_h", "y_c"]
    plain = exact.run(_model("LSTM", feeds, names, outputs, attributes), feeds)
    turned = {k: v.swapaxes(0, 1).copy() if k in "xhc" else v for k, v in feeds.items()}
    found = exact.run(_model("LSTM", turned, names, outputs, {**attributes, "layout": 1}), turned)
    np.testing.assert_allclose(found["y"], plain["y"].transpose(2, 0, 1, 3), 1e-6)
    np.testing.assert_allclose(found["y_c"], plain["y_c"].swapaxes(0, 1), 1e-6)
    none = {**feeds, "x": feeds["x"][:0], "lengths": np.zeros(BATCH, np.int32)}
    empty = exact.run(_model("LSTM", none, names, outputs, attributes), none)
    assert empty["y"].shape == (0, 2, BATCH, HIDDEN)
    np.testing.assert_array_equal(empty["y_h"], feeds["h"])


@pytest.mark.parametrize("given", [
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 1, 1, 2], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "dilations": [2, 3]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_LOWER"},
])  # fmt: skip
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pools(op: str, given: dict[str, Any]) -> None:
    if op == "AveragePool" and given.get("pads") == [1, 0, 2, 1]:
        pytest.importorskip("onnxruntime", "1.26")  # older ones count padding beyond the last window
    own = {"AveragePool": {"count_include_pad": 1}, "LpPool": {"p": 3}, "MaxPool": {"storage_order": 1}}[op]
    x = np.round(_normal(2, 3, 7, 8) * 2) if op == "MaxPool" else _normal(2, 3, 7, 8)
    _compare(op, {"x": x}, ["x"], ["y", "i"] if op == "MaxPool" else ["y"], **given, **own)


def test_a_pool_gives_nan_where_it_sees_nan() -> None:
    x = _normal(1, 1, 6)
    x[0, 0, 2] = np.nan
    for op in ("MaxPool", "AveragePool", "LpPool"):
        found = exact.run(_model(op, {"x": x}, ["x"], ["y"], {"kernel_shape": [2]}), {"x": x})["y"]
        assert np.isnan(found).tolist() == [[[False, True, True, False, False]]]


def test_a_convolution() -> None:
    feeds = {"x": _normal(2, 4, 7, 9), "w": _normal(6, 2, 3, 2), "b": _normal(6)}
    _compare("Conv", feeds, list(feeds), ["y"], group=2, dilations=[2, 3], pads=[1, 0, 2, 1], strides=[1, 2])


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode, space", [("linear", 2), ("nearest", 2), ("cubic", 2), ("linear", 3), ("nearest", 3)])
def test_grid_sample(mode: str, space: int, padding: str, corners: int) -> None:
    grid = np.random.default_rng(1).uniform(-2, 2, (2, *(3, 4, 5)[:space], space)).astype(np.float32)
    feeds = {"x": _normal(2, 3, *(4, 5, 6)[:space]), "grid": grid}
    _compare("GridSample", feeds, ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=corners)


@pytest.mark.parametrize("op, given", [("GRU", {}), ("LSTM", BOTH)])
def test_the_judge_finds_an_error_in_a_recurrent_operator(op: str, given: dict[str, Any]) -> None:
    feeds, names, attributes = _recurrent(op, ["b", "lengths", "h"], **given)
    model = _model(op, feeds, names, ["y"], attributes)
    expected = Expected(model, feeds)
    right = dict(expected.others["onnxruntime"])
    assert expected.problem(right) == ""
    wrong = right["y"].copy()
    wrong[np.unravel_index(np.abs(wrong).argmax(), wrong.shape)] *= np.float32(1 + 1e-3)
    assert "output y" in expected.problem({"y": wrong})


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode: str, coordinates: str) -> None:
    feeds = {"x": _normal(2, 3, 5, 8), "scales": np.array([1, 1, 2, 0.5], np.float32)}
    _compare("Resize", feeds, ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_resize_that_turns_an_image(mode: str) -> None:
    feeds = {"x": _normal(2, 1, 1, 900), "sizes": np.array([2, 1, 900, 1])}
    _compare("Resize", feeds, ["x", "", "", "sizes"], ["y"], mode=mode)


@pytest.mark.parametrize("given", [{}, {"strides": [2, 3], "output_padding": [1, 2], "pads": [0, 1, 1, 0]},
                                   {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"dilations": [2, 1]}])  # fmt: skip
def test_a_transposed_convolution(given: dict[str, Any]) -> None:
    feeds = {"x": _normal(2, 4, 5, 3), "w": _normal(4, 3, 3, 2), "b": _normal(6)}
    _compare("ConvTranspose", feeds, list(feeds), ["y"], group=2, **given)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantisation(axis: int) -> None:
    x = _normal(3, 4, 5) * 3
    n = x.shape[axis]
    feeds = {"x": x, "s": np.linspace(0.01, 0.1, n).astype(np.float32), "z": np.arange(n, dtype=np.int8)}
    _compare("QuantizeLinear", feeds, list(feeds), ["y"], axis=axis)
    _compare("DequantizeLinear", {**feeds, "x": (x * 9).astype(np.int8)}, list(feeds), ["y"], axis=axis)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64])
def test_means_of_integers_are_cut_towards_0(dtype: type) -> None:
    large = np.iinfo(dtype).max
    x = np.array([[large, 0], [1, 2], [7, 4], [large - 1, 1]], dtype)
    model = _model("ReduceMean", {"x": x, "a": np.array([1])}, ["x", "a"], ["y"], {"keepdims": 0})
    assert exact.run(model, {"x": x, "a": np.array([1])})["y"].tolist() == [large // 2, 1, 5, large // 2]
    itself = _model("ReduceMean", {"x": x}, ["x"], ["y"], {"noop_with_empty_axes": 1})
    assert (exact.run(itself, {"x": x})["y"] == x).all()
    if dtype != np.uint64:
        below = exact.run(model, {"x": np.array([[-3, 0], [-1, 0], [-4, 0]], dtype), "a": np.array([1])})
        assert below["y"].tolist() == [-1, 0, -2]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_scalars_of_nothing_and_of_infinities(op: str, keepdims: int) -> None:
    scalar = {"x": np.array(0.5, np.float32)}
    _compare(op, scalar, ["x"], ["y"], keepdims=keepdims)
    assert exact.run(_model(op, scalar, ["x"], ["y"], {"noop_with_empty_axes": 1}), scalar)["y"].shape == ()
    infinite = {"x": np.array([[-np.inf, -np.inf], [1, -np.inf], [2, 3]], np.float32), "a": np.array([1])}
    if op != "ReduceLogSum":
        _compare(op, infinite, ["x", "a"], ["y"], keepdims=keepdims)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_logarithm_of_softmax_of_far_numbers(axis: int) -> None:
    x = _normal(3, 4, 5) * np.float32(1e3)
    _compare("LogSoftmax", {"x": x}, ["x"], ["y"], axis=axis)
    assert np.isfinite(exact.run(_model("LogSoftmax", {"x": x}, ["x"], ["y"], {"axis": axis}), {"x": x})["y"]).all()


@pytest.mark.parametrize("steps", [0, 3])
def test_a_loop_of_no_steps_says_what_it_carries_and_only_that(steps: int) -> None:
    text = """<ir_version: 9, opset_import: ["": 20]>
        g (float[2] x, int64 m) => (float[2] y, float[?, 2] z) {
            y, z = Loop (m, "", x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) {
                d = Identity(c)\n t = Add(s, s)\n u = Neg(s)
            }>
        }"""
    model = onnx.parser.parse_model(text)
    feeds = {"x": _normal(2), "m": np.array(steps)}
    whole = exact.run(model, feeds)
    np.testing.assert_array_equal(whole["y"], feeds["x"] * 2**steps)
    assert (Expected(model, feeds).ask("reference") is None) == (steps == 0)
    del model.graph.output[1]
    assert Expected(model, feeds).ask("reference") is not None
    assert (Expected(_with_outputs(text, "z"), feeds).noisy(2, "strict", "z") == []) == (steps == 0), "nobody crashes"


def _with_outputs(text: str, name: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for output in [o for o in model.graph.output if o.name != name]:
        model.graph.output.remove(output)
    return model


def test_a_logarithm_near_0_is_off_by_a_unit_of_1() -> None:
    x = np.array([[12.0, -0.7]])
    model = _model("LogSoftmax", {"x": x}, ["x"], ["y"], {"axis": -1})
    right = x - 12 - np.log1p(np.exp(-12.7))
    expected = Expected(model, {"x": x})
    assert not expected.problem({"y": right}) and not expected.problem({"y": right + 2.0**-52})
    assert "expected" in expected.problem({"y": right + 2.0**-40})


BRANCH = """<ir_version: 9, opset_import: ["": 20]>
    g (float[3] x, bool c) => (float[3] y) {
        y = If (c) <
            then_branch = t () => (float[3] u) { a = Tanh(x)\n u = Sub(a, x) },
            else_branch = e () => (float[3] v) { v = Identity(x) }>
    }"""
LOOP = """<ir_version: 9, opset_import: ["": 20]>
    g (float[3] x, int64 m) => (float[3] y) {
        y = Loop (m, "", x) <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] u) {
            d = Identity(c)\n a = Tanh(s)\n u = Sub(a, s)
        }>
    }"""


@pytest.mark.parametrize(("text", "given"), [(BRANCH, {"c": np.array(True)}), (LOOP, {"m": np.array(1)})])
def test_bodies_round_too(text: str, given: dict[str, np.ndarray]) -> None:
    x = np.array([7e-3, -3e-3, 2e-2], np.float32)
    expected = Expected(onnx.parser.parse_model(text), {"x": x, **given})
    right = np.tanh(x.astype(np.float64)) - x
    unit = np.spacing(np.abs(x))  # of the tangent, which the difference inherits
    assert not expected.problem({"y": (right + unit).astype(np.float32)})
    assert "expected" in expected.problem({"y": (right + 10_000 * unit).astype(np.float32)})
    runs = expected.noisy(4, "strict", "y")
    assert len(runs) > 4 and all(run.shape == x.shape for run in runs)


def test_names_that_bodies_give_to_different_types_have_none() -> None:
    text = BRANCH.replace("e () => (float[3] v) { v = Identity(x) }",
                          "e () => (float[3] v) { a = Cast<to = 11>(x)\n b = Neg(a)\n v = Cast<to = 1>(b) }")
    types = types_of(onnx.parser.parse_model(text))
    assert "a" not in types and types["b"] == np.float64 and types["u"] == types["v"] == np.float32
