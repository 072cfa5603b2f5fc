"""RNN, GRU and LSTM in plain numpy, with all that ONNX allows: onnx.reference's own ignores most of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Function = Callable[[np.ndarray], np.ndarray]
Functions = tuple[Function, ...]
DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
"""alpha and beta of the functions that have them."""
FORMULAS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "relu": lambda x, a, b: np.maximum(x, 0.0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1.0 / (1.0 + np.exp(-x)),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0.0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where((x > a) | np.isnan(x), x, 0.0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0.0, 1.0),
    "elu": lambda x, a, b: np.where(x < 0.0, a * np.expm1(np.minimum(x, 0.0)), x),
    "softsign": lambda x, a, b: x / (1.0 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(0.0, x),
}


def _functions(
    names: list[str], alphas: list[float] | None, betas: list[float] | None, clip: float | None
) -> Functions:
    """The activation functions; the lists hold values for those that have the parameter, in order."""
    left, right = list(alphas or ()), list(betas or ())
    found = []
    for name in names:
        alpha, beta = DEFAULTS.get(name.lower(), (None, None))
        alpha = left.pop(0) if alpha is not None and left else alpha
        beta = right.pop(0) if beta is not None and right else beta
        found.append(_function(FORMULAS[name.lower()], alpha or 0.0, beta or 0.0, clip))
    return tuple(found)


def _function(formula: Any, alpha: float, beta: float, clip: float | None) -> Function:
    """A function of the sum of a gate; called with `bounded` False, of what is no such sum."""

    def call(x: np.ndarray, bounded: bool = True) -> np.ndarray:
        return np.asarray(formula(np.clip(x, -clip, clip) if clip is not None and bounded else x, alpha, beta))

    return call


class _Recurrent(OpRun):  # type: ignore[misc]
    """The steps of any of them; a subclass says what one step makes of the states."""

    gates = 1
    states = 1
    usual: tuple[str, ...] = ("Tanh",)

    _cell: Any  # of each subclass: the states after a step from those before it

    def _run(self, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: Any = None, lengths: Any = None, h: Any = None,
             c: Any = None, p: Any = None, **given: Any) -> tuple[np.ndarray, ...]:  # fmt: skip
        dtype, batch_first = x.dtype, bool(given.get("layout"))
        wide = [None if v is None else v.astype(np.float64) for v in (x, w, r, b, h, c, p)]
        x, w, r, b, h, c, p = wide
        if batch_first:
            x, h, c = (None if v is None else v.swapaxes(0, 1) for v in (x, h, c))
        steps, batch = x.shape[:2]
        lengths = np.full(batch, steps) if lengths is None else lengths
        if ((lengths < 0) | (lengths > steps)).any():
            raise ValueError("sequence_lens out of range")
        hidden, per = r.shape[-1], len(self.usual)
        directions = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[given.get("direction") or "forward"]
        names = given.get("activations") or list(self.usual) * len(directions)
        functions = _functions(names, given.get("activation_alpha"), given.get("activation_beta"), given.get("clip"))
        found = []
        for d, backward in enumerate(directions):
            weights = {"w": w[d], "r": r[d]}
            weights["b"] = np.zeros(2 * self.gates * hidden) if b is None else b[d]
            if p is not None:
                weights["p"] = p[d]
            start = [np.zeros((batch, hidden)) if s is None else s[d] for s in (h, c)[: self.states]]
            own = functions[d * per : (d + 1) * per]
            found.append(self._direction(x, start, lengths, bool(backward), weights, own, given))
        results = [np.stack([f[0] for f in found], 1), *(np.stack(s) for s in zip(*(f[1] for f in found), strict=True))]
        if batch_first:
            results = [results[0].transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in results[1:])]
        return tuple(a.astype(dtype) for a in results)[: max(len(self.onnx_node.output), 1)]

    def _direction(self, x: np.ndarray, state: list[np.ndarray], lengths: np.ndarray, backward: bool,
                   weights: dict[str, np.ndarray], f: Functions, own: dict[str, Any]
                   ) -> tuple[np.ndarray, list[np.ndarray]]:  # fmt: skip
        """All steps one way: Y, 0 beyond a sequence's end, and the last states."""
        rows = np.arange(x.shape[1])
        y = np.zeros((*x.shape[:2], weights["r"].shape[-1]))
        for step in range(x.shape[0]):
            alive = step < lengths
            times = np.where(alive & backward, lengths - 1 - step, step)
            new = self._cell(x[times, rows], state, weights, f, own)
            state = [np.where(alive[:, None], a, b) for a, b in zip(new, state, strict=True)]
            y[times, rows] = np.where(alive[:, None], new[0], 0.0)
        return y, state


class RNN(_Recurrent):
    """h = f(x W + h R + b)."""

    def _cell(self, x: np.ndarray, state: list[np.ndarray], w: dict[str, np.ndarray], f: Functions, own: dict[str, Any]
              ) -> list[np.ndarray]:  # fmt: skip
        wb, rb = np.split(w["b"], 2)
        return [f[0](x @ w["w"].T + state[0] @ w["r"].T + wb + rb)]


class GRU(_Recurrent):
    """Gates z, r and the new state's."""

    gates = 3
    usual = ("Sigmoid", "Tanh")

    def _cell(self, x: np.ndarray, state: list[np.ndarray], w: dict[str, np.ndarray], f: Functions, own: dict[str, Any]
              ) -> list[np.ndarray]:  # fmt: skip
        (h,) = state
        wz, wr, wn = np.split(x @ w["w"].T + w["b"][: len(w["b"]) // 2], 3, -1)
        bz, br, bn = np.split(w["b"][len(w["b"]) // 2 :], 3)
        rz, rr, rn = np.split(w["r"], 3)
        z, r = f[0](wz + h @ rz.T + bz), f[0](wr + h @ rr.T + br)
        inner = r * (h @ rn.T + bn) if own.get("linear_before_reset") else (r * h) @ rn.T + bn
        return [(1.0 - z) * f[1](wn + inner) + z * h]


class LSTM(_Recurrent):
    """Gates i, o, f and the cell's."""

    gates = 4
    states = 2
    usual = ("Sigmoid", "Tanh", "Tanh")

    def _cell(self, x: np.ndarray, state: list[np.ndarray], w: dict[str, np.ndarray], f: Functions, own: dict[str, Any]
              ) -> list[np.ndarray]:  # fmt: skip
        h, c = state
        wb, rb = np.split(w["b"], 2)
        i, o, forget, cell = np.split(x @ w["w"].T + h @ w["r"].T + wb + rb, 4, -1)
        peephole = np.split(w["p"], 3) if "p" in w else None  # none is not zeros: c may be infinite
        i = f[0](i if peephole is None else i + peephole[0] * c)
        past = forget if peephole is None else forget + peephole[2] * c
        forget = 1.0 - i if own.get("input_forget") else f[0](past)
        c = forget * c + i * f[1](cell)
        return [f[0](o if peephole is None else o + peephole[1] * c) * f[2](c, False), c]  # type: ignore[call-arg]


OPERATORS = (RNN, GRU, LSTM)
