"""Recurrent kernels: as ONNX Runtime for any sizes and operands, alike on any number of cores, errors reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, op, run_node
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.types import DType, TensorType, symbol
from parax.compiler.targets.target import Target
from sampling import sampled, thorough

RNG = np.random.default_rng(5)
HIDDEN = 21


def weights(gates: int, inputs: int, hidden: int = HIDDEN) -> list[np.ndarray]:
    shapes = ((1, gates * hidden, inputs), (1, gates * hidden, hidden), (1, 2 * gates * hidden))
    return [RNG.uniform(-0.3, 0.3, s).astype(np.float32) for s in shapes]


def lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The equations of the operator, one step after the other."""
    h, c, out = np.zeros((x.shape[1], HIDDEN)), np.zeros((x.shape[1], HIDDEN)), []
    bias = b[0].reshape(2, -1).sum(0)
    for step in x.astype(np.float64):
        i, o, f, g = np.split(step @ w[0].T + h @ r[0].T + bias, 4, axis=1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        out.append(h)
    return np.stack(out)[:, None], h[None], c[None]


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", sampled(host_targets(), 3), ids=lambda t: t.name)
@pytest.mark.parametrize("batch", [1, 2, 5, 6, 7, 13, 29])
def test_any_batch(batch: int, target: Target) -> None:
    x = RNG.uniform(-1, 1, (3, batch, 5)).astype(np.float32)
    operands = weights(4, 5)
    for symbols in ({}, {"N": 1}):
        found = run_node(op("LSTM"), [x, *operands], outputs=3, constants=(1, 2, 3), symbols=symbols, target=target)
        for a, b in zip(found, lstm(x, *operands)):
            np.testing.assert_allclose(a, b, 1e-5, 1e-5)


def test_inputs_in_another_layout() -> None:
    x, operands = RNG.uniform(-1, 1, (3, 4, 5)).astype(np.float32), weights(4, 5)
    layouts = [(2, 0, 1), (0, 2, 1), (2, 1, 0), None]
    found = run_node(op("LSTM"), [x, *operands], outputs=3, layouts=layouts)
    for a, b in zip(found, lstm(x, *operands)):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)


def test_bias_and_peephole_weights_in_another_layout() -> None:
    arrays = [RNG.uniform(-1, 1, shape).astype(np.float32) for shape in
              ((3, 4, 5), (2, 28, 5), (2, 28, 7), (2, 56), (2, 21))]
    x, w, r, b, p = arrays
    found, wanted = (run_node(op("LSTM", direction="bidirectional", hidden_size=7), [x, w, r, b, None, None, None, p],
                              outputs=3, layouts=[None] * 3 + [order, None, None, None, order])
                     for order in ((1, 0), None))
    for a, c in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, c)


def test_more_steps_than_one_input_product() -> None:
    x, operands = RNG.uniform(-1, 1, (200, 3, 5)).astype(np.float32), weights(4, 5)
    found = run_node(op("LSTM"), [x, *operands], outputs=3, constants=(1, 2, 3), symbols={"T": 0})
    for a, b in zip(found, lstm(x, *operands)):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


@pytest.mark.parametrize("lengths", [[1, 5], [-1, 2]])
def test_lengths_out_of_range_are_reported(lengths: list[int]) -> None:
    x = np.zeros((4, 2, 5), np.float32)
    with pytest.raises(AssertionError, match="sequence_lens out of range"):
        run_node(op("GRU"), [x, *weights(3, 5), np.array(lengths, np.int32)], outputs=2)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """One operator: attributes, operands by ONNX's places (None: omitted), whether weights are constants."""
    name = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    steps, batch, inputs = draw(st.integers(1, 7)), draw(st.integers(1, 30)), draw(st.integers(1, 19))
    hidden = draw(st.sampled_from([1, 7, 16, 17, 33, 50, 64, 70, 512]))
    d, g, rng = 2 if direction == "bidirectional" else 1, GATES[name], np.random.default_rng(draw(st.integers(0, 99)))

    def array(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32) * min(0.7, 1.5 / hidden**0.5)

    x = rng.uniform(-1, 1, (steps, batch, inputs)).astype(np.float32)
    optional = [array(d, 2 * g * hidden), rng.integers(1, steps + 1, batch).astype(np.int32), array(d, batch, hidden)]
    if name == "LSTM":
        optional += [array(d, batch, hidden), array(d, 3 * hidden)]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if draw(st.booleans()):
        attributes["clip"] = 0.4
    if name == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        functions = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Softsign", "Relu"]}
        attributes["activations"] = functions[name] * d
    return {
        "name": name, "attributes": attributes, "fixed": draw(st.booleans()), "symbolic": draw(st.booleans()),
        "operands": [x, array(d, g * hidden, inputs), array(d, g * hidden, hidden),
                     *(v if draw(st.booleans()) else None for v in optional)],
    }  # fmt: skip


