"""RNN, GRU and LSTM: one product for the inputs of many steps, then step by step the recurrent product and the gates.

A work item is a direction and a few batch rows; neighbouring items of one core run together, so that it reads the
weights once for all of them. The gates of one vector of hidden units are neighbouring columns
of the packed weights, so that the register tile gives all of them at once and the state never leaves the cache.

    for chunk of steps:
        sums[step, row, :] = bias + x[step, row] · W                     # one product
        for step:  for block of units:
            gates[row] = sums[step, row, block] + h[row] · R[:, block]   # register tile
            h', c', y = finish(gates)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Node
from ...ir.kernel_builder import F32PTR, I64PTR, Builder, KValue
from ...ir.loops import KFunc, PtrType
from ...ir.ops.recurrent import LSTM, Recurrent, RecurrentShape
from ...ir.types import F32, I64, Dim, TensorType, ceil_div
from ..fusion import Fusion, load, store
from ..lowering import KernelCall, LowerContext, Operand, Scratch, lowers, unsupported
from .cells import Cell, Phase, Step, cell_of, finish
from .nest import strided_index
from .recurrent_weights import ProductTile, packed_weights, prepare_weights, tile_rows
from .reduce import root_context

NAMES = ("x", "w", "r", "b", "lens", "h0", "c0", "p")
OUTPUTS = ("y", "y_h", "y_c")
CHUNK_ROWS = 128  # rows of the input product that are computed at a time
ITEM_ROWS = 4  # batch rows of a work item: few, so that cores can share a small batch


@dataclass(frozen=True)
class RecurrentPlan:
    """Sizes and operands of one recurrent operator.

    Attributes:
        types: of the operands and outputs by name, those that are given or used. rows: batch rows that run together.
        steps: time steps whose inputs are multiplied at once. packed: whether the weights were packed when compiling.
        copied: x must be brought into rows of f32 first.
    """

    op: Recurrent
    cell: Cell
    shape: RecurrentShape
    types: dict[str, TensorType]
    lanes: int
    rows: int
    steps: int
    packed: bool
    copied: bool

    @property
    def items(self) -> Dim:
        """Work items of a direction."""
        return ceil_div(self.shape.batch, ITEM_ROWS)

    @property
    def blocks(self) -> int:
        """Vectors of hidden units."""
        return ceil_div(self.shape.hidden, self.lanes)

    @property
    def padded(self) -> int:
        """Hidden units in whole vectors."""
        return self.blocks * self.lanes

    @property
    def pitch(self) -> int:
        """f32 elements of the sums of one row."""
        return self.padded * self.cell.slots

    def axes(self, name: str) -> tuple[Dim, ...]:
        """Strides of an operand as (step, direction, batch, unit); 0 for an axis that it has not."""
        s = self.types[name].strides
        batch_first = self.op.layout == 1
        if name == "x":
            return (s[1], 0, s[0], s[2]) if batch_first else (s[0], 0, s[1], s[2])
        if name == "y":
            return (s[1], s[2], s[0], s[3]) if batch_first else (s[0], s[1], s[2], s[3])
        return (0, s[1], s[0], s[2]) if batch_first else (0, s[0], s[1], s[2])


@lowers(Recurrent)
def lower_recurrent(ctx: LowerContext, node: Node) -> KernelCall:
    """The whole sequence in one kernel."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, Recurrent)
    if fusion.tail:
        raise unsupported(node, "nothing can be fused behind a recurrent operator")
    shape = op.shape(root_context(fusion))
    given = {n: v for n, v in zip(NAMES, fusion.root_inputs) if v is not None}
    used = {n: v for n, v in zip(OUTPUTS, node.outputs)}
    types = {n: v.tensor for n, v in (*given.items(), *used.items())}
    cell, lanes = cell_of(op), ctx.lanes
    widest = max(len(p.gates) for p in cell.phases)
    most = tile_rows(ctx.target, widest)
    rows = max(1, 2 * most // ITEM_ROWS) * ITEM_ROWS
    if isinstance(shape.batch, int):
        rows = min(rows, max(1, ceil_div(shape.batch, ITEM_ROWS)) * ITEM_ROWS)
    x = types["x"]
    arrays = {n: packed_weights(n, given[n], cell, shape.hidden, lanes) for n in ("w", "r")}
    weights = {n: a for n, a in arrays.items() if a is not None}
    packed = len(weights) == 2
    plan = RecurrentPlan(op, cell, shape, types, lanes, rows, max(1, CHUNK_ROWS // rows), packed,
                         x.dtype != F32 or x.strides[-1] != 1)

    operands: list[tuple[str, PtrType, Operand]] = []
    for name, v in given.items():
        if packed and name in weights:
            operands.append((name, F32PTR, ctx.weights.add(weights[name])))
        else:
            operands.append((name, PtrType(v.tensor.dtype), v))
    operands += [(n, PtrType(v.tensor.dtype), v) for n, v in used.items()]
    operands += scratch_operands(plan)
    site = ctx.error_site(fusion.root, "sequence_lens out of range") if "lens" in given else 0

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands])
        tiles = ProductTile(k, ctx)
        emitter = RecurrentEmitter(k, plan, tiles, site)
        k.for_(0, shape.directions, 1, [], lambda direction, _: emitter.direction_items(direction))
        return k.func

    func = ctx.function("recurrent", node, build, packed, site)
    work = shape.directions * plan.items
    flops = 2 * shape.directions * shape.batch * shape.steps * op.n_gates * shape.hidden * (shape.inputs + shape.hidden)
    return KernelCall(func, tuple(o for _, _, o in operands), work, node.name, flops=flops)


