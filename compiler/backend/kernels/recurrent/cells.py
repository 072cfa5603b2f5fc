"""What RNN, GRU and LSTM compute from the sums of their gates, and how those sums lie in memory.

Owns the order of the gates in packed weights and the element-wise half of a time step. It must not know loops.

The sums of one vector of hidden units lie side by side, one vector per gate ("slots"). A step is one or more phases:
a product of the state (or, for GRU, of reset * state) with some gates' weights, then `finish`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.ops.recurrent import GRU, LSTM, RNN, Activation, Recurrent
from ....kernel_ir.builder import Builder, KValue

Vectors = list[KValue]


@dataclass(frozen=True)
class Phase:
    """One product of a step.

    Attributes:
        gates: ONNX numbers of the gates whose recurrent weights are multiplied, in the order of the slots.
        first: slot that the product's result starts from. scaled: multiply reset * h instead of h.
    """

    gates: tuple[int, ...]
    first: int = 0
    scaled: bool = False


@dataclass(frozen=True)
class Cell:
    """Layout of one operator.

    Attributes:
        slots: vectors per vector of hidden units. inputs: ONNX numbers of the gates in slots input_first, ….
        both_biases: gates whose recurrent bias is added to the input's; the others' goes to `lone_slot` alone.
    """

    slots: int
    inputs: tuple[int, ...]
    input_first: int
    phases: tuple[Phase, ...]
    both_biases: tuple[bool, ...]
    lone_slot: int | None = None


def cell_of(op: Recurrent) -> Cell:
    """The layout of an operator's gates."""
    if isinstance(op, LSTM):
        gates = (0, 1, 2, 3)
        return Cell(4, gates, 0, (Phase(gates),), (True,) * 4)
    if isinstance(op, RNN):
        return Cell(1, (0,), 0, (Phase((0,)),), (True,))
    assert isinstance(op, GRU)
    if op.linear_before_reset:
        # h R + rb in slot 0, so that it can be multiplied by the reset gate; x W + wb in slot 3
        return Cell(4, (0, 1, 2), 1, (Phase((2, 0, 1)),), (True, True, False), 0)
    return Cell(3, (0, 1, 2), 0, (Phase((0, 1)), Phase((2,), 2, True)), (True,) * 3)


@dataclass
class Step:
    """One vector of hidden units of one row at one time step.

    Attributes:
        sums: the phase's results. stored: reads a slot that this phase did not compute.
        h, c: the state before (c: LSTM only). peephole: reads P of gate number i (i, o, f), None without.
        keep, kept: put by for a later phase, by slot number, and get back.
    """

    sums: Vectors
    stored: Callable[[int], KValue]
    h: KValue
    c: KValue | None
    peephole: Callable[[int], KValue] | None
    keep: Callable[[int, KValue], None]


def finish(k: Builder, op: Recurrent, functions: tuple[Activation, ...], phase: int, s: Step) -> Vectors | None:
    """The new state [h] or [h, c]; None after a phase that only prepares another."""
    if isinstance(op, LSTM):
        return _lstm(k, op, functions, s)
    f = functions[0]
    if isinstance(op, RNN):
        return [f(k, op.clipped(k, s.sums[0]))]
    assert isinstance(op, GRU)
    g = functions[1]
    if op.linear_before_reset:
        hidden, z, r = s.sums
        z, r = f(k, op.clipped(k, z)), f(k, op.clipped(k, r))
        n = g(k, op.clipped(k, k.fma(r, hidden, s.stored(3))))
    elif phase == 0:
        z, r = (f(k, op.clipped(k, v)) for v in s.sums)
        s.keep(0, z)
        s.keep(-1, r * s.h)
        return None
    else:
        z, n = s.stored(0), g(k, op.clipped(k, s.sums[0]))
    return [k.fma(z, s.h, (1 - z) * n)]  # not n + z·(h - n), in which a large n swallows h


def _lstm(k: Builder, op: LSTM, functions: tuple[Activation, ...], s: Step) -> Vectors:
    f, g, h = functions
    i, o, forget, cell = s.sums
    assert s.c is not None
    if s.peephole is not None:
        i = k.fma(s.peephole(0), s.c, i)
        forget = k.fma(s.peephole(2), s.c, forget)
    i = f(k, op.clipped(k, i))
    forget = 1.0 - i if op.input_forget else f(k, op.clipped(k, forget))
    c = k.fma(forget, s.c, i * g(k, op.clipped(k, cell)))
    if s.peephole is not None:
        o = k.fma(s.peephole(1), c, o)
    return [f(k, op.clipped(k, o)) * h(k, c), c]
