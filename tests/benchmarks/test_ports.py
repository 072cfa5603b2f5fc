"""The port model of register tiles: which loop it looks at, and what it says where llvm-mca is installed."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from benchmarks import ports
from parax.compiler.backend.microkernels.table import TABLE, Tile
from parax.compiler.targets.target import TARGETS, named_target
from parax.errors import UsageError

LOOPS = """
.LBB0_1:
\tvmovups (%rax), %zmm0
.LBB0_2:
\tvfmadd231ps (%rcx){1to16}, %zmm0, %zmm1
\tvfmadd231ps 4(%rcx){1to16}, %zmm0, %zmm2
\tjne .LBB0_2
\tvmulps %zmm1, %zmm2, %zmm3
\tjb\t.LBB0_1
.LBB0_3:
\tvmulps %zmm1, %zmm2, %zmm3
\tjb\t.LBB0_3
"""


def test_the_innermost_loop_that_multiplies_most_is_found() -> None:
    loop = ports.inner_loop(LOOPS)
    assert len(loop) == 3 and loop[-1].startswith("jne") and ports.multiplications(loop) == 2


VNNI = ("x86-64-v4+avx512vnni", "x86-64-v3+avxvnni")
WHERE = {**TARGETS, **{name: named_target(name) for name in VNNI}}
RUNNING = [(name, tile) for name in WHERE for tile in TABLE if tile.runs_on(WHERE[name])
           if name in TARGETS or tile.features & {"avx512vnni", "avxvnni"}]  # fmt: skip


@pytest.mark.parametrize(("name", "tile"), RUNNING, ids=lambda p: f"{p.rows}x{p.vectors}" if isinstance(p, Tile) else p)
def test_the_loop_of_a_tile_has_a_multiplication_for_each_accumulator_and_step(name: str, tile: Tile) -> None:
    loop = ports.inner_loop(ports.assembly(tile, WHERE[name]))
    each = tile.emitter.k_step if tile.rate == "bf16 by conversion" else 1  # a pair is two products of f32 there
    assert ports.multiplications(loop) == each * tile.rows * tile.vectors * ports.UNROLL


def test_without_llvm_mca_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "TOOLS", ("llvm-mca-of-nobody",))
    with pytest.raises(UsageError, match="apt-get install"):
        ports.cycles(["nop"], ports.target_of("znver3"))


@pytest.mark.skipif(not shutil.which("llvm-mca-19"), reason="llvm-mca-19 is not installed")
def test_no_prediction_is_below_the_ports() -> None:
    usual = [tile for tile in TABLE if tile.usual]
    for target in map(ports.target_of, ports.CPUS):
        for tile in (tile for tile in usual if tile.runs_on(target)):
            found = ports.predict(tile, target)
            assert 0.98 * found.ports < found.mca and found.share <= 1


def test_a_cpu_that_llvm_does_not_know_is_refused() -> None:
    if not any(map(shutil.which, ports.TOOLS)):
        pytest.skip("llvm-mca is not installed")
    with pytest.raises(UsageError, match="some-lake"):
        ports.cycles(["some nonsense"], replace(TARGETS["x86-64-v3"], tune="some-lake"))
