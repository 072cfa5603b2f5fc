"""What RNN, GRU and LSTM compute at a time step of the way back, from the sums of their gates and what a step receives.

Owns the element-wise half of a step. A step is one or more phases: element-wise work, then a product of some gates'
gradients with their recurrent weights. It must not know loops. The formulas are those of `cells.py`, differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....ir.ops.recurrent import Activation, Recurrent
from ....ir.ops.recurrent_training import GRUGradient, LSTMGradient, RecurrentGradient
from ....kernel_ir.builder import Builder, KValue
from .slopes import activated


def phases_of(op: Recurrent) -> tuple[tuple[int, ...], ...]:
    """The gates whose gradients are multiplied with R after each piece of element-wise work."""
    if isinstance(op, GRUGradient) and not op.linear_before_reset:
        return (2,), (0, 1)
    return (tuple(range(op.n_gates)),)


@dataclass
class StepBack:
    """One vector of hidden units of one row at one time step.

    Attributes:
        sums: of the gates. h, c: states before the step. c_behind: the cell state behind it. dh, dc: gradients of the
            states behind the step. peephole: reads P of gate number i (i, o, f), None without. product: what the last
            phase's product gave; dh is then what it gave as `through`.
    """

    sums: list[KValue]
    h: KValue
    dh: KValue
    c: KValue | None = None
    c_behind: KValue | None = None
    dc: KValue | None = None
    peephole: Callable[[int], KValue] | None = None
    product: KValue | None = None


@dataclass
class Pulled:
    """Gradients that a piece of element-wise work gives.

    Attributes:
        gates: of the sums, by number of the gate. multiplied: what is multiplied with R in their place. through: of the
            state before the step, past the products; None: 0. dc: of the cell state before. beside: see the operator.
    """

    gates: dict[int, KValue]
    multiplied: dict[int, KValue] = field(default_factory=dict)
    through: KValue | None = None
    dc: KValue | None = None
    beside: KValue | None = None

    def flat(self) -> list[KValue]:
        """Everything that is there, in order."""
        others = (v for v in (self.through, self.dc, self.beside) if v is not None)
        return [*self.gates.values(), *self.multiplied.values(), *others]

    def like(self, values: Sequence[KValue]) -> Pulled:
        """The same of other values."""
        rest = iter(values)
        gates, multiplied = ({j: next(rest) for j in own} for own in (self.gates, self.multiplied))
        others = (None if v is None else next(rest) for v in (self.through, self.dc, self.beside))
        return Pulled(gates, multiplied, *others)


def pull_back(k: Builder, op: RecurrentGradient, functions: tuple[Activation, ...], s: StepBack) -> Pulled:
    """The element-wise work of a step: before its first product or, of a StepBack with one, behind that."""
    if isinstance(op, LSTMGradient):
        return _lstm(k, op, functions, s)
    if isinstance(op, GRUGradient):
        return _gru(k, op, functions, s) if s.product is None else _gru_reset(k, op, functions[0], s, s.product)
    _, slope = activated(k, functions[0], s.sums[0], op.clip)
    return Pulled({0: s.dh * slope})


def _gru(k: Builder, op: GRUGradient, functions: tuple[Activation, ...], s: StepBack) -> Pulled:
    """All gates where the reset gate is behind the product (linear_before_reset), else all but that."""
    f, g = functions
    z, z_slope = activated(k, f, s.sums[0], op.clip)
    r, r_slope = activated(k, f, s.sums[1], op.clip)
    hidden = s.sums[2]
    n, n_slope = activated(k, g, k.fma(r, hidden, s.sums[3]) if op.linear_before_reset else hidden, op.clip)
    dz, dn, through = s.dh * (s.h - n) * z_slope, s.dh * (1.0 - z) * n_slope, s.dh * z
    if not op.linear_before_reset:
        return Pulled({0: dz, 2: dn}, {}, through)
    return Pulled({0: dz, 1: dn * hidden * r_slope, 2: dn}, {2: dn * r}, through, None, dn * r)


def _gru_reset(k: Builder, op: GRUGradient, f: Activation, s: StepBack, product: KValue) -> Pulled:
    """The reset gate, from the gradient of r h."""
    r, slope = activated(k, f, s.sums[1], op.clip)
    return Pulled({1: product * s.h * slope}, {}, k.fma(product, r, s.dh), None, r * s.h)


def _lstm(k: Builder, op: LSTMGradient, functions: tuple[Activation, ...], s: StepBack) -> Pulled:
    f, g, h = functions
    i, o, forget, cell = s.sums
    assert s.c is not None and s.c_behind is not None and s.dc is not None
    if s.peephole is not None:
        i, o = k.fma(s.peephole(0), s.c, i), k.fma(s.peephole(1), s.c_behind, o)
        forget = k.fma(s.peephole(2), s.c, forget)
    i, i_slope = activated(k, f, i, op.clip)
    o, o_slope = activated(k, f, o, op.clip)
    cell, cell_slope = activated(k, g, cell, op.clip)
    out, out_slope = activated(k, h, s.c_behind, None)
    d_o = s.dh * out * o_slope
    dc = k.fma(s.dh * o, out_slope, s.dc)
    if s.peephole is not None:
        dc = k.fma(d_o, s.peephole(1), dc)
    if op.input_forget:
        forget = 1.0 - i
        d_i, d_forget = dc * (cell - s.c) * i_slope, k.splat(k.const(0.0, dc), dc.lanes)
    else:
        forget, forget_slope = activated(k, f, forget, op.clip)
        d_i, d_forget = dc * cell * i_slope, dc * s.c * forget_slope
    before = dc * forget
    if s.peephole is not None:
        before = k.fma(d_forget, s.peephole(2), k.fma(d_i, s.peephole(0), before))
    return Pulled({0: d_i, 1: d_o, 2: d_forget, 3: dc * i * cell_slope}, {}, None, before, s.c)
