"""Weights of recurrent operators in the order in which the register tiles read them.

Owns packing: when compiling, or in the kernel if the weights are computed; and the biases' sums. It must not know what
the gates mean.

Packed: [direction][group of gates][block of units][part of the gates][k][gate][lane], zeros beyond the last unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....ir import bands
from ....ir.graph import Value
from ....ir.types import F32, Dim, ceil_div
from ....kernel_ir.builder import Builder, KValue
from ...fusion import widen
from ...lowering import LowerContext, Weight
from ..nest import strided_index
from ..plain import strided_load
from .cells import Cell
from .tile import part_vectors

if TYPE_CHECKING:
    from .plan import Cut, RecurrentPlan


def gate_groups(name: str, cell: Cell) -> list[tuple[int, ...]]:
    """Which gates' weights lie in one block: all for the inputs ("w"), those of a phase for the state ("r")."""
    return [cell.inputs] if name == "w" else [p.gates for p in cell.phases]


def gate_parts(group: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The gates of each panel of a block."""
    size = part_vectors(len(group))
    return [group[i : i + size] for i in range(0, len(group), size)]


def packed_weights(ctx: LowerContext, name: str, v: Value, cell: Cell, hidden: int) -> Weight:
    """W or R, a constant, packed."""
    assert v.data is not None
    directions, _, depth = v.data.shape
    gates = v.data.reshape(directions, -1, hidden, depth)
    groups = gate_groups(name, cell)
    blocks, lanes = ceil_div(hidden, ctx.lanes), ctx.lanes

    def fill(place: np.ndarray) -> None:
        at = 0
        for group in groups:
            size = blocks * depth * len(group) * lanes
            panels, first = place[:, at : at + size].reshape(directions, blocks, -1), 0
            for part in gate_parts(group):
                end = first + depth * len(part) * lanes
                own = panels[:, :, first:end].reshape(directions, blocks, depth, len(part), lanes)
                for j, gate in enumerate(part):
                    _fill(own[:, :, :, j], gates[:, gate])
                first = end
            at += size

    n_gates = sum(map(len, groups))
    return ctx.weights.make((directions, blocks * depth * n_gates * lanes), np.float32, fill)


def _fill(target: np.ndarray, gate: np.ndarray) -> None:
    """[direction, block, k, lane] from [direction, unit, k]."""
    directions, hidden, depth = gate.shape
    lanes = target.shape[3]
    whole = hidden // lanes
    units = gate[:, : whole * lanes].reshape(directions, whole, lanes, depth)
    bands.copy(target[:, :whole], units.transpose(0, 1, 3, 2))
    if whole < target.shape[1]:
        bands.copy(target[:, whole, :, : hidden - whole * lanes], gate[:, whole * lanes :].transpose(0, 2, 1))


def pack_blocks(k: Builder, p: RecurrentPlan, direction: KValue, first: KValue, last: KValue) -> None:
    """The packing of `packed_weights` at run time, for the blocks [first, last) of a direction."""
    for name, depth in (("w", p.shape.inputs), ("r", p.shape.hidden)):
        _pack(k, p, name, depth, direction, first, last)


def _pack(k: Builder, p: RecurrentPlan, name: str, depth: Dim, direction: KValue, first: KValue, last: KValue) -> None:
    lanes, hidden = p.lanes, p.shape.hidden
    target = k.gep(k[f"{name}_packed"], direction * k.index(p.weight_floats(name)))
    by_direction, by_row, by_column = p.types[name].strides
    before: Dim = 0
    for group in gate_groups(name, p.cell):
        def block(u: KValue, _: list[KValue], group: tuple[int, ...] = group, before: Dim = before) -> None:
            mask = k.tail_mask(k.index(hidden) - u * lanes, lanes)
            panel = k.index(before) + u * k.index(depth * (len(group) * lanes))
            for part in gate_parts(group):
                def one(kk: KValue, _: list[KValue], part: tuple[int, ...] = part, panel: KValue = panel) -> None:
                    for j, gate in enumerate(part):
                        source = (direction * k.index(by_direction) + (u * lanes + gate * hidden) * k.index(by_row)
                                  + kk * k.index(by_column))
                        value = k.gather(k[name], strided_index(k, source, by_row, lanes), mask)
                        k.store(target, panel + (kk * len(part) + j) * lanes, k.cast(value, F32))

                k.for_(0, k.index(depth), 1, [], one)
                panel = panel + k.index(depth * (len(part) * lanes))

        k.for_(first, last, 1, [], block)
        before = before + depth * (p.padded * len(group))


def read_row(k: Builder, p: Cut, name: str, direction: KValue, column: KValue, mask: KValue) -> KValue:
    """A vector of B or P, [direction, column] in any order, from a column on."""
    by_direction, by_column = p.types[name].strides
    at = direction * k.index(by_direction) + column * k.index(by_column)
    return widen(k, strided_load(k, k[name], at, by_column, p.lanes, mask))


def fill_bias(k: Builder, p: RecurrentPlan, direction: KValue, first: KValue, last: KValue) -> None:
    """What the sums of the blocks [first, last) start from, in slot order."""
    lanes, hidden, cell, n = p.lanes, p.shape.hidden, p.cell, p.op.n_gates

    def block(u: KValue, _: list[KValue]) -> None:
        mask = k.tail_mask(k.index(hidden) - u * lanes, lanes)
        target = k.gep(k["bias"], (direction * p.blocks + u) * p.slot_floats)

        def bias(number: int) -> KValue:
            if "b" not in p.types:
                return k.splat(k.const(0.0, F32), lanes)
            return read_row(k, p, "b", direction, number * hidden + u * lanes, mask)

        for j, gate in enumerate(cell.inputs):
            value = bias(gate) + bias(n + gate) if cell.both_biases[j] else bias(gate)
            k.store(target, (cell.input_first + j) * lanes, value)
        if cell.lone_slot is not None:
            lone = cell.phases[0].gates[0]
            k.store(target, cell.lone_slot * lanes, bias(n + lone))

    k.for_(first, last, 1, [], block)
