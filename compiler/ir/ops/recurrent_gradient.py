"""Gradients of recurrent operators through time, written as graph nodes.

The sums of all gates of all steps are made again in one product, from the states that the operator gives: cheaper than
keeping the gates where products run at the machine's limit. Then back through time: a step does element-wise work and
one product, of the gradients of its gates with R. What needs no order is left for after it, as products over all steps:

    dW = Σ_t dG_tᵀ · x_t      dR = Σ_t dG_tᵀ · h_(t-1)      dx_t = dG_t · W      db = Σ_t dG_t

(Werbos, "Backpropagation through time", 1990; the split as in Appleyard et al., "Optimizing performance of recurrent
neural networks on GPUs", 2016.) Owns directions, layouts, lengths and weights; the cells' own steps are given to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any as PyAny

import numpy as np

from ..types import I32, I64
from .backward import Backward, filled
from .recurrent_slopes import Function

LONGEST = 1024  # steps that are written out


@dataclass(frozen=True)
class Sequences:
    """What the three operators say of themselves.

    Attributes:
        gates: of the cell. hidden: units. functions: of each direction. reverse: of each direction, whether it runs
            from the last step to the first. clip: see ONNX. batch_first: layout=1.
    """

    steps: int
    hidden: int
    gates: int
    functions: Sequence[Sequence[Function]]
    reverse: Sequence[bool]
    clip: float | None
    batch_first: bool


@dataclass(frozen=True)
class Direction:
    """One direction, its steps in the order in which they run. Sums and states are [T,N,units], of a step [1,N,units].

    Attributes:
        of_x, of_h: x·Wᵀ and h·Rᵀ with their biases, of all gates and steps. h: the states before each step.
        r: [gates · H, H]. rb: the biases in of_h. p: P of each gate i, o, f. c: the first cell states.
        alive: per step whether a row still runs; None: all do.
        dy: received by each step's result. dh, dc: received by the last states, None for 0.
    """

    g: PyAny
    sizes: Sequences
    functions: Sequence[Function]
    of_x: PyAny
    of_h: PyAny
    h: PyAny
    r: PyAny
    rb: PyAny
    p: Sequence[PyAny] | None
    c: PyAny
    alive: Sequence[PyAny] | None
    dy: Sequence[PyAny]
    dh: PyAny
    dc: PyAny

    def gates(self, v: PyAny) -> list[PyAny]:
        """The parts of sums that belong to each gate."""
        return split(self.g, v, self.sizes.gates, 2)

    def by_step(self, v: PyAny) -> list[PyAny]:
        """The steps of a tensor."""
        return split(self.g, v, len(self.dy), 0)

    def where_alive(self, t: int, new: PyAny, old: PyAny) -> PyAny:
        """`new` for the rows that step t belongs to, else `old`; None counts as 0."""
        if self.alive is None:
            return new
        return self.g.Where(self.alive[t], new, filled(self.g, new, 0.0) if old is None else old)


@dataclass(frozen=True)
class Pulled:
    """What a cell's steps give, from the last to the first.

    Attributes:
        d_x, d_h: gradients of x·W + b and h·R + b, [T,N,gates · H]. d_r: of R. h, c, p: of the first states and of P.
    """

    d_x: PyAny
    d_h: PyAny
    d_r: PyAny
    h: PyAny
    c: PyAny = None
    p: PyAny = None


Cell = Callable[[Direction], Pulled]


def recurrent_gradient(back: Backward, s: Sequences, cell: Cell) -> list[PyAny]:
    """Gradients of X, W, R, B, sequence_lens (none), initial_h, initial_c and P.

    Raises:
        UnsupportedOp: the number of steps is 0 or more than LONGEST.
    """
    if not 0 < s.steps <= LONGEST:
        back.refuse(f"a recurrent operator of no steps or more than {LONGEST}", s.steps)
    found = [_of_direction(back, s, cell, d) for d in range(len(s.reverse))]
    g = back.g
    dx = found[0][0] if len(found) == 1 else g.Add(found[0][0], found[1][0])
    together: list[PyAny] = [g.Transpose(dx, perm=[1, 0, 2]) if s.batch_first else dx]
    for i in range(1, len(found[0])):
        parts = [f[i] for f in found]
        stacked = None if parts[0] is None else joined(g, [g.Unsqueeze(v, np.array([0])) for v in parts], 0)
        is_state = stacked is not None and i in (5, 6)
        together.append(g.Transpose(stacked, perm=[1, 0, 2]) if is_state and s.batch_first else stacked)
    return together[: len(back.inputs)]


def _of_direction(back: Backward, s: Sequences, cell: Cell, d: int) -> list[PyAny]:
    """Gradients of X [T,N,I] and of the direction's own part of each other operand, without the axis of directions."""
    g, reader = back.g, _Reader(back, s, d)
    x, w, r = reader.in_order(reader.steps_first(back.inputs[0])), reader.part(1), reader.part(2)
    wb, rb = split(g, reader.part(3), 2, 0) if reader.part(3) is not None else (None, None)
    y, h0, c0 = reader.result(back.outputs[0]), reader.state(back.inputs, 5), reader.state(back.inputs, 6)
    first = filled(g, split(g, y, s.steps, 0)[0], 0.0) if h0 is None else h0
    before = first if s.steps == 1 else g.Concat(first, _steps(g, y, 0, s.steps - 1), axis=0)
    pulled = cell(Direction(
        g, s, s.functions[d], _product(g, x, w, wb), _product(g, before, r, rb), before, r, rb, reader.peepholes(),
        filled(g, first, 0.0) if c0 is None else c0, reader.alive(), reader.received(),
        reader.state(back.received, 1), reader.state(back.received, 2),
    ))  # fmt: skip
    dx = reader.in_order(g.MatMul(pulled.d_x, w))
    db = None if wb is None else joined(g, [_over_rows(g, pulled.d_x), _over_rows(g, pulled.d_h)], 0)
    h, c = (None if v is None else g.Squeeze(v, np.array([0])) for v in (pulled.h, pulled.c))
    return [dx, outer(g, pulled.d_x, x), pulled.d_r, db, None, None if h0 is None else h, None if c0 is None else c,
            pulled.p]  # fmt: skip