def scratch_operands(plan: RecurrentPlan) -> list[tuple[str, PtrType, Operand]]:
    """Working memory of one item."""
    s, rows, chunk = plan.shape, plan.rows, plan.rows * plan.steps
    floats: dict[str, Dim] = {
        "bias": plan.pitch,
        "sums": chunk * plan.pitch,
        "gates": rows * max(len(p.gates) for p in plan.cell.phases) * plan.lanes,
        "state": rows * plan.padded * 2,
        "scaled": rows * plan.padded,
        "cells": rows * plan.padded,
    }
    if plan.copied:
        floats["copy"] = chunk * s.inputs
    if not plan.packed:
        floats["w_packed"] = s.inputs * plan.padded * len(plan.cell.inputs)
        floats["r_packed"] = s.hidden * plan.padded * plan.op.n_gates
    tables: dict[str, Dim] = {"x_table": chunk, "h_table": rows, "lengths": rows}
    return [*((n, F32PTR, Scratch(d * 4)) for n, d in floats.items()),
            *((n, I64PTR, Scratch(d * 8)) for n, d in tables.items())]


class RecurrentEmitter:
    """Writes the work items."""

    def __init__(self, k: Builder, plan: RecurrentPlan, tiles: ProductTile, site: int) -> None:
        self.k, self.p, self.tiles, self.site = k, plan, tiles, site
        self.steps, self.lanes = k.index(plan.shape.steps), plan.lanes

    def direction_items(self, direction: KValue) -> None:
        """The work items of [begin, end) that belong to a direction, as many at a time as fit the scratch."""
        k, p = self.k, self.p
        items, together = k.index(p.items), max(1, p.rows // ITEM_ROWS)
        first = k.max(k["begin"] - direction * items, 0)
        last = k.min(k["end"] - direction * items, items)

        def group(item: KValue, _: list[KValue]) -> None:
            row = item * ITEM_ROWS
            end = k.min(k.min(item + together, last) * ITEM_ROWS, k.index(p.shape.batch))
            self._rows_together(direction, row, end - row)

        k.for_(first, last, together, [], group)

    def _rows_together(self, direction: KValue, row0: KValue, count: KValue) -> None:
        """All steps of `count` batch rows."""
        k, p = self.k, self.p
        self.direction, self.row0, self.count = direction, row0, count
        self.reverse = {"forward": k.index(0), "reverse": k.index(1)}.get(p.op.direction, self.direction)
        self.w, self.r = prepare_weights(k, p, self.direction)
        self._start()

        def chunk(first: KValue, _: list[KValue]) -> None:
            n = k.min(self.steps - first, p.steps)
            self._inputs(first, n)
            k.for_(0, n, 1, [], lambda s, _: self._step(first + s, s))

        k.for_(0, self.steps, p.steps, [], chunk)
        self._end()

    # -- before and after the steps ------------------------------------------------------------------------
    def _rows(self, body) -> None:  # type: ignore[no-untyped-def]
        self.k.for_(0, self.count, 1, [], lambda row, _: body(row))

    def _units(self, body) -> None:  # type: ignore[no-untyped-def]
        """body(first unit, mask of existing units) for each vector of hidden units."""
        k = self.k
        hidden = k.index(self.p.shape.hidden)
        k.for_(0, self.p.padded, self.lanes, [], lambda u, _: body(u, k.tail_mask(hidden - u, self.lanes)))

    def _read(self, name: str, row: KValue, unit: KValue, mask: KValue) -> KValue:
        """A vector of an operand that has (direction, batch, unit)."""
        k = self.k
        _, d, b, u = self.p.axes(name)
        at = self.direction * k.index(d) + (self.row0 + row) * k.index(b) + unit * k.index(u)
        if u == 1:
            return load(k, k[name], at, self.lanes, mask)
        return k.cast(k.gather(k[name], strided_index(k, at, u, self.lanes), mask), F32)

    def _write(self, name: str, step: KValue, row: KValue, unit: KValue, value: KValue, mask: KValue) -> None:
        k = self.k
        t, d, b, u = self.p.axes(name)
        at = step * k.index(t) + self.direction * k.index(d) + (self.row0 + row) * k.index(b) + unit * k.index(u)
        if u == 1:
            store(k, k[name], at, value, mask)
        else:
            k.scatter(k[name], strided_index(k, at, u, self.lanes), k.cast(value, k[name].dtype), mask)

    def _start(self) -> None:
        """States, lengths and the table of the state's rows."""
        k, p = self.k, self.p
        zero = k.splat(k.const(0.0, F32), self.lanes)

        def row(i: KValue) -> None:
            k.store(k["h_table"], i, i * p.padded)
            length = self.steps
            if "lens" in p.types:
                given = k.cast(k.load(k["lens"], self.row0 + i), I64)
                k.if_((given < 0) | (given > self.steps), lambda: k.fail(self.site))
                length = k.clip(given, 0, self.steps)
            k.store(k["lengths"], i, length)

            def unit(u: KValue, mask: KValue) -> None:
                at = i * p.padded + u
                k.store(k["state"], at, self._read("h0", i, u, mask) if "h0" in p.types else zero)
                k.store(k["cells"], at, self._read("c0", i, u, mask) if "c0" in p.types else zero)

            self._units(unit)

        self._rows(row)

    def _end(self) -> None:
        """The final states."""
        k, p = self.k, self.p
        last = self._state(self.steps)

        def row(i: KValue) -> None:
            def unit(u: KValue, mask: KValue) -> None:
                if "y_h" in p.types:
                    self._write("y_h", k.index(0), i, u, k.load(k["state"], last + i * p.padded + u, self.lanes), mask)
                if "y_c" in p.types:
                    self._write("y_c", k.index(0), i, u, k.load(k["cells"], i * p.padded + u, self.lanes), mask)

            self._units(unit)

        self._rows(row)

    def _state(self, step: KValue) -> KValue:
        """Where the state before `step` begins: two buffers take turns."""
        return (step & 1) * (self.p.rows * self.p.padded)

    def _time(self, step: KValue, length: KValue) -> KValue:
        """The time that is the `step`-th of a sequence; beyond its end, the step itself."""
        k = self.k
        backwards = (self.reverse != 0) & (step < length)
        return k.select(backwards, length - 1 - step, step)

    # -- the inputs of a chunk of steps ---------------------------------------------------------------------
    def _inputs(self, first: KValue, n: KValue) -> None:
        k, p = self.k, self.p
        t, _, b, unit = p.axes("x")
        inputs = k.index(p.shape.inputs)

        def row(s: KValue, i: KValue) -> None:
            number = s * self.count + i
            time = self._time(first + s, k.load(k["lengths"], i))
            at = time * k.index(t) + (self.row0 + i) * k.index(b)
            k.store(k["x_table"], number, number * inputs if p.copied else at)
            if p.copied:
                self._copy(at, number * inputs, unit)
            if p.cell.lone_slot is not None:
                self._lone_bias(number)

        k.for_(0, n, 1, [], lambda s, _: self._rows(lambda i: row(s, i)))
        source = k["copy"] if p.copied else k["x"]
        width = len(p.cell.inputs) * self.lanes

        def block(u: KValue, _: list[KValue]) -> None:
            column = u * (p.cell.slots * self.lanes) + p.cell.input_first * self.lanes
            bias, out = k.gep(k["bias"], column), k.gep(k["sums"], column)
            self.tiles.product(len(p.cell.inputs), n * self.count, source, k["x_table"],
                               k.gep(self.w, u * inputs * width), inputs, bias, 0, out, p.pitch)

        k.for_(0, p.blocks, 1, [], block)

    def _copy(self, source: KValue, target: KValue, step: Dim) -> None:
        k, lanes = self.k, self.lanes
        size = k.index(self.p.shape.inputs)

        def vector(i: KValue, _: list[KValue]) -> None:
            mask = k.tail_mask(size - i, lanes)
            at = source + i * k.index(step)
            value = k.load(k["x"], at, lanes, mask) if step == 1 else \
                k.gather(k["x"], strided_index(k, at, step, lanes), mask)
            k.store(k["copy"], target + i, k.cast(value, F32), mask)

        k.for_(0, size, lanes, [], vector)

    def _lone_bias(self, number: KValue) -> None:
        """Start of a slot that no input adds to."""
        k, p = self.k, self.p

        def block(u: KValue, _: list[KValue]) -> None:
            at = (u * p.cell.slots + p.cell.lone_slot) * self.lanes
            k.store(k["sums"], number * p.pitch + at, k.load(k["bias"], at, self.lanes))

        k.for_(0, p.blocks, 1, [], block)

    # -- one step -------------------------------------------------------------------------------------------
    def _step(self, step: KValue, in_chunk: KValue) -> None:
        k, p = self.k, self.p
        sums = k.gep(k["sums"], in_chunk * self.count * p.pitch)
        before = 0
        for number, phase in enumerate(p.cell.phases):
            self._phase(number, phase, before, step, sums)
            before += len(phase.gates)

    def _phase(self, number: int, phase: Phase, before: int, step: KValue, sums: KValue) -> None:
        k, p, n = self.k, self.p, len(phase.gates)
        hidden, width = p.shape.hidden, n * self.lanes
        state = self._state(step)
        source = k["scaled"] if phase.scaled else k.gep(k["state"], state)
        weights = k.gep(self.r, before * p.padded * hidden)

        def block(u: KValue, _: list[KValue]) -> None:
            slots = u * (p.cell.slots * self.lanes)
            start = k.gep(sums, slots + phase.first * self.lanes)
            self.tiles.product(n, self.count, source, k["h_table"], k.gep(weights, u * (hidden * width)),
                               k.index(hidden), start, p.pitch, k["gates"], width)
            unit = u * self.lanes
            mask = k.tail_mask(k.index(hidden) - unit, self.lanes)
            self._rows(lambda i: self._unit(number, n, step, i, unit, mask, k.gep(sums, i * p.pitch + slots)))

        k.for_(0, p.blocks, 1, [], block)

    def _unit(self, number: int, n: int, step: KValue, row: KValue, unit: KValue, mask: KValue, slots: KValue) -> None:
        """The gates of one vector of hidden units."""
        k, p, lanes = self.k, self.p, self.lanes
        at = row * p.padded + unit
        h = k.load(k["state"], self._state(step) + at, lanes)
        c = k.load(k["cells"], at, lanes) if isinstance(p.op, LSTM) else None

        def keep(slot: int, value: KValue) -> None:
            ptr, index = (k["scaled"], at) if slot < 0 else (slots, k.index(slot * lanes))
            k.store(ptr, index, value)

        def peephole(i: int) -> KValue:
            column = (self.direction * 3 + i) * p.shape.hidden + unit
            return load(k, k["p"], column, lanes, mask)

        gates = [k.load(k["gates"], (row * n + j) * lanes, lanes) for j in range(n)]
        values = Step(gates, lambda slot: k.load(slots, slot * lanes, lanes), h, c,
                      peephole if "p" in p.types else None, keep)

        def by(functions) -> list[KValue]:  # type: ignore[no-untyped-def]
            return finish(k, p.op, functions, number, values) or []

        functions = p.op.functions()
        if len(functions) == 2 and functions[0] != functions[1]:
            new = k.if_(self.direction == 0, lambda: by(functions[0]), lambda: by(functions[1]))
        else:
            new = by(functions[0])
        if new:
            self._advance(step, row, unit, mask, [h] if c is None else [h, c], new)

    def _advance(self, step: KValue, row: KValue, unit: KValue, mask: KValue, old: list[KValue], new: list[KValue],
                 ) -> None:
        """Store the new state, or the old one where the sequence has ended."""
        k, p = self.k, self.p
        at = row * p.padded + unit
        length, out = k.load(k["lengths"], row), new[0]
        if "lens" in p.types:
            alive = step < length
            new = [k.select(alive, a, b) for a, b in zip(new, old)]
            out = k.select(alive, out, k.splat(k.const(0.0, F32), self.lanes))
        k.store(k["state"], self._state(step + 1) + at, new[0])
        if len(new) > 1:
            k.store(k["cells"], at, new[1])
        if "y" in p.types:
            self._write("y", self._time(step, length), row, unit, out, mask)
