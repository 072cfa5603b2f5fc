"""Products whose rows only a run knows: cut as those of that many rows, and the same sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, run_graph
from backend.kernels import naive
from backend.kernels.naive import check, normal
from parax.compiler.backend.kernels.matmul.blocking import plan_product, product_shape, static
from parax.compiler.backend.kernels.matmul.open_rows import stepwise
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import ceil_div, evaluate, symbol
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

LAYERS = [(160, 960), (960, 160), (960, 320), (320, 1280), (64, 384), (576, 96), (4608, 512), (32, 8)]


@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.parametrize("depth, columns", LAYERS)
def test_blocks_cover_any_number_of_rows_within_the_most(name: str, depth: int, columns: int) -> None:
    ctx, rows = LowerContext(TARGETS[name], ("N",), WeightStore()), symbol("N")
    p = plan_product(ctx, 1, rows, columns, 1, depth, by_rows=True)
    for n in (*range(50), *range(50, 1000, 7), 10**6):
        block, panels = evaluate(p.row_block, {"N": n}), evaluate(p.panels_per_item, {"N": n})
        assert 1 <= block <= p.most_rows
        assert 1 <= panels <= int(p.n_panels)
        assert evaluate(p.work, {"N": n}) == ceil_div(n, block) * ceil_div(int(p.n_panels), panels)


@pytest.mark.parametrize("depth, columns", LAYERS)
@pytest.mark.parametrize("rows", [16, 49, 100, 196])
def test_a_call_is_cut_nearly_as_well_as_a_product_of_its_rows(depth: int, columns: int, rows: int) -> None:
    ctx = LowerContext(TARGETS["x86-64-v4"], ("N",), WeightStore())
    p = plan_product(ctx, 1, symbol("N"), columns, 1, depth, by_rows=True)
    known = plan_product(ctx, 1, rows, columns, 1, depth)
    shape, own = product_shape(ctx, known), {"N": rows}
    found = shape.cost(evaluate(p.row_block, own), evaluate(p.panels_per_item, own))
    assert found <= 1.05 * shape.cost(static(known.row_block), static(known.panels_per_item))


@given(values=st.lists(st.integers(1, 9), min_size=1, max_size=6), size=st.integers(0, 90), data=st.data())
def test_steps(values: list[int], size: int, data: st.DataObject) -> None:
    begins = [0, *sorted(data.draw(st.sets(st.integers(1, 80), min_size=len(values) - 1, max_size=len(values) - 1)))]
    expected = next(v for begin, v in reversed(list(zip(begins, values))) if size >= begin)
    assert evaluate(stepwise(symbol("N"), begins, values), {"N": size}) == expected


def pointwise(depth: int, columns: int, w: np.ndarray, sizes: str = "N,{},H,W") -> Graph:
    """A 1×1 convolution of channels last with a Relu behind it."""
    x, y = (f"f32[{sizes.format(c)}]{{0,2,3,1}}" for c in (depth, columns))
    return parse_graph(f"""graph @g(%x: {x}) {{
        %w = const f32[{columns},{depth},1,1] "w"
        %y = Conv(%x, %w) {{kernel_shape=[1,1]}} : {y}
        %r = Relu(%y) : {y}
        return %r
        }}""", {"w": w})


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@thorough(8)
@given(n=st.integers(1, 3), h=st.integers(1, 23), w=st.integers(1, 31), columns=st.sampled_from([8, 50, 130, 200]),
       depth=st.sampled_from([16, 33]))  # fmt: skip
def test_sums_are_those_of_known_sizes(target: Target, n: int, h: int, w: int, columns: int, depth: int) -> None:
    weights, x = normal(columns, depth, 1, 1), normal(n, depth, h, w)
    program = Program(pointwise(depth, columns, weights), target, ("N", "H", "W"))
    (found,) = program.run({"x": x}, {"N": n, "H": h, "W": w})
    (known,) = run_graph(pointwise(depth, columns, weights, f"{n},{{}},{h},{w}"), {"x": x}, {}, target)
    np.testing.assert_array_equal(found, known)
    check(found, np.maximum(naive.conv(x, weights, None, [1, 1], [0] * 4, [1, 1], 1), 0), depth)