class _Reader:
    """Operands and results of one direction, their steps in the order in which it runs."""

    def __init__(self, back: Backward, s: Sequences, d: int) -> None:
        self.back, self.g, self.s, self.d = back, back.g, s, d

    def _given(self, values: Sequence[PyAny], i: int) -> PyAny:
        return values[i] if i < len(values) else None

    def part(self, i: int) -> PyAny:
        """Operand i without its first axis, of directions; None where omitted."""
        v = self._given(self.back.inputs, i)
        return None if v is None else self._own(v, 0)

    def _own(self, v: PyAny, axis: int) -> PyAny:
        return self.g.Squeeze(split(self.g, v, len(self.s.reverse), axis)[self.d], np.array([axis]))

    def state(self, values: Sequence[PyAny], i: int) -> PyAny:
        """A state as one step, [1,N,H]."""
        v = self._given(values, i)
        if v is None:
            return None
        v = self.g.Transpose(v, perm=[1, 0, 2]) if self.s.batch_first else v
        return split(self.g, v, len(self.s.reverse), 0)[self.d]

    def steps_first(self, x: PyAny) -> PyAny:
        """X as [T,N,I]."""
        return self.g.Transpose(x, perm=[1, 0, 2]) if self.s.batch_first else x

    def result(self, y: PyAny) -> PyAny:
        """Y, or its gradient, as [T,N,H]."""
        y = self.g.Transpose(y, perm=[1, 2, 0, 3]) if self.s.batch_first else y
        return self.in_order(self._own(y, 1))

    def in_order(self, v: PyAny) -> PyAny:
        """[T,N,…] in the order of the run, or from there back: it is its own inverse."""
        if not self.s.reverse[self.d]:
            return v
        lengths = self._given(self.back.inputs, 4)
        if lengths is not None:
            return self.g.ReverseSequence(v, self.g.Cast(lengths, to=I64), batch_axis=1, time_axis=0)
        steps = self.s.steps
        return self.g.Slice(v, np.array([steps - 1]), np.array([-steps - 1]), np.array([0]), np.array([-1]))

    def received(self) -> list[PyAny]:
        """Gradient of each step's result, None for 0."""
        steps = self.s.steps
        dy = self.back.received[0]
        return [None] * steps if dy is None else split(self.g, self.result(dy), steps, 0)

    def peepholes(self) -> list[PyAny] | None:
        """P of gates i, o and f, each [H]."""
        p = self.part(7)
        return None if p is None else split(self.g, p, 3, 0)

    def alive(self) -> list[PyAny] | None:
        """Whether each step, counted as it runs, belongs to each row's sequence: [1,N,1]."""
        lengths = self._given(self.back.inputs, 4)
        if lengths is None:
            return None
        steps = self.s.steps
        column = self.g.Unsqueeze(lengths, np.array([0, 2]))
        counted = self.g.const(np.arange(steps).reshape(steps, 1, 1), I32)
        return split(self.g, self.g.Less(counted, column), steps, 0)


def split(g: PyAny, v: PyAny, parts: int, axis: int) -> list[PyAny]:
    """Equal parts along an axis."""
    return [v] if parts == 1 else g.Split(v, None, axis=axis, num_outputs=parts, n_outputs=parts)


def joined(g: PyAny, parts: Sequence[PyAny], axis: int) -> PyAny:
    """Parts one behind the other along an axis."""
    return parts[0] if len(parts) == 1 else g.Concat(*parts, axis=axis)


def flat(g: PyAny, v: PyAny) -> PyAny:
    """[T,N,K] as [T · N,K]."""
    return g.Reshape(v, np.array([-1, v.tensor.dims[2]], np.int64))


def outer(g: PyAny, a: PyAny, b: PyAny) -> PyAny:
    """Σ over steps and rows of aᵀ · b."""
    return g.MatMul(g.Transpose(flat(g, a), perm=[1, 0]), flat(g, b))


def _over_rows(g: PyAny, v: PyAny) -> PyAny:
    return g.ReduceSum(v, np.array([0, 1]), keepdims=0)


def _steps(g: PyAny, v: PyAny, start: int, end: int) -> PyAny:
    return g.Slice(v, np.array([start]), np.array([end]), np.array([0]))


def _product(g: PyAny, x: PyAny, w: PyAny, bias: PyAny) -> PyAny:
    found = g.MatMul(x, g.Transpose(w, perm=[1, 0]))
    return found if bias is None else g.Add(found, bias)
