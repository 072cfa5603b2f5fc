"""Weights of recurrent operators in the order of the register tile, and the small products that read them.

Owns packing (when compiling, or in the kernel if the weights are computed) and the product of table-addressed rows
with one panel. It must not know what the gates mean.

Packed: [direction][group of gates][block of units][k][gate][lane], zeros beyond the last unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...ir.graph import Value
from ...ir.kernel_builder import F32PTR, I64PTR, Builder, KValue
from ...ir.loops import INDEX, KFunc, KType, PtrType
from ...ir.target import Target
from ...ir.types import F32, Dim, ceil_div
from ..fusion import load
from ..lowering import LowerContext
from .cells import Cell
from .gemm import sizes_below
from .nest import strided_index

if TYPE_CHECKING:
    from .recurrent import RecurrentPlan


def gate_groups(name: str, cell: Cell) -> list[tuple[int, ...]]:
    """Which gates' weights lie in one panel: all for the inputs ("w"), those of a phase for the state ("r")."""
    return [cell.inputs] if name == "w" else [p.gates for p in cell.phases]


def packed_weights(name: str, v: Value, cell: Cell, hidden: int, lanes: int) -> np.ndarray | None:
    """W or R packed, None if it is not a constant."""
    if v.data is None or v.producer is not None:
        return None
    directions, _, depth = v.data.shape
    blocks = ceil_div(hidden, lanes)
    gates = v.data.astype(np.float32).reshape(directions, -1, hidden, depth)
    padded = np.pad(gates, ((0, 0), (0, 0), (0, blocks * lanes - hidden), (0, 0)))
    split = padded.reshape(directions, -1, blocks, lanes, depth)
    parts = [split[:, list(group)].transpose(0, 2, 4, 1, 3).reshape(directions, -1)
             for group in gate_groups(name, cell)]
    return np.concatenate(parts, axis=1)


def prepare_weights(k: Builder, p: RecurrentPlan, direction: KValue) -> tuple[KValue, KValue]:
    """Pointers to the packed W and R of a direction; fills the scratch `bias`, packs if that was not done before."""
    _fill_bias(k, p, direction)
    w_size, r_size = p.shape.inputs * (p.padded * len(p.cell.inputs)), p.shape.hidden * p.padded * p.op.n_gates
    if p.packed:
        return k.gep(k["w"], direction * k.index(w_size)), k.gep(k["r"], direction * r_size)
    _pack(k, p, "w", p.shape.inputs, direction)
    _pack(k, p, "r", p.shape.hidden, direction)
    return k["w_packed"], k["r_packed"]


def _pack(k: Builder, p: RecurrentPlan, name: str, depth: Dim, direction: KValue) -> None:
    """The packing of `packed_weights`, at run time."""
    lanes, hidden, target = p.lanes, p.shape.hidden, k[f"{name}_packed"]
    by_direction, by_row, by_column = p.types[name].strides
    before: Dim = 0
    for group in gate_groups(name, p.cell):
        def block(u: KValue, _: list[KValue], group: tuple[int, ...] = group, before: Dim = before) -> None:
            mask = k.tail_mask(k.index(hidden) - u * lanes, lanes)

            def one(kk: KValue, _: list[KValue]) -> None:
                for j, gate in enumerate(group):
                    source = (direction * k.index(by_direction) + (u * lanes + gate * hidden) * k.index(by_row)
                              + kk * k.index(by_column))
                    value = k.gather(k[name], strided_index(k, source, by_row, lanes), mask)
                    at = k.index(before) + ((u * k.index(depth) + kk) * len(group) + j) * lanes
                    k.store(target, at, k.cast(value, F32))

            k.for_(0, k.index(depth), 1, [], one)

        k.for_(0, p.blocks, 1, [], block)
        before = before + depth * (p.padded * len(group))


