"""The code of the way back through a recurrent operator: from the last step to the first.

Owns the loops over steps, rows and blocks of units. Sizes are the plan's, products `tile`'s, formulas `cells_back`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....ir.ops.recurrent_training import RecurrentGradient
from ....ir.types import F32
from ....kernel_ir.builder import KValue
from ...fusion import widen
from ..plain import strided_load
from .cells_back import Pulled, StepBack, phases_of, pull_back
from .plan import GradientPlan
from .tile import SmallProduct
from .walk import Walk
from .weights import read_row


class GradientEmitter(Walk[GradientPlan]):
    """Writes the work items [begin, end) of a kernel."""

    def _prepare(self, direction: KValue, first: KValue, last: KValue) -> None:
        """R's columns of a block, for each gate: [block][gate][k][vector][lane], zeros beyond the last unit."""
        k, p = self.k, self.p
        hidden, n = p.shape.hidden, p.op.n_gates
        by_direction, by_row, by_column = p.types["r"].strides

        def block(u: KValue, _: list[KValue]) -> None:
            def row(number: KValue, _: list[KValue]) -> None:
                source = direction * k.index(by_direction) + number * k.index(by_row)
                for j in range(p.vectors):
                    unit = u * p.block + j * p.lanes
                    value = strided_load(k, k["r"], source + unit * k.index(by_column), by_column, p.lanes,
                                         self._mask(unit))  # fmt: skip
                    k.store(k["packed"], self._panel(direction, u) + number * p.block + j * p.lanes, widen(k, value))

            k.for_(0, n * hidden, 1, [], row)

        k.for_(first, last, 1, [], block)

    def _rows_together(self) -> None:
        k = self.k
        self._directions(self._start)
        self._meet()  # the rows before these may still be multiplied
        k.for_(0, self.steps, 1, [], lambda n, _: self._step(self.steps - 1 - n))
        self._directions(self._end)

    def _step(self, step: KValue) -> None:
        self._directions(lambda d, low, high: self._rows_of(d, low, high, step))
        *phases, last = phases_of(self.p.op)
        for gates in phases:
            self._meet()
            self._directions(partial(self._products, step, gates, False))
        self._meet()
        self._directions(partial(self._products, step, last, True))

    # -- addresses -----------------------------------------------------------------------------------------
    def _panel(self, direction: KValue, u: KValue) -> KValue:
        """Where the packed weights of a block begin."""
        p = self.p
        return direction * p.weight_floats + u * (p.op.n_gates * p.shape.hidden * p.block)

    def _gates(self, step: KValue, direction: KValue) -> KValue:
        """The gates' gradients at a step, [row][gate][unit]: two buffers take turns."""
        p = self.p
        return self.k.gep(self.k["state"], (step & 1) * p.state_floats_of_gates + direction * (p.rows * p.row_floats))

    def _carried(self, direction: KValue, memory: str) -> KValue:
        """Where the gradients of the rows' states lie, which go from step to step."""
        return self.k.gep(self.k[memory], self._cells(direction))

    # -- before and after the steps ------------------------------------------------------------------------
    def _states(self) -> list[tuple[str, str, str]]:
        """Memory of a state's gradient, who gives its first content and who takes its last."""
        return [("dh", "dy_h", "dh0"), ("dc", "dy_c", "dc0")][: self.p.op.n_states]

    def _start(self, direction: KValue, low: KValue, high: KValue) -> None:
        k, p = self.k, self.p

        def unit(i: KValue, u: KValue, mask: KValue) -> None:
            for memory, given, _ in self._states():
                value = self._read(given, direction, i, u, mask) if given in p.types else self._zero()
                k.store(self._carried(direction, memory), i * p.pitch + u, value)

        self._rows(lambda i: self._units(low, high, lambda u, mask: unit(i, u, mask)))

    def _end(self, direction: KValue, low: KValue, high: KValue) -> None:
        k, p = self.k, self.p

        def unit(i: KValue, u: KValue, mask: KValue) -> None:
            for memory, _, taken in self._states():
                if taken in p.types:
                    value = k.load(self._carried(direction, memory), i * p.pitch + u, self.lanes)
                    self._write(taken, k.index(0), direction, i, u, value, mask)

        self._rows(lambda i: self._units(low, high, lambda u, mask: unit(i, u, mask)))

    def _zero(self) -> KValue:
        return self.k.splat(self.k.const(0.0, F32), self.lanes)

    # -- one step: element-wise work -----------------------------------------------------------------------
    def _rows_of(self, direction: KValue, low: KValue, high: KValue, step: KValue) -> None:
        def row(i: KValue) -> None:
            length = self._length(i)
            self._units(low, high, lambda u, mask: self._unit(direction, step, i, length, u, mask))

        self._rows(row)

    def _unit(self, d: KValue, step: KValue, i: KValue, length: KValue, unit: KValue, mask: KValue,
              product: KValue | None = None) -> None:  # fmt: skip
        """The gates of one vector of hidden units of one row, before the first product or behind it."""
        k, p = self.k, self.p
        time, at = self._time(d, step, length), i * p.pitch + unit
        dh = k.load(self._carried(d, "dh"), at, self.lanes)
        s = self._received(d, step, i, length, unit, mask, dh, product)
        pulled = self._pulled(d, s)
        alive = step < length if "lens" in p.types else None
        gates = k.gep(self._gates(step, d), i * p.row_floats)
        for j, value in pulled.gates.items():
            self._write("dgates", time, d, i, unit + j * p.shape.hidden, self._if_alive(alive, value, None), mask)
            k.store(gates, unit + j * p.pitch, self._if_alive(alive, pulled.multiplied.get(j, value), None))
        through = self._zero() if pulled.through is None else pulled.through
        k.store(self._carried(d, "dh"), at, self._if_alive(alive, through, dh))
        if pulled.dc is not None:
            k.store(self._carried(d, "dc"), at, self._if_alive(alive, pulled.dc, s.dc))
        for name, beside in (("before", s.h if product is None else None), ("beside", pulled.beside)):
            if name in p.types and beside is not None:
                self._write(name, time, d, i, unit, self._if_alive(alive, beside, None), mask)

    def _received(self, d: KValue, step: KValue, i: KValue, length: KValue, unit: KValue, mask: KValue, dh: KValue,
                  product: KValue | None) -> StepBack:  # fmt: skip
        """What the formulas read."""
        k, p, hidden = self.k, self.p, self.p.shape.hidden
        time = self._time(d, step, length)
        if product is None and "dy" in p.types:
            dh = dh + self._read("dy", d, i, unit, mask, time)
        sums = [self._read("kept_gates", d, i, unit + j * hidden, mask, time) for j in range(self._n_sums())]
        s = StepBack(sums, self._state_before("y", "h0", d, i, step, length, unit, mask), dh, product=product)
        if p.op.n_states == 2:
            s.dc = k.load(self._carried(d, "dc"), i * p.pitch + unit, self.lanes)
            s.c = self._state_before("kept_cells", "c0", d, i, step, length, unit, mask)
            s.c_behind = self._read("kept_cells", d, i, unit, mask, time)
        if "p" in p.types:
            s.peephole = lambda j: read_row(k, p, "p", d, unit + j * hidden, mask)
        return s

    def _pulled(self, direction: KValue, s: StepBack) -> Pulled:
        """The formulas, with the functions of the direction."""
        op = self.p.op
        assert isinstance(op, RecurrentGradient)
        functions = op.functions()
        if len(functions) == 1 or functions[0] == functions[1]:
            return pull_back(self.k, op, functions[0], s)
        names: list[Pulled] = []

        def by(number: int) -> list[KValue]:
            names.append(pull_back(self.k, op, functions[number], s))
            return names[-1].flat()

        found = self.k.if_(direction == 0, lambda: by(0), lambda: by(1))
        return names[0].like(found)

    def _n_sums(self) -> int:
        width = self.p.types["kept_gates"].dims[3]
        assert isinstance(width, int)
        return width // self.p.shape.hidden

    def _if_alive(self, alive: KValue | None, new: KValue, old: KValue | None) -> KValue:
        """`new` for a row whose sequence goes on, else `old`; None counts as 0."""
        return new if alive is None else self.k.select(alive, new, self._zero() if old is None else old)

    def _state_before(self, name: str, first: str, d: KValue, row: KValue, step: KValue, length: KValue, unit: KValue,
                      mask: KValue) -> KValue:  # fmt: skip
        """A state before a step: that of the step before, or the first one."""
        k = self.k

        def initial() -> list[KValue]:
            return [self._read(first, d, row, unit, mask) if first in self.p.types else self._zero()]

        def earlier() -> list[KValue]:
            return [self._read(name, d, row, unit, mask, self._time(d, step - 1, length))]

        return k.if_(step == 0, initial, earlier)[0]

    # -- one step: products --------------------------------------------------------------------------------
    def _products(self, step: KValue, gates: tuple[int, ...], is_last: bool, d: KValue, low: KValue, high: KValue,
                  ) -> None:  # fmt: skip
        """dG · R for the blocks [low, high); every other step backwards, as forwards. The last product adds to dh."""
        def block(u: KValue, _: list[KValue]) -> None:
            self._product(d, self.k.select((step & 1) == 0, u, low + high - 1 - u), step, gates, is_last)

        self.k.for_(low, high, 1, [], block)

    def _product(self, d: KValue, u: KValue, step: KValue, gates: tuple[int, ...], is_last: bool) -> None:
        k, p = self.k, self.p
        hidden, half = p.shape.hidden, p.rows * p.block
        dh = k.gep(self._carried(d, "dh"), u * p.block)

        def each(body: Callable[[int, KValue], None]) -> None:
            for j in range(0, p.block, p.lanes):
                self._rows(partial(body, j))

        def begin(j: int, i: KValue) -> None:
            first = k.load(dh, i * p.pitch + j, p.lanes) if is_last else self._zero()
            k.store(k["product"], i * p.block + j, first)

        def gate(number: KValue, _: list[KValue]) -> None:
            panels = k.gep(k["packed"], self._panel(d, u) + (number + gates[0]) * (hidden * p.block))
            a = k.gep(self._gates(step, d), (number + gates[0]) * p.pitch)
            init, out = (k.gep(k["product"], ((number + n) & 1) * half) for n in (0, 1))
            product = SmallProduct(p.vectors, a, None, panels, hidden, p.row_floats, init, p.block, out, p.block)
            self.products.few(product, self.count, p.rows)

        def end(j: int, i: KValue) -> None:
            value = k.load(k["product"], (len(gates) & 1) * half + i * p.block + j, p.lanes)
            if not is_last:
                unit = u * p.block + j
                self._unit(d, step, i, self._length(i), unit, self._mask(unit), value)
            elif "lens" not in p.types:
                k.store(dh, i * p.pitch + j, value)
            else:
                k.if_(step < self._length(i), lambda: k.store(dh, i * p.pitch + j, value))

        each(begin)
        k.for_(0, len(gates), 1, [], gate)
        each(end)
