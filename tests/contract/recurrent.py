"""Recurrent operators of our own for the contract's tests: a graph of each, and its result step by step in f64.

Sizes: 3 steps, S rows, 20 units, 5 inputs; the formulas are ONNX's with the default activation functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

HIDDEN = 20
Array = np.ndarray


def training(kind: str, gates: int, kept: str) -> str:
    """The text of a graph of a training form, which gives the sums of the gates."""
    states = ", ".join(["f32[1,S,20]"] * (2 if kind == "LSTM" else 1))
    names = "%y, %h, %c, %gates, %cells" if kind == "LSTM" else "%y, %h, %gates"
    types = f"f32[3,1,S,20], {states}, {kept}"
    return f"""graph @g(%x: f32[3,S,5], %w: f32[1,{20 * gates},5], %r: f32[1,{20 * gates},20]) {{
        {names} = parax::Training{kind}(%x, %w, %r) {{hidden_size=20}} : {types}
        return %gates
        }}"""


def backward(kind: str, gates: int, results: str, types: str) -> str:
    """The text of a graph of a way back, which gives the gradients of the gates' sums."""
    cells, given = (", %cells: f32[1,3,S,20]", "%cells") if kind == "LSTM" else ("", "_")
    return f"""graph @g(%gates: f32[1,3,S,{20 * gates}], %y: f32[3,1,S,20], %r: f32[1,{20 * gates},20]{cells}, \
        %dy: f32[3,1,S,20]) {{
        {results} = parax::{kind}Gradient(%gates, %y, %r, _, _, {given}, _, _, %dy) : {types}
        return %dgates
        }}"""


EACH = "f32[1,3,S,20]"
TEXTS = {
    "TrainingRNN": training("RNN", 1, EACH), "TrainingGRU": training("GRU", 3, "f32[1,3,S,60]"),
    "TrainingLSTM": training("LSTM", 4, f"f32[1,3,S,80], {EACH}"),
    "RNNGradient": backward("RNN", 1, "%dgates", EACH), "GRUGradient": backward("GRU", 3, "%dgates", "f32[1,3,S,60]"),
    "LSTMGradient": backward("LSTM", 4, "%dgates", "f32[1,3,S,80]"),
}  # fmt: skip


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def kept_sums(step: Callable[[Array, Array, Array, Array], tuple[Array, Array, Array]]) -> Callable[..., Array]:
    """Forwards: the sums of each step; `step` makes (sums, h, c) of (x · W, R, h, c)."""
    def run(x: Array, w: Array, r: Array) -> Array:
        h = c = np.zeros((x.shape[1], HIDDEN))
        found = []
        for row in x @ w[0].T:
            sums, h, c = step(row, r[0].T, h, c)
            found.append(sums)
        return np.stack(found)[None]

    return run


def rnn(x: Array, r: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    sums = x + h @ r
    return sums, np.tanh(sums), c


def gru(x: Array, r: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    first = x[:, :40] + h @ r[:, :40]
    z, reset = sigmoid(first[:, :20]), sigmoid(first[:, 20:])
    last = x[:, 40:] + (reset * h) @ r[:, 40:]
    return np.concatenate([first, last], 1), (1 - z) * np.tanh(last) + z * h, c


def lstm(x: Array, r: Array, h: Array, c: Array) -> tuple[Array, Array, Array]:
    sums = x + h @ r
    i, o, f, n = np.split(sums, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
    return sums, sigmoid(o) * np.tanh(c), c


def rnn_back(gates: Array, y: Array, r: Array, dy: Array) -> Array:
    dh, found = np.zeros_like(y[0, 0]), []
    for sums, received in zip(gates[0, ::-1], dy[::-1, 0], strict=True):
        found.append((dh + received) * (1 - np.tanh(sums) ** 2))
        dh = found[-1] @ r[0]
    return np.stack(found[::-1])[None]


def gru_back(gates: Array, y: Array, r: Array, dy: Array) -> Array:
    dh, found = np.zeros_like(y[0, 0]), []
    before = np.concatenate([np.zeros_like(y[:1, 0]), y[:-1, 0]])
    for sums, h, received in zip(gates[0, ::-1], before[::-1], dy[::-1, 0], strict=True):
        a, b, n = np.split(sums, 3, 1)
        z, reset, n = sigmoid(a), sigmoid(b), np.tanh(n)
        dh = dh + received
        dn, dz = dh * (1 - z) * (1 - n * n), dh * (h - n) * z * (1 - z)
        of_reset = dn @ r[0, 40:]
        dr = of_reset * h * reset * (1 - reset)
        dh = dh * z + of_reset * reset + np.concatenate([dz, dr], 1) @ r[0, :40]
        found.append(np.concatenate([dz, dr, dn], 1))
    return np.stack(found[::-1])[None]


def lstm_back(gates: Array, y: Array, r: Array, cells: Array, dy: Array) -> Array:
    dh, dc, found = np.zeros_like(y[0, 0]), np.zeros_like(y[0, 0]), []
    before = np.concatenate([np.zeros_like(cells[0, :1]), cells[0, :-1]])
    for t in (2, 1, 0):
        i, o, f, n = np.split(gates[0, t], 4, 1)
        i, o, f, n, out = sigmoid(i), sigmoid(o), sigmoid(f), np.tanh(n), np.tanh(cells[0, t])
        dh = dh + dy[t, 0]
        dc = dc + dh * o * (1 - out * out)
        d_o = dh * out * o * (1 - o)
        found.append(np.concatenate([dc * n * i * (1 - i), d_o, dc * before[t] * f * (1 - f), dc * i * (1 - n * n)], 1))
        dh, dc = found[-1] @ r[0], dc * f
    return np.stack(found[::-1])[None]


RESULTS: dict[str, Callable[..., Array]] = {
    **{f"Training{step.__name__.upper()}": kept_sums(step) for step in (rnn, gru, lstm)},
    "RNNGradient": rnn_back, "GRUGradient": gru_back, "LSTMGradient": lstm_back,
}  # fmt: skip
