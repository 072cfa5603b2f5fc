"""The way back of recurrent operators: as PyTorch's autograd in f64, alike on any number of cores, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.harness import Program, host_targets, op
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import DType, TensorType, symbol
from parax.compiler.passes.autodiff.reverse import gradients
from parax.compiler.targets.target import Target
from sampling import sampled

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}
"""Of the gates in PyTorch's weights, by their numbers in ONNX's."""
KINDS = ["RNN", "GRU", "LSTM"]
NAMES = ("x", "w", "r", "b", "h0", "c0")


def operands(kind: str, steps: int, batch: int, inputs: int, hidden: int, directions: int) -> dict[str, np.ndarray]:
    """X, W, R, B and the first states."""
    rng, n = np.random.default_rng(steps * 100 + batch), GATES[kind]
    limit = min(0.7, 1.5 / hidden**0.5)

    def array(*shape: int) -> np.ndarray:
        return rng.uniform(-limit, limit, shape).astype(np.float32)

    x = rng.uniform(-1, 1, (steps, batch, inputs)).astype(np.float32)
    found = {"x": x, "w": array(directions, n * hidden, inputs), "r": array(directions, n * hidden, hidden),
             "b": array(directions, 2 * n * hidden), "h0": array(directions, batch, hidden)}  # fmt: skip
    return {**found, "c0": array(directions, batch, hidden)} if kind == "LSTM" else found


def program(kind: str, arrays: dict[str, np.ndarray], target: Target | None = None, lengths: np.ndarray | None = None,
            open_batch: bool = False, open_steps: bool = False,
            ) -> tuple[Program, dict[str, np.ndarray], dict[str, int]]:  # fmt: skip
    """Gradients of the sum of Y · seed by all operands, its inputs, and the sizes of its symbols."""
    graph, values, lens = Graph("back"), {}, None
    rows = {"x": 1, "h0": 1, "c0": 1}
    for name, array in arrays.items():
        opened = {rows.get(name): "N"} if open_batch else {0: "T"} if open_steps and name == "x" else {}
        dims = tuple(symbol(opened[a]) if a in opened else d for a, d in enumerate(array.shape))
        values[name] = graph.add_input(name, TensorType(DType.from_numpy(array.dtype), dims))
    feeds = dict(arrays)
    if lengths is not None:
        lens = graph.add_input("lens", TensorType(DType.from_numpy(lengths.dtype), values["x"].tensor.dims[1:2]))
        feeds["lens"] = lengths
    _, hidden = arrays["r"].shape[1:]
    attributes: dict[str, Any] = {"direction": "bidirectional" if arrays["r"].shape[0] == 2 else "forward"}
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    states = [values[n] for n in ("h0", "c0") if n in values]
    node = graph.add_node(op(kind, hidden_size=hidden, **attributes),
                          [*(values[n] for n in NAMES[:4]), lens, *states], n_outputs=1)  # fmt: skip
    seed = graph.add_input("seed", node.outputs[0].type)
    steps, batch, _ = arrays["x"].shape
    shape = (steps, arrays["r"].shape[0], batch, hidden)
    feeds["seed"] = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    g = GraphBuilder(graph)
    loss = g.ReduceSum(g.Mul(node.outputs[0], seed), keepdims=0)
    graph.set_outputs(gradients(graph, loss, list(values.values())))
    symbols = {"N": batch} if open_batch else {"T": steps} if open_steps else {}
    return Program(graph, target, tuple(symbols)), feeds, symbols


def by_torch(kind: str, arrays: dict[str, np.ndarray], seed: np.ndarray, lengths: np.ndarray | None) -> dict[str, Any]:
    """The same by PyTorch's autograd, in f64."""
    torch = pytest.importorskip("torch")
    d, _, hidden = arrays["r"].shape
    module = getattr(torch.nn, kind)(arrays["x"].shape[2], hidden, bidirectional=d == 2, dtype=torch.float64)
    n, own = GATES[kind], {k: torch.tensor(v.astype(np.float64), requires_grad=True) for k, v in arrays.items()}

    def gates(v: Any) -> Any:
        return torch.cat([v[j * hidden : (j + 1) * hidden] for j in ORDER[kind]])

    given = {}
    for i in range(d):
        end = "_reverse" if i else ""
        given |= {f"weight_ih_l0{end}": gates(own["w"][i]), f"weight_hh_l0{end}": gates(own["r"][i]),
                  f"bias_ih_l0{end}": gates(own["b"][i][: n * hidden]),
                  f"bias_hh_l0{end}": gates(own["b"][i][n * hidden :])}  # fmt: skip
    states = (own["h0"], own["c0"]) if kind == "LSTM" else own["h0"]
    x, rnn = own["x"], torch.nn.utils.rnn
    if lengths is not None:
        x = rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    y, _ = torch.func.functional_call(module, given, (x, states))
    if lengths is not None:
        y, _ = rnn.pad_packed_sequence(y, total_length=arrays["x"].shape[0])
    y = y.reshape(*y.shape[:2], d, hidden).permute(0, 2, 1, 3)
    (y * torch.tensor(seed.astype(np.float64))).sum().backward()
    return {k: v.grad.numpy() for k, v in own.items()}


