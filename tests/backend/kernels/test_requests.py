"""How tiles ask for memory ahead: every row of the result in time, and the next panels of B where rows are few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.backend.kernels.matmul.blocking import plan_product
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.types import symbol
from parax.compiler.targets.target import TARGETS


def context(name: str = "x86-64-v4") -> LowerContext:
    return LowerContext(TARGETS[name], ("N",), WeightStore())


@given(depth=st.integers(1, 400), taps=st.integers(1, 9), rows=st.integers(1, 8))
def test_a_tile_asks_for_all_its_rows_or_for_none_in_its_loop(depth: int, taps: int, rows: int) -> None:
    ctx = context()
    p = plan_product(ctx, 1, 96, 64, taps, depth)
    asked = p.asked(ctx.target, rows)
    iterations = taps * (depth // p.unroll[0])
    assert asked == 0 or asked * iterations >= rows
    assert asked <= rows


@pytest.mark.parametrize("name, depth", [("x86-64-v4", 768), ("x86-64-v3", 64)])
def test_long_tiles_and_few_registers_ask_at_once(name: str, depth: int) -> None:
    ctx = context(name)
    assert plan_product(ctx, 1, 96, 64, 1, depth).asked(ctx.target, 6) == 0
    assert plan_product(context(), 1, 96, 64, 1, 64).asked(context().target, 6) == 1


@pytest.mark.parametrize("rows, shared", [(1, 8), (6, 8), (7, 2), (24, 2), (25, 4), (42, 4), (43, 8), (960, 8)])
def test_few_rows_share_the_next_panel_of_b(rows: int, shared: int) -> None:
    assert plan_product(context(), 1, rows, 2560, 1, 640).shared(6) == shared


def test_unknown_rows_are_taken_for_many() -> None:
    assert plan_product(context(), 1, symbol("N"), 2560, 1, 640).shared(6) == 8
