"""The code of a recurrent operator: from the initial state over all steps to the final one.

Owns the loops over rows, steps, directions and blocks of units, and the addresses in them. Sizes are
`recurrent_plan`'s, products `recurrent_tile`'s, gates `cells`'.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.ops.recurrent import LSTM
from ....ir.types import F32, Dim
from ....kernel_ir.builder import KValue
from ...fusion import widen
from ..plain import strided_load
from .cells import Phase, Step, finish
from .plan import RecurrentPlan
from .tile import SmallProduct
from .walk import Walk
from .weights import fill_bias, pack_blocks, read_row


class RecurrentEmitter(Walk[RecurrentPlan]):
    """Writes the work items [begin, end) of a kernel."""

    def _prepare(self, direction: KValue, first: KValue, last: KValue) -> None:
        fill_bias(self.k, self.p, direction, first, last)
        if not self.p.packed:
            pack_blocks(self.k, self.p, direction, first, last)

    def _rows_together(self) -> None:
        k, p = self.k, self.p
        self._directions(self._start)
        self._meet()

        def chunk(first: KValue, _: list[KValue]) -> None:
            n = k.min(self.steps - first, p.steps)
            self._directions(lambda d, low, high: self._inputs(first, n, d, low, high))
            k.for_(0, n, 1, [], lambda s, _: self._step(first + s, s))

        k.for_(0, self.steps, p.steps, [], chunk)
        self._directions(self._end)

    def _step(self, step: KValue, in_chunk: KValue) -> None:
        """Every other step goes through the blocks backwards: the second cache still has the last ones' weights."""
        before = 0
        for number, phase in enumerate(self.p.cell.phases):
            def blocks(d: KValue, low: KValue, high: KValue, number: int = number, phase: Phase = phase,
                       before: int = before) -> None:
                def block(u: KValue, _: list[KValue]) -> None:
                    turned = self.k.select((step & 1) == 0, u, low + high - 1 - u)
                    self._block(number, phase, before, step, in_chunk, d, turned)

                self.k.for_(low, high, 1, [], block)

            self._directions(blocks)
            self._meet()
            before += len(phase.gates)

    # -- addresses -----------------------------------------------------------------------------------------
    def _state(self, step: KValue, direction: KValue) -> KValue:
        """The state before `step`: two buffers take turns."""
        return self.k.gep(self.k["state"], (step & 1) * self.p.state_floats + self._cells(direction))

    def _sums(self, direction: KValue, u: KValue, row: KValue) -> KValue:
        """The sums of a block, from a row of the chunk on."""
        p = self.p
        return self.k.gep(self.k["sums"], ((direction * p.blocks + u) * (p.rows * p.steps) + row) * p.slot_floats)

    def _weights(self, name: str, direction: KValue, offset: KValue) -> KValue:
        k, p = self.k, self.p
        base = k[name if p.packed else f"{name}_packed"]
        return k.gep(base, direction * k.index(p.weight_floats(name)) + offset)

    # -- before and after the steps ------------------------------------------------------------------------
    def _start(self, direction: KValue, low: KValue, high: KValue) -> None:
        """The states before the first step."""
        k, p = self.k, self.p
        zero = k.splat(k.const(0.0, F32), self.lanes)
        state, cells = self._state(k.index(0), direction), k.gep(k["cells"], self._cells(direction))

        def row(i: KValue) -> None:
            def unit(u: KValue, mask: KValue) -> None:
                at = i * p.pitch + u
                k.store(state, at, self._read("h0", direction, i, u, mask) if "h0" in p.types else zero)
                k.store(cells, at, self._read("c0", direction, i, u, mask) if "c0" in p.types else zero)

            self._units(low, high, unit)

        self._rows(row)

    def _end(self, direction: KValue, low: KValue, high: KValue) -> None:
        """The final states."""
        k, p = self.k, self.p
        state, cells = self._state(self.steps, direction), k.gep(k["cells"], self._cells(direction))

        def row(i: KValue) -> None:
            def unit(u: KValue, mask: KValue) -> None:
                for name, source in (("y_h", state), ("y_c", cells)):
                    if name in p.types:
                        value = k.load(source, i * p.pitch + u, self.lanes)
                        self._write(name, k.index(0), direction, i, u, value, mask)

            self._units(low, high, unit)

        self._rows(row)

    # -- the inputs of a chunk of steps ---------------------------------------------------------------------
    def _inputs(self, first: KValue, n: KValue, direction: KValue, low: KValue, high: KValue) -> None:
        k, p = self.k, self.p
        t, _, b, unit = p.axes("x")
        inputs = k.index(p.shape.inputs)

        def row(s: KValue, i: KValue) -> None:
            number = s * self.count + i
            time = self._time(direction, first + s, self._length(i))
            at = time * k.index(t) + (self.row0 + i) * k.index(b)
            k.store(k["x_table"], number, number * inputs if p.copied else at)
            if p.copied:
                self._copy(at, number * inputs, unit)

        k.for_(0, n, 1, [], lambda s, _: self._rows(lambda i: row(s, i)))
        source = k["copy"] if p.copied else k["x"]
        gates, rows = len(p.cell.inputs), n * self.count
        width = gates * self.lanes

        def block(u: KValue, _: list[KValue]) -> None:
            bias = k.gep(k["bias"], (direction * p.blocks + u) * p.slot_floats)
            sums = self._sums(direction, u, k.index(0))
            if p.cell.lone_slot is not None:  # no input adds to it
                at = p.cell.lone_slot * self.lanes
                value = k.load(bias, at, self.lanes)
                k.for_(0, rows, 1, [], lambda i, _: k.store(sums, i * p.slot_floats + at, value))
            column = p.cell.input_first * self.lanes
            panels = self._weights("w", direction, u * k.index(p.shape.inputs * width))
            bias, sums = k.gep(bias, column), k.gep(sums, column)
            product = SmallProduct(
                gates, source, k["x_table"], panels, p.shape.inputs, None, bias, 0, sums, p.slot_floats
            )
            self.products.many(product, rows)

        k.for_(low, high, 1, [], block)

    def _copy(self, source: KValue, target: KValue, step: Dim) -> None:
        k, lanes = self.k, self.lanes
        size = k.index(self.p.shape.inputs)

        def vector(i: KValue, _: list[KValue]) -> None:
            mask = k.tail_mask(size - i, lanes)
            at = source + i * k.index(step)
            k.store(k["copy"], target + i, widen(k, strided_load(k, k["x"], at, step, lanes, mask)), mask)

        k.for_(0, size, lanes, [], vector)

    # -- one step -------------------------------------------------------------------------------------------
    def _block(self, number: int, phase: Phase, before: int, step: KValue, in_chunk: KValue, direction: KValue,
               u: KValue) -> None:  # fmt: skip
        """One phase of one vector of hidden units: the product for all rows, then the gates row by row."""
        k, p, n = self.k, self.p, len(phase.gates)
        hidden, width = p.shape.hidden, n * self.lanes
        source = k.gep(k["scaled"], self._cells(direction)) if phase.scaled else self._state(step, direction)
        panels = self._weights("r", direction, before * p.padded * hidden + u * (hidden * width))
        slots = self._sums(direction, u, in_chunk * self.count)
        start = k.gep(slots, phase.first * self.lanes)
        product = SmallProduct(n, source, None, panels, hidden, p.pitch, start, p.slot_floats, k["gates"], width)
        self.products.few(product, self.count, p.rows)
        unit = u * self.lanes
        mask = self._mask(unit)
        self._rows(lambda i: self._unit(number, n, step, direction, i, unit, mask, k.gep(slots, i * p.slot_floats)))

    def _unit(self, number: int, n: int, step: KValue, direction: KValue, row: KValue, unit: KValue, mask: KValue,
              slots: KValue) -> None:  # fmt: skip
        """The gates of one vector of hidden units of one row."""
        k, p, lanes = self.k, self.p, self.lanes
        at = row * p.pitch + unit
        h = k.load(self._state(step, direction), at, lanes)
        cells = k.gep(k["cells"], self._cells(direction))
        c = k.load(cells, at, lanes) if isinstance(p.op, LSTM) else None

        def keep(slot: int, value: KValue) -> None:
            if slot < 0:
                k.store(k["scaled"], self._cells(direction) + at, value)
            else:
                k.store(slots, slot * lanes, value)

        def peephole(i: int) -> KValue:
            return read_row(k, p, "p", direction, unit + i * p.shape.hidden, mask)

        gates = [k.load(k["gates"], (row * n + j) * lanes, lanes) for j in range(n)]
        values = Step(gates, lambda slot: k.load(slots, slot * lanes, lanes), h, c,
                      peephole if "p" in p.types else None, keep)

        if "kept_gates" in p.types:
            self._keep_gates(step, direction, row, unit, mask, p.cell.phases[number].gates, gates, values.stored)

        def by(functions) -> list[KValue]:  # type: ignore[no-untyped-def]
            return finish(k, p.op, functions, number, values) or []

        functions = p.op.functions()
        if len(functions) == 2 and functions[0] != functions[1]:
            new = k.if_(direction == 0, lambda: by(functions[0]), lambda: by(functions[1]))
        else:
            new = by(functions[0])
        if new:
            self._advance(step, direction, row, unit, mask, [h] if c is None else [h, c], new)

    def _keep_gates(self, step: KValue, direction: KValue, row: KValue, unit: KValue, mask: KValue,
                    numbers: tuple[int, ...], gates: list[KValue], stored: Callable[[int], KValue],
                    ) -> None:  # fmt: skip
        time = self._time(direction, step, self._length(row))
        lone = self.p.cell.lone_slot
        if lone is not None:  # the input's part of the gate whose other sum stands alone
            numbers, gates = (*numbers, len(numbers)), [*gates, stored(len(numbers))]
        for number, value in zip(numbers, gates, strict=True):
            self._write("kept_gates", time, direction, row, unit + number * self.p.shape.hidden, value, mask)

    def _advance(self, step: KValue, direction: KValue, row: KValue, unit: KValue, mask: KValue, old: list[KValue],
                 new: list[KValue]) -> None:  # fmt: skip
        """Store the new state, or the old one where the sequence has ended."""
        k, p = self.k, self.p
        at = row * p.pitch + unit
        length, out = self._length(row), new[0]
        if "lens" in p.types:
            alive = step < length
            new = [k.select(alive, a, b) for a, b in zip(new, old)]
            out = k.select(alive, out, k.splat(k.const(0.0, F32), self.lanes))
        k.store(self._state(step + 1, direction), at, new[0])
        if len(new) > 1:
            k.store(k["cells"], self._cells(direction) + at, new[1])
        if "kept_cells" in p.types:
            self._write("kept_cells", self._time(direction, step, length), direction, row, unit, new[1], mask)
        if "y" in p.types:
            self._write("y", self._time(direction, step, length), direction, row, unit, out, mask)
