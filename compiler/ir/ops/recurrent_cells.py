"""The steps of RNN, GRU and LSTM from the last to the first: gradients of their gates and of the states before.

Where a row's sequence has ended, its states go through a step as they are and its gates get nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as PyAny

import numpy as np

from .backward import filled
from .recurrent_gradient import Direction, Pulled, joined, outer
from .recurrent_slopes import activated


def _received(d: Direction, t: int, carried: PyAny, like: PyAny) -> PyAny:
    """Gradient of the state behind step t: from the steps behind, and of the result, which is 0 beyond the end."""
    dy = d.dy[t]
    if dy is None:
        return filled(d.g, like, 0.0) if carried is None else carried
    dy = d.where_alive(t, dy, None)
    return dy if carried is None else d.g.Add(carried, dy)


def rnn_steps(d: Direction) -> Pulled:
    """dG = dh · f'."""
    g = d.g
    _, slope = activated(g, d.functions[0], g.Add(d.of_x, d.of_h), d.sizes.clip)
    slopes, carried, made = d.by_step(slope), d.dh, []
    for t in reversed(range(len(d.dy))):
        dh = _received(d, t, carried, slopes[t])
        made.append(d.where_alive(t, g.Mul(dh, slopes[t]), None))
        carried = d.where_alive(t, g.MatMul(made[-1], d.r), dh)
    gates = joined(g, made[::-1], 0)
    return Pulled(gates, gates, outer(g, gates, d.h), carried)


def gru_steps(d: Direction) -> Pulled:
    """h = (1 - z) n + z h with n = g(x W + (r h) R + b): one more product a step, of dn with R's last third."""
    g, clip, hidden = d.g, d.sizes.clip, d.sizes.hidden
    (xz, xr, xn), (hz, hr, _) = d.gates(d.of_x), d.gates(d.of_h)
    z, z_slope = activated(g, d.functions[0], g.Add(xz, hz), clip)
    r, r_slope = activated(g, d.functions[0], g.Add(xr, hr), clip)
    rows = np.array([2 * hidden, hidden])
    first, last = g.Split(d.r, rows, axis=0, n_outputs=2)
    reset = g.Mul(r, d.h)
    sums = g.Add(xn, g.MatMul(reset, g.Transpose(last, perm=[1, 0])))
    if d.rb is not None:
        sums = g.Add(sums, g.Split(d.rb, rows, axis=0, n_outputs=2)[1])
    n, n_slope = activated(g, d.functions[1], sums, clip)
    of_z = d.by_step(g.Mul(g.Sub(d.h, n), z_slope))
    of_n = d.by_step(g.Mul(g.Sub(1.0, z), n_slope))
    of_r, zs, rs = d.by_step(g.Mul(d.h, r_slope)), d.by_step(z), d.by_step(r)
    carried, made = d.dh, []
    for t in reversed(range(len(d.dy))):
        dh = _received(d, t, carried, zs[t])
        dn = d.where_alive(t, g.Mul(dh, of_n[t]), None)
        of_reset = g.MatMul(dn, last)
        both = d.where_alive(t, g.Concat(g.Mul(dh, of_z[t]), g.Mul(of_reset, of_r[t]), axis=2), None)
        new = g.Add(g.Add(g.Mul(dh, zs[t]), g.Mul(of_reset, rs[t])), g.MatMul(both, first))
        carried = d.where_alive(t, new, dh)
        made.append(g.Concat(both, dn, axis=2))
    gates = joined(g, made[::-1], 0)
    of_both, of_last = g.Split(gates, rows, axis=2, n_outputs=2)
    return Pulled(gates, gates, g.Concat(outer(g, of_both, d.h), outer(g, of_last, reset), axis=0), carried)


def gru_steps_reset_after(d: Direction) -> Pulled:
    """n = g(x W + wb + r (h R + rb)), of linear_before_reset."""
    g, clip = d.g, d.sizes.clip
    (xz, xr, xn), (hz, hr, hn) = d.gates(d.of_x), d.gates(d.of_h)
    z, z_slope = activated(g, d.functions[0], g.Add(xz, hz), clip)
    r, r_slope = activated(g, d.functions[0], g.Add(xr, hr), clip)
    n, n_slope = activated(g, d.functions[1], g.Add(xn, g.Mul(r, hn)), clip)
    of_z = d.by_step(g.Mul(g.Sub(d.h, n), z_slope))
    of_n = d.by_step(g.Mul(g.Sub(1.0, z), n_slope))
    of_r, zs, rs = d.by_step(g.Mul(hn, r_slope)), d.by_step(z), d.by_step(r)
    carried, from_x, from_h = d.dh, [], []
    for t in reversed(range(len(d.dy))):
        dh = _received(d, t, carried, zs[t])
        dz, dn = g.Mul(dh, of_z[t]), g.Mul(dh, of_n[t])
        dr = g.Mul(dn, of_r[t])
        from_x.append(d.where_alive(t, g.Concat(dz, dr, dn, axis=2), None))
        from_h.append(d.where_alive(t, g.Concat(dz, dr, g.Mul(dn, rs[t]), axis=2), None))
        carried = d.where_alive(t, g.Add(g.Mul(dh, zs[t]), g.MatMul(from_h[-1], d.r)), dh)
    d_x, d_h = joined(g, from_x[::-1], 0), joined(g, from_h[::-1], 0)
    return Pulled(d_x, d_h, outer(g, d_h, d.h), carried)