def _fill_bias(k: Builder, p: RecurrentPlan, direction: KValue) -> None:
    """What the sums start from, in slot order."""
    lanes, hidden, cell, n = p.lanes, p.shape.hidden, p.cell, p.op.n_gates

    def block(u: KValue, _: list[KValue]) -> None:
        mask = k.tail_mask(k.index(hidden) - u * lanes, lanes)

        def bias(number: int) -> KValue:
            if "b" not in p.types:
                return k.splat(k.const(0.0, F32), lanes)
            return load(k, k["b"], (direction * (2 * n) + number) * hidden + u * lanes, lanes, mask)

        for j, gate in enumerate(cell.inputs):
            value = bias(gate) + bias(n + gate) if cell.both_biases[j] else bias(gate)
            k.store(k["bias"], (u * cell.slots + cell.input_first + j) * lanes, value)
        if cell.lone_slot is not None:
            lone = cell.phases[0].gates[0]
            k.store(k["bias"], (u * cell.slots + cell.lone_slot) * lanes, bias(n + lone))

    k.for_(0, p.blocks, 1, [], block)


def tile_rows(target: Target, vectors: int) -> int:
    """Rows of the tallest tile that leaves registers for `vectors` of B and one more."""
    most = 14 if target.n_registers >= 32 else 8
    return max(1, min(most, (target.n_registers - 1 - vectors - (not target.has_fma)) // vectors))


class ProductTile:
    """out[i, :] = init[i, :] + a[table[i]] · panel, for any number of rows."""

    def __init__(self, k: Builder, ctx: LowerContext) -> None:
        self.k, self.ctx = k, ctx

    def product(self, vectors: int, rows: KValue, a: KValue, table: KValue, panel: KValue, depth: KValue,
                init: KValue, init_pitch: int, out: KValue, out_pitch: int) -> None:
        """Emit the loops over tiles: equal sizes where the number of rows is known, a ladder of sizes otherwise."""
        k, most = self.k, tile_rows(self.ctx.target, vectors)

        def run(size: int, low: KValue, n: KValue) -> KValue:
            tile = self._tile(size, vectors)

            def one(i: KValue, _: list[KValue]) -> None:
                row = low + i * size
                pointers = [a, k.gep(table, row), panel, k.gep(init, row * init_pitch), k.gep(out, row * out_pitch)]
                k.call(tile, [*pointers, depth, init_pitch, out_pitch])

            k.for_(0, n, 1, [], one)
            return low + n * size

        if rows.const is not None:
            count = int(rows.const)
            tiles = -(-count // most)
            small, extra = divmod(count, tiles)
            low = run(small + 1, k.index(0), k.index(extra)) if extra else k.index(0)
            run(small, low, k.index(tiles - extra))
            return
        low = k.index(0)
        for size in sizes_below(most):
            low = run(size, low, k.udiv(rows - low, size))

    def _tile(self, rows: int, vectors: int) -> KFunc:
        key = ("recurrent_tile", rows, vectors)
        if key not in self.ctx.functions:
            name = f"recurrent_tile{rows}x{vectors}_{len(self.ctx.functions)}"
            self.ctx.functions[key] = tile_function(name, rows, vectors, self.ctx.target)
        return self.ctx.functions[key]


def tile_function(name: str, rows: int, vectors: int, target: Target) -> KFunc:
    """The register tile: rows × vectors accumulators carried through k, a function of its own so that none spills."""
    lanes, width = target.f32_lanes, vectors * target.f32_lanes
    pointers: list[tuple[str, KType | PtrType]] = [("a", F32PTR), ("table", I64PTR), ("b", F32PTR), ("init", F32PTR),
                                                   ("out", F32PTR)]
    k = Builder(name, [*pointers, *((n, INDEX) for n in ("depth", "init_pitch", "out_pitch"))], inline="never")
    places = [(i, j * lanes) for i in range(rows) for j in range(vectors)]
    a = [k.gep(k["a"], k.load(k["table"], i)) for i in range(rows)]

    def step(kk: KValue, acc: list[KValue]) -> list[KValue]:
        columns = [k.load(k["b"], kk * width + j * lanes, lanes, align=4 * lanes) for j in range(vectors)]
        values = [k.splat(k.load(row, kk), lanes) for row in a]
        pairs = [(value, column) for value in values for column in columns]
        return [k.fma(v, c, s) if target.has_fma else s + v * c for (v, c), s in zip(pairs, acc)]

    acc = [k.load(k["init"], k["init_pitch"] * i + j, lanes) for i, j in places]
    for (i, j), value in zip(places, k.for_(0, k["depth"], 1, acc, step, unroll=4)):
        k.store(k["out"], k["out_pitch"] * i + j, value)
    return k.func
