"""How a recurrent operator is cut into work items, rows and chunks of steps, and the memory that takes.

Owns sizes and strides. It must not know the code that runs in them.

Either the cores share the hidden units of all rows (an item is a block of units of a direction, and the cores meet at
every step: each streams its part of the weights only), or each has batch rows of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.ops.recurrent import Recurrent, RecurrentShape
from ....ir.types import Dim, TensorType, ceil_div
from ....kernel_ir.builder import F32PTR, I64PTR
from ....kernel_ir.loops import PtrType
from ...lowering import BarrierSlot, Operand, Scratch, SharedScratch
from .cells import Cell
from .tile import MOST_ROWS

CHUNK_ROWS = 96  # rows of the input product that are computed at a time; chosen, not measured
ITEM_ROWS = 4  # batch rows of an item, where the cores do not share them: few, so that several can share a batch
FEWEST_SHARED = 4  # blocks of units, over the directions, that are worth sharing
KEPT = ("kept_gates", "kept_cells", "dgates", "before", "beside")  # [direction, step, row, unit]
SET_FLOATS = 512  # rows that many f32 apart would crowd a few sets of the first cache


@dataclass(frozen=True)
class Cut:
    """Which part of a recurrent operator is whose.

    Attributes:
        types: of the operands and outputs by name, those that are given or used. lanes: of a vector. vectors: of hidden
            units in a block. rows: batch rows that run together. shared: the cores share the hidden units of all rows.
    """

    op: Recurrent
    shape: RecurrentShape
    types: dict[str, TensorType]
    lanes: int
    vectors: int
    rows: int
    shared: bool

    @property
    def work(self) -> Dim:
        """Work items."""
        return self.shape.directions * self.blocks if self.shared else ceil_div(self.shape.batch, ITEM_ROWS)

    @property
    def block(self) -> int:
        """Hidden units of a block."""
        return self.vectors * self.lanes

    @property
    def blocks(self) -> int:
        """Blocks of hidden units."""
        return ceil_div(self.shape.hidden, self.block)

    @property
    def padded(self) -> int:
        """Hidden units in whole blocks."""
        return self.blocks * self.block

    @property
    def pitch(self) -> int:
        """f32 elements from one row of the state to the next."""
        return self.padded + (self.lanes if self.padded % SET_FLOATS == 0 else 0)

    @property
    def state_floats(self) -> int:
        """f32 elements of one state of all rows."""
        return self.shape.directions * self.rows * self.pitch

    def axes(self, name: str) -> tuple[Dim, ...]:
        """Strides of an operand as (step, direction, batch, unit); 0 for an axis that it has not."""
        s = self.types[name].strides
        if name in KEPT:
            return (s[1], s[0], s[2], s[3])
        batch_first = self.op.layout == 1
        if name == "x":
            return (s[1], 0, s[0], s[2]) if batch_first else (s[0], 0, s[1], s[2])
        if name in ("y", "dy"):
            return (s[1], s[2], s[0], s[3]) if batch_first else (s[0], s[1], s[2], s[3])
        return (0, s[1], s[0], s[2]) if batch_first else (0, s[0], s[1], s[2])

    def divided(self, memory: dict[str, Dim]) -> list[tuple[str, PtrType, Operand]]:
        """Working memory of f32 elements that the cores share where they share the units."""
        return [(n, F32PTR, SharedScratch(d * 4) if self.shared else Scratch(d * 4)) for n, d in memory.items()]

    def meeting(self) -> list[tuple[str, PtrType, Operand]]:
        """The word where the cores meet."""
        return [("meeting", I64PTR, BarrierSlot())] if self.shared else []


@dataclass(frozen=True)
class RecurrentPlan(Cut):
    """Sizes and operands of one recurrent operator.

    Attributes:
        steps: time steps whose inputs are multiplied at once. packed: whether the weights were packed when compiling.
        copied: x must be brought into rows of f32 first.
    """

    cell: Cell
    steps: int
    packed: bool
    copied: bool

    @property
    def slot_floats(self) -> int:
        """f32 elements of the sums of one row and block."""
        return self.cell.slots * self.lanes

    def weight_floats(self, name: str) -> Dim:
        """f32 elements of the packed W or R of one direction."""
        if name == "w":
            return self.shape.inputs * (self.padded * len(self.cell.inputs))
        return self.shape.hidden * self.padded * self.op.n_gates

    def memory(self) -> list[tuple[str, PtrType, Operand]]:
        """Working memory, and the word where the cores meet."""
        p, rows, chunk = self, self.rows, self.rows * self.steps
        directions = p.shape.directions
        own: dict[str, Dim] = {
            "bias": directions * p.blocks * p.slot_floats,
            "sums": directions * p.blocks * chunk * p.slot_floats,
            "gates": rows * max(len(phase.gates) for phase in p.cell.phases) * p.lanes,
            "cells": p.state_floats,
        }
        if p.copied:
            own["copy"] = chunk * p.shape.inputs
        if not p.packed:
            own |= {f"{name}_packed": directions * p.weight_floats(name) for name in ("w", "r")}
        common: dict[str, Dim] = {"state": 2 * p.state_floats}
        if any(phase.scaled for phase in p.cell.phases):
            common["scaled"] = p.state_floats
        found: list[tuple[str, PtrType, Operand]] = [(n, F32PTR, Scratch(d * 4)) for n, d in own.items()]
        found += p.divided(common)
        found += [(n, I64PTR, Scratch(d * 8)) for n, d in (("x_table", chunk), ("lengths", rows))]
        return found + p.meeting()


@dataclass(frozen=True)
class GradientPlan(Cut):
    """Sizes and operands of one way back."""

    @property
    def row_floats(self) -> int:
        """f32 elements of the gates' gradients of one row at one step."""
        return self.op.n_gates * self.pitch

    @property
    def state_floats_of_gates(self) -> int:
        """f32 elements of the gates' gradients of all rows at one step."""
        return self.shape.directions * self.rows * self.row_floats

    @property
    def weight_floats(self) -> int:
        """f32 elements of the packed R of one direction."""
        return self.op.n_gates * self.shape.hidden * self.padded

    def memory(self) -> list[tuple[str, PtrType, Operand]]:
        """Working memory, and the word where the cores meet."""
        own: dict[str, Dim] = {
            "packed": self.shape.directions * self.weight_floats, "dh": self.state_floats,
            "product": 2 * self.rows * self.block,
        }  # fmt: skip
        if self.op.n_states == 2:
            own["dc"] = self.state_floats
        found: list[tuple[str, PtrType, Operand]] = [(n, F32PTR, Scratch(d * 4)) for n, d in own.items()]
        found += self.divided({"state": 2 * self.state_floats_of_gates})
        return [*found, ("lengths", I64PTR, Scratch(self.rows * 8)), *self.meeting()]


def cut(shape: RecurrentShape, block: int) -> tuple[int, int, bool]:
    """(rows that run together, steps of a chunk, whether the cores share the hidden units, which come in blocks)."""
    batch, steps = shape.batch, shape.steps
    blocks = shape.directions * ceil_div(shape.hidden, block)
    shared = blocks >= FEWEST_SHARED or (blocks > 1 and isinstance(batch, int) and batch <= ITEM_ROWS)
    rows = MOST_ROWS
    if isinstance(batch, int):
        rows = ceil_div(batch, ceil_div(batch, MOST_ROWS)) if batch else 1
    if not shared:
        rows = ceil_div(rows, ITEM_ROWS) * ITEM_ROWS
    together = max(1, CHUNK_ROWS // rows)
    if isinstance(steps, int) and steps:
        together = ceil_div(steps, ceil_div(steps, together))
    return rows, together, shared