SIZES = [(3, 1, 5, 1, 1), (4, 7, 3, 21, 1), (5, 16, 9, 50, 1), (2, 30, 8, 64, 2), (3, 5, 4, 17, 2), (1, 2, 1, 8, 1)]
"""Steps, batch, inputs, hidden units, directions."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", sampled(host_targets(), 3), ids=lambda t: t.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_as_torch_in_f64(kind: str, size: tuple[int, int, int, int, int], target: Target) -> None:
    arrays = operands(kind, *size)
    steps, batch = size[:2]
    for lengths in (None, np.arange(batch).astype(np.int32) % steps + 1):
        made, feeds, symbols = program(kind, arrays, target, lengths)
        expected = by_torch(kind, arrays, feeds["seed"], lengths)
        for name, found in zip(arrays, made.run(feeds, symbols), strict=True):
            np.testing.assert_allclose(found, expected[name], 2e-4, 2e-5 * max(1, np.abs(expected[name]).max()), name)


@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_any_number_of_cores(kind: str, open_batch: bool) -> None:
    made, feeds, symbols = program(kind, operands(kind, 9, 27, 3, 70, 2), open_batch=open_batch)
    alone = made.run(feeds, symbols, pieces=1)
    for cores in (2, 3, 5):
        for a, b in zip(alone, made.run(feeds, symbols, pieces=cores), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_not_finite_stays_alone(kind: str) -> None:
    arrays = operands(kind, 4, 5, 3, 20, 1)
    made, feeds, symbols = program(kind, arrays)
    clean = dict(zip(arrays, made.run(feeds, symbols), strict=True))
    feeds["seed"] = feeds["seed"].copy()
    feeds["seed"][2, 0, 3, 4] = np.nan
    found = dict(zip(arrays, made.run(feeds, symbols), strict=True))
    assert np.isnan(found["x"][:3, 3]).any(-1).all() and np.isnan(found["h0"][0, 3]).any()
    for name in ("x", "h0"):
        others = np.delete(found[name], 3, 1)
        np.testing.assert_array_equal(others, np.delete(clean[name], 3, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_behind_the_end_of_a_sequence_is_not_read(kind: str) -> None:
    arrays = operands(kind, 6, 4, 3, 20, 1)
    lengths = np.array([6, 2, 0, 5], np.int32)
    made, feeds, symbols = program(kind, arrays, lengths=lengths)
    clean = made.run(feeds, symbols)
    for row, n in enumerate(lengths):
        feeds["seed"][n:, :, row] = np.inf
    for a, b in zip(clean, made.run(feeds, symbols), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not clean[0][2:, 1].any() and not clean[0][:, 2].any()


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_steps(kind: str) -> None:
    arrays = operands(kind, 6, 3, 4, 20, 2)
    made, feeds, symbols = program(kind, arrays, open_steps=True)
    fixed, _, _ = program(kind, arrays)
    for name, found, expected in zip(arrays, made.run(feeds, symbols), fixed.run(feeds, {}), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6 * np.abs(expected).max(), name)
    none = made.run({**feeds, "x": feeds["x"][:0], "seed": feeds["seed"][:0]}, {"T": 0})
    assert none[0].shape == (0, 3, 4) and not any(gradient.any() for gradient in none)
