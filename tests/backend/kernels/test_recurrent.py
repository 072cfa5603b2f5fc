"""Recurrent kernels: lengths out of range are reported, batches split over items, any layout of the operands."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import host_targets, op, run_node
from parax.compiler.ir.target import Target

RNG = np.random.default_rng(5)
HIDDEN = 21


def weights(gates: int, inputs: int) -> list[np.ndarray]:
    shapes = ((1, gates * HIDDEN, inputs), (1, gates * HIDDEN, HIDDEN), (1, 2 * gates * HIDDEN))
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


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
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
