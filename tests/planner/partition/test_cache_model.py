"""Which bytes the caches hold, on graphs small enough to follow by hand."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.planner.partition.works import Work, graph_works

KIB = 1024.0


def chain(n: int) -> str:
    """Three element-wise nodes on n KiB each; the middle one cannot take its operand's place in memory."""
    t = f"f32[{n},256]"
    lines = (f"%a = Exp(%x) : {t}", f"%b = Add(%a, %x) : {t}", f"%c = Mul(%b, %a) : {t}", "return %c")
    return f"graph @g(%x: {t}) {{\n" + "".join(f"  {line}\n" for line in lines) + "}"


def works(text: str, l2: float, l3: float) -> list[Work]:
    return graph_works(parse_graph(text), {}, caches=(l2, l3))


def test_everything_is_far_without_caches() -> None:
    assert all(w.cost.cached_nbytes == 0 for w in graph_works(parse_graph(chain(64)), {}))


def test_what_fits_the_second_level_stays_there() -> None:
    for w in works(chain(64), 1024 * KIB, 4096 * KIB):
        assert w.cost.far_nbytes == 0
        assert w.cost.l2_nbytes == w.cost.nbytes


def test_what_fits_the_last_level_comes_from_there() -> None:
    for w in works(chain(512), 128 * KIB, 64 * 1024 * KIB):
        assert w.cost.far_nbytes == 0
        assert w.cost.l2_nbytes == 0
        assert w.cost.cached_nbytes == w.cost.nbytes


def test_what_fits_nowhere_comes_from_memory() -> None:
    for w in works(chain(4096), 128 * KIB, 512 * KIB):
        assert w.cost.cached_nbytes == 0


def test_a_result_finds_the_lines_of_what_died_before() -> None:
    """The last result is the caller's buffer, the others share the arena: only what was just touched is near."""
    first, second, third = works(chain(512), 128 * KIB, 1100 * KIB)
    assert first.cost.near_nbytes < first.cost.nbytes
    assert second.cost.near_nbytes == pytest.approx(2 * 512 * KIB, rel=0.1), "x and a, not the new result"
    assert third.cost.cached_nbytes <= third.cost.nbytes
