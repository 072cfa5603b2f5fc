"""Gradients of recurrent operators: the way back through time as one operator, and products over all its steps.

    dW = Σ_t dG_tᵀ · x_t      dR = Σ_t dG_tᵀ · h_(t-1)      dx_t = dG_t · W      db = Σ_t dG_t

(Werbos, "Backpropagation through time", 1990; the split as in Appleyard et al., "Optimizing performance of recurrent
neural networks on GPUs", 2016.) Owns directions, layouts and weights; the steps are `parax::LSTMGradient`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any as PyAny
from typing import ClassVar, Protocol

import numpy as np

from .backward import Backward
from .recurrent_gradient import joined, outer, split


class Form(Protocol):
    """A training form: see recurrent_training.py."""

    name: ClassVar[str]
    n_gates: ClassVar[int]
    n_states: ClassVar[int]

    @property
    def layout(self) -> int: ...

    def explicit_attributes(self) -> dict[str, PyAny]: ...


@dataclass(frozen=True)
class _Steps:
    """What a direction, or all, goes back through: [directions, T, N, units], without `directions` of a direction.

    Attributes:
        dgates, before, beside: results of the way back. cells: behind each step, None but for the LSTM.
    """

    dgates: PyAny
    before: PyAny
    beside: PyAny
    cells: PyAny

    def of(self, g: PyAny, d: int, directions: int) -> _Steps:
        """A direction's own."""
        return _Steps(*(None if v is None else _part(g, v, d, directions)
                        for v in (self.dgates, self.before, self.beside, self.cells)))  # fmt: skip


def recurrent_gradients(back: Backward, directions: int, form: Form) -> list[PyAny]:
    """Gradients of X, W, R, B, sequence_lens (none), initial_h, initial_c and P."""
    g, (steps, states) = back.g, _back_through_time(back, form)
    x, w = back.inputs[:2]
    x = g.Transpose(x, perm=[1, 0, 2]) if form.layout else x
    found = [_of_direction(g, form, steps.of(g, d, directions), x, _part(g, w, d, directions))
             for d in range(directions)]  # fmt: skip
    dx = found[0][0] if directions == 1 else g.Add(found[0][0], found[1][0])
    stacked = [joined(g, [g.Unsqueeze(f[i], np.array([0])) for f in found], 0) for i in range(1, len(found[0]))]
    together = [g.Transpose(dx, perm=[1, 0, 2]) if form.layout else dx, *stacked[:3], None, *states, *stacked[3:]]
    return together[: len(back.inputs)]


def _back_through_time(back: Backward, form: Form) -> tuple[_Steps, list[PyAny]]:
    """The way back, and the gradients of the first states."""
    n = form.n_states
    _, _, r, _, lens, h0, c0, p = [*back.inputs, *[None] * 8][:8]
    y, gates, cells = back.outputs[0], back.outputs[1 + n], back.outputs[2 + n] if n == 2 else None
    received = [*back.received[: 1 + n], None][:3]
    name = form.name.replace("Training", "") + "Gradient"
    dgates, before, *rest = getattr(back.g, name)(
        gates, y, r, lens, h0, cells, *((c0, p) if n == 2 else (None, None)), *received,
        n_outputs=2 + n + (form.n_gates > 1), **form.explicit_attributes(),
    )  # fmt: skip
    return _Steps(dgates, before, rest[n] if len(rest) > n else None, cells), rest[:n]


def _part(g: PyAny, v: PyAny, d: int, directions: int) -> PyAny:
    """A direction's part, without the axis of directions."""
    return g.Squeeze(split(g, v, directions, 0)[d], np.array([0]))


def _of_direction(g: PyAny, form: Form, s: _Steps, x: PyAny, w: PyAny) -> list[PyAny]:
    """Gradients of X and of the direction's own part of W, R, B and, of an LSTM, P."""
    found = [g.MatMul(s.dgates, w), outer(g, s.dgates, x)]
    db = _over_rows(g, s.dgates)
    if form.n_gates != 3:
        found += [outer(g, s.dgates, s.before), g.Concat(db, db, axis=0)]
        return [*found, _peepholes(g, s)] if form.n_states == 2 else found
    hidden = s.before.tensor.dims[2]
    both, last = g.Split(s.dgates, np.array([2 * hidden, hidden]), axis=2, n_outputs=2)
    if not form.explicit_attributes().get("linear_before_reset"):
        return [*found, joined(g, [outer(g, both, s.before), outer(g, last, s.beside)], 0), g.Concat(db, db, axis=0)]
    own = g.Concat(db, _over_rows(g, both), _over_rows(g, s.beside), axis=0)
    return [*found, joined(g, [outer(g, both, s.before), outer(g, s.beside, s.before)], 0), own]


def _over_rows(g: PyAny, v: PyAny) -> PyAny:
    return g.ReduceSum(v, np.array([0, 1]), keepdims=0)


def _peepholes(g: PyAny, s: _Steps) -> PyAny:
    """dP [3 · H]: of i and f by the cell states before each step, of o by those behind it."""
    di, do, df, _ = split(g, s.dgates, 4, 2)
    return g.Concat(*(_over_rows(g, g.Mul(v, c)) for v, c in ((di, s.beside), (do, s.cells), (df, s.beside))), axis=0)