def onnxruntime(layer: dict[str, Any], outputs: int) -> list[np.ndarray]:
    """What ONNX Runtime gives."""
    given = {f"x{i}": v for i, v in enumerate(layer["operands"]) if v is not None}
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(layer["operands"])]
    results = [f"y{i}" for i in range(outputs)]
    node = onnx.helper.make_node(layer["name"], names, results, **layer["attributes"])
    types = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.int32): onnx.TensorProto.INT32}
    inputs = [onnx.helper.make_tensor_value_info(n, types[v.dtype], v.shape) for n, v in given.items()]
    found = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in results]
    graph = onnx.helper.make_graph([node], "layer", inputs, found)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


def program(layer: dict[str, Any], outputs: int, target: Target | None = None) -> tuple[Program, dict, dict]:
    """The compiled layer, its inputs and the values of its symbols."""
    graph = Graph("layer")
    values: list[Value | None] = []
    feeds = {}
    for i, v in enumerate(layer["operands"]):
        if v is None:
            values.append(None)
        elif i in (1, 2) and layer["fixed"]:
            values.append(graph.add_constant(v))
        else:
            axis = {0: 1, 4: 0, 5: 1, 6: 1}.get(i, -1) if layer["symbolic"] else -1
            dims = tuple(symbol("N") if a == axis else d for a, d in enumerate(v.shape))
            values.append(graph.add_input(f"x{i}", TensorType(DType.from_numpy(v.dtype), dims)))
            feeds[f"x{i}"] = v
    node = graph.add_node(op(layer["name"], **layer["attributes"]), values, n_outputs=outputs)
    graph.set_outputs(node.outputs)
    symbols = {"N": layer["operands"][0].shape[1]} if layer["symbolic"] else {}
    return Program(graph, target, tuple(symbols)), feeds, symbols


@pytest.mark.slow
@thorough(40, deadline=None)
@given(layers(), st.sampled_from(host_targets()))
def test_as_onnxruntime_with_any_number_of_cores(layer: dict[str, Any], target: Target) -> None:
    outputs = 3 if layer["name"] == "LSTM" else 2
    compiled, feeds, symbols = program(layer, outputs, target)
    expected = onnxruntime(layer, outputs)
    alone = compiled.run(feeds, symbols, pieces=1)
    for a, b in zip(alone, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-3, 2e-5)
    for cores in (2, 3, 7):
        for a, b in zip(alone, compiled.run(feeds, symbols, pieces=cores), strict=True):
            np.testing.assert_array_equal(a, b)


def test_more_threads_than_cores_meet_again_and_again() -> None:
    layer = {
        "name": "GRU", "attributes": {"hidden_size": 100}, "fixed": True, "symbolic": False,
        "operands": [RNG.uniform(-1, 1, (60, 2, 3)).astype(np.float32), *weights(3, 3, 100)],
    }  # fmt: skip
    compiled, feeds, symbols = program(layer, 2)
    alone = compiled.run(feeds, symbols, pieces=1)
    for cores in (2, 3, 5, 7) * 4:
        for a, b in zip(alone, compiled.run(feeds, symbols, pieces=cores), strict=True):
            np.testing.assert_array_equal(a, b)
