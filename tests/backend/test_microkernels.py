"""The table of register tiles: every row fits the registers it asks for, and targets find what they run."""

from __future__ import annotations

import pytest

from benchmarks import ports
from parax.compiler.backend.microkernels.registers import left_beside, most_outer, passing, tallest_fit
from parax.compiler.backend.microkernels.table import TABLE, Tile, tallest_tile, tiles, widest_tile
from parax.compiler.ir.types import I8, U8, symbol
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.loops import KType
from parax.compiler.kernel_ir.verifier import verify_function
from parax.compiler.targets.target import TARGETS, Target

SIZES = {"x86-64-v4": {1: 8, 2: 6, 3: 7, 4: 6}, "x86-64-v3": {1: 8, 2: 6, 3: 4, 4: 2},
         "x86-64-v2": {1: 8, 2: 4, 3: 3, 4: 2}, "aarch64": {1: 8, 2: 8, 3: 6, 4: 5}}  # fmt: skip


@pytest.mark.parametrize("tile", TABLE, ids=lambda t: f"{t.rows}x{t.vectors}")
def test_a_tile_fits_its_registers(tile: Tile) -> None:
    if tile.emitter.matrices:  # eight, of 16 rows and 16 columns: sums, and one of A for each height, of B each width
        heights = -(-tile.rows // 16)
        assert heights * tile.vectors + heights + tile.vectors <= 8
        return
    product = not tile.features & {"fma", "avx512vnni", "avxvnni"}
    pairs = tile.rows if "neon" in tile.features else 0
    assert tile.rows * tile.vectors + tile.vectors + 1 + product + pairs <= tile.registers


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_sums_leave_registers_for_what_is_multiplied(target: Target) -> None:
    product = not target.has_fma
    for vectors in range(1, 6):
        rows, outer = tallest_fit(target, vectors), most_outer(target, vectors)
        needed = [n * vectors + vectors + 1 + product for n in (rows, rows + 1)]
        assert needed[0] <= target.n_registers < needed[1]
        needed = [n * vectors + min(n, vectors) + 1 for n in (outer, outer + 1)]
        assert needed[0] <= target.n_registers < needed[1]
    assert most_outer(target, target.n_registers) == 0
    assert left_beside(target, 5) + 5 + passing(target) == target.n_registers


@pytest.mark.parametrize("tile", list(tiles(TARGETS["aarch64"])), ids=lambda t: f"{t.rows}x{t.vectors}")
def test_no_tile_of_aarch64_goes_to_the_stack(tile: Tile) -> None:
    loop = ports.inner_loop(ports.assembly(tile, TARGETS["aarch64"]))
    assert loop and not [line for line in loop if "[sp" in line]


@pytest.mark.parametrize("tile", [t for t in TABLE if t.emitter.multiply_add], ids=lambda t: f"{t.rows}x{t.vectors}")
def test_its_emitter_adds_to_a_vector_of_accumulators(tile: Tile) -> None:
    lanes, emitter = 4, tile.emitter
    assert emitter.multiply_add is not None
    element = KType(emitter.element, lanes * emitter.width)
    sums = KType(tile.accumulator, lanes)
    b = KType(I8, element.lanes) if emitter.element == U8 else element  # of other bytes B is widened as it is loaded
    k = Builder("step", [("a", element), ("b", b), ("sums", sums)], returns=sums)
    k.ret(emitter.multiply_add(k, k["a"], k["b"], k["sums"], "fma" in tile.features))
    verify_function(k.func)
    assert k.func.body.yields[0].type == sums
    assert emitter.b_element.nbytes * emitter.width == emitter.k_step * tile.input.nbytes
    assert emitter.sums == tile.accumulator


@pytest.mark.parametrize("name", TARGETS)
def test_every_width_has_a_tile(name: str) -> None:
    assert {vectors: tallest_tile(TARGETS[name], vectors) for vectors in SIZES[name]} == SIZES[name]


@pytest.mark.parametrize(("name", "usual"), [("x86-64-v4", 4), ("x86-64-v3", 2), ("x86-64-v2", 2), ("aarch64", 4)])
def test_few_rows_take_wide_tiles(name: str, usual: int) -> None:
    widths = [widest_tile(TARGETS[name], rows) for rows in (1, 2, 3, 100, symbol("N"), None)]
    assert widths == [4, 4, usual, usual, usual, usual]


@pytest.mark.parametrize("name", TARGETS)
def test_no_two_rows_are_the_same_size_for_one_target(name: str) -> None:
    found = [(t.rows, t.vectors) for t in tiles(TARGETS[name])]
    assert len(found) == len(set(found))