@dataclass(frozen=True)
class _LstmStep:
    """One step forwards: the states, and each gate with its slope. `f` has none where it is 1 - i."""

    before: PyAny
    c: PyAny
    i: tuple[PyAny, PyAny]
    o: tuple[PyAny, PyAny]
    f: tuple[PyAny, PyAny]
    n: tuple[PyAny, PyAny]
    out: tuple[PyAny, PyAny]


def _lstm_forwards(d: Direction, coupled: bool) -> list[_LstmStep]:
    """The steps again, from the sums of the gates. Without peepholes all gates are made at once."""
    g, clip = d.g, d.sizes.clip
    f, n, h = d.functions
    kinds = (f, f, f, n)  # in the order i, o, f, c
    sums = d.gates(g.Add(d.of_x, d.of_h))
    whole = [tuple(map(d.by_step, activated(g, kind, v, clip))) for kind, v in zip(kinds, sums, strict=True)]
    single = [d.by_step(v) for v in sums] if d.p is not None else []

    def gate(number: int, t: int, c: PyAny, row: int | None) -> tuple[PyAny, PyAny]:
        if d.p is None or row is None:
            return whole[number][0][t], whole[number][1][t]
        return activated(g, kinds[number], g.Add(single[number][t], g.Mul(c, d.p[row])), clip)

    c, steps = d.c, []
    for t in range(len(d.dy)):
        i, new = gate(0, t, c, 0), gate(3, t, c, None)
        forget = (g.Sub(1.0, i[0]), None) if coupled else gate(2, t, c, 2)
        after = d.where_alive(t, g.Add(g.Mul(forget[0], c), g.Mul(i[0], new[0])), c)
        steps.append(_LstmStep(c, after, i, gate(1, t, after, 1), forget, new, activated(g, h, after)))
        c = after
    return steps


def _lstm_step(d: Direction, t: int, s: _LstmStep, dh: PyAny, dc: PyAny) -> tuple[list[PyAny], PyAny]:
    """Gradients of the sums of i, o, f and c, and of the cell state before."""
    g, p = d.g, d.p
    do = g.Mul(g.Mul(dh, s.out[0]), s.o[1])
    through = g.Mul(g.Mul(dh, s.o[0]), s.out[1])
    dc_all = through if dc is None else g.Add(dc, through)
    if p is not None:
        dc_all = g.Add(dc_all, g.Mul(do, p[1]))
    di = g.Mul(dc_all, s.n[0] if s.f[1] is not None else g.Sub(s.n[0], s.before))
    di = g.Mul(di, s.i[1])
    df = None if s.f[1] is None else g.Mul(g.Mul(dc_all, s.before), s.f[1])
    dn = g.Mul(g.Mul(dc_all, s.i[0]), s.n[1])
    before = g.Mul(dc_all, s.f[0])
    if p is not None:
        before = g.Add(before, g.Mul(di, p[0]))
        before = before if df is None else g.Add(before, g.Mul(df, p[2]))
    return [di, do, filled(g, di, 0.0) if df is None else df, dn], d.where_alive(t, before, dc)


def lstm_steps(d: Direction) -> Pulled:
    """Gates in the order i, o, f, c; f is a gate of its own."""
    return _lstm(d, coupled=False)


def lstm_steps_coupled(d: Direction) -> Pulled:
    """With f = 1 - i, of input_forget."""
    return _lstm(d, coupled=True)


def _lstm(d: Direction, coupled: bool) -> Pulled:
    g, steps = d.g, _lstm_forwards(d, coupled)
    carried, dc, made = d.dh, d.dc, []
    for t in reversed(range(len(d.dy))):
        dh = _received(d, t, carried, steps[t].c)
        parts, dc = _lstm_step(d, t, steps[t], dh, dc)
        made.append(d.where_alive(t, g.Concat(*parts, axis=2), None))
        carried = d.where_alive(t, g.MatMul(made[-1], d.r), dh)
    gates = joined(g, made[::-1], 0)
    return Pulled(gates, gates, outer(g, gates, d.h), carried, dc, _peepholes(d, gates, steps))


def _peepholes(d: Direction, gates: PyAny, steps: Sequence[_LstmStep]) -> PyAny:
    """dP [3 · H]: of i and f by the cell state before each step, of o by the one behind it."""
    if d.p is None:
        return None
    g = d.g
    di, do, df, _ = d.gates(gates)
    before, behind = (joined(g, states, 0) for states in ([s.before for s in steps], [s.c for s in steps]))
    summed = [g.ReduceSum(g.Mul(v, c), np.array([0, 1]), keepdims=0)
              for v, c in ((di, before), (do, behind), (df, before))]  # fmt: skip
    return g.Concat(*summed, axis=0)
