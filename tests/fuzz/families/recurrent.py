"""RNN, GRU, LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contents import F32, I32, random_array
from ..maker import Maker, Refused, Value
from ..sizes import RUNS, Shape, numbers, shape_of, static
from .registry import family

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = ("Sigmoid", "Tanh", "HardSigmoid", "Softsign")
"""Bounded ones: others amplify rounding errors from step to step."""


@family(*GATES, frequency=0.8)
def recurrent(m: Maker, op: str) -> None:
    x = m.pick((F32,), (3,), lambda v: v.shape[2].is_static and all(s.least > 0 for s in v.shape))
    steps, batch, width = x.shape
    hidden, direction = m.choose([1, 3, 8, 16, 17]), m.choose([None, "forward", "reverse", "bidirectional"])
    n = 2 if direction == "bidirectional" else 1
    gates = GATES[op] * hidden
    inputs: list[Value | None] = [x, _weights(m, n, gates, width.value), _weights(m, n, gates, hidden)]
    inputs.append(_weights(m, n, 2 * gates) if m.chance(0.6) else None)
    inputs.append(_lengths(m, x) if m.chance(0.25) else None)
    state: Shape = (static(n), batch, static(hidden))
    inputs += [_state(m, state) if m.chance(0.4) else None for _ in range(2 if op == "LSTM" else 1)]
    if op == "LSTM" and m.chance(0.2):
        inputs.append(_weights(m, n, 3 * hidden))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = m.choose([None, 0, 1])
    if m.chance(0.2):
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * n
        attributes["activations"] = [m.choose(ACTIVATIONS) for _ in range(count)]
    if m.chance(0.15):
        attributes["clip"] = 1.5
    results: list[tuple[np.dtype, Shape] | None] = [(F32, (steps, static(n), batch, static(hidden))), (F32, state)]
    if op == "LSTM":
        results.append((F32, state))
    kept = m.rng.randint(1, len(results))
    results = results[:kept]
    if kept > 1 and m.chance(0.3):
        results[0] = None
    m.node(op, inputs, results, 4.0, **attributes)


def _weights(m: Maker, *shape: int) -> Value:
    array = random_array(m.numpy, F32, shape, -0.5, 0.5)
    return m.constant(array) if m.chance(0.85) else m.input(F32, shape_of(*shape), -0.5, 0.5)


def _state(m: Maker, shape: Shape) -> Value:
    made = m.fresh(F32, shape, -1.0, 1.0, constant=0.3)
    if made is None:
        raise Refused("a size that no input declares")
    return made


def _lengths(m: Maker, x: Value) -> Value:
    """Lengths of the sequences: from 1 on, as many as there are sequences."""
    steps, batch = x.shape[0], x.shape[1]
    if not (batch.is_static or batch.symbol):
        raise Refused("a size that no input declares")
    contents = [m.numpy.integers(1, steps.least, numbers((batch,), r), endpoint=True).astype(I32) for r in range(RUNS)]
    return m.input(I32, (batch,), contents=contents)
