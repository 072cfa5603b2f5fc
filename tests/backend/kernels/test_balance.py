"""How products are cut into work items: cores finish together, and blocks keep to one image."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.backend.kernels.matmul.balance import Shape, best_cut
from parax.compiler.backend.kernels.matmul.blocking import Product, plan_product
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.types import U8, ceil_div, symbol
from parax.compiler.targets.target import TARGETS, named_target


def context(name: str = "x86-64-v4") -> LowerContext:
    return LowerContext(TARGETS[name], ("N",), WeightStore())


def multiply_adds(p: Product, image: int) -> list[int]:
    """Rows × vectors of each work item of one image, in order."""
    widths = [kind.vectors for kind in p.kinds for _ in range(int(kind.count))]
    block, together = int(p.row_block), int(p.panels_per_item)
    blocks = [min(block, image - row) for row in range(0, image, block)]
    groups = [sum(widths[i : i + together]) for i in range(0, len(widths), together)]
    return [rows * width for width in groups for rows in blocks]


LAYERS = [(49, 160, 960), (49, 960, 160), (49, 960, 320), (49, 320, 1280), (49, 1024, 1024), (196, 64, 384),
          (196, 96, 576), (196, 576, 96), (196, 512, 512), (784, 144, 32), (784, 128, 256)]  # fmt: skip


@pytest.mark.parametrize("n_cores", [2, 4])
@pytest.mark.parametrize("pixels, inputs, outputs", LAYERS)
def test_cores_finish_together(pixels: int, inputs: int, outputs: int, n_cores: int) -> None:
    p = plan_product(context(), 1, pixels * symbol("N"), outputs, 1, inputs, segment=pixels)
    sums = [0, *accumulate(multiply_adds(p, pixels))]
    items = len(sums) - 1
    shares = [sums[items * (i + 1) // n_cores] - sums[items * i // n_cores] for i in range(n_cores)]
    assert max(shares) <= (1.1 if n_cores == 2 else 1.25) * sums[-1] / n_cores


def test_each_cut_of_a_wide_product_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3,750 panels, as of a vocabulary, most numbers of groups come to the same panels together."""
    tried: list[tuple[int, int]] = []
    cost = Shape.cost

    def counted(shape: Shape, block: int, together: int) -> float:
        tried.append((block, together))
        return cost(shape, block, together)

    monkeypatch.setattr(Shape, "cost", counted)
    shape = Shape(1, 8, 1, (1,) * 3750, ((1, 12),), (1, 2))
    best_cut.__wrapped__(shape, (1, 3750), 3750, 1)
    assert len(tried[1:]) == len(set(tried[1:])) and 100 < len(tried) < 130


def test_blocks_of_an_image_do_not_depend_on_the_batch() -> None:
    p = plan_product(context(), 1, 196 * symbol("N"), 512, 1, 512, segment=196)
    n = symbol("N")
    assert p.n_row_blocks == n * ceil_div(196, int(p.row_block))


def test_a_cut_that_is_even_stays() -> None:
    shape = Shape(rows=128, steps=256, taps=1, widths=(4,) * 8, height=((4, 6),), cores=(1, 2, 4))
    assert best_cut(shape, (32, 2), 8, 12) == (32, 2)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(35, 650, 2600), (49, 2048, 512)])
def test_few_rows_stay_together(rows: int, depth: int, columns: int) -> None:
    """Each block of rows reads all of B again, which few rows do not hide."""
    p = plan_product(context(), 1, rows, columns, 1, depth)
    assert int(p.row_block) >= rows and int(p.panels_per_item) < int(p.n_panels)


def test_products_of_unknown_rows_keep_whole_tiles() -> None:
    p = plan_product(context(), 1, symbol("N"), 512, 1, 512)
    assert int(p.row_block) % 6 == 0


@given(
    rows=st.integers(1, 300),
    steps=st.integers(1, 600),
    panels=st.integers(1, 12),
    narrow=st.booleans(),
    outer=st.integers(1, 3),
    usual=st.tuples(st.integers(1, 300), st.integers(1, 12)),
)
def test_a_cut_is_never_worse_than_the_usual_one(
    rows: int, steps: int, panels: int, narrow: bool, outer: int, usual: tuple[int, int]
) -> None:
    widths = (4,) * (panels - 1) + (3 if narrow else 4,)
    usual = min(usual[0], rows), min(usual[1], panels)
    shape = Shape(rows, steps, 1, widths, ((3, 7), (4, 6)), (1, 2, 4), outer)
    block, together = best_cut(shape, usual, panels, 12)
    assert 1 <= block <= rows and 1 <= together <= panels
    assert shape.cost(block, together) <= shape.cost(*usual)


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_target_has_a_cut(name: str) -> None:
    p = plan_product(context(name), 1, 49 * symbol("N"), 960, 1, 160, segment=49)
    assert 1 <= int(p.row_block) <= 49 and 1 <= int(p.panels_per_item) <= int(p.n_panels)


@pytest.mark.parametrize("depth", [192, 768])
@pytest.mark.parametrize("columns", [768, 832, 3072])
def test_groups_of_columns_of_unknown_rows_are_alike(columns: int, depth: int) -> None:
    """BERT's products of bytes: of 12 panels, ten and two were items of two cores."""
    ctx = LowerContext(named_target("x86-64-v4+avx512vnni"), ("N",), WeightStore())
    p = plan_product(ctx, 1, symbol("N") * 128, columns, 1, depth, input_type=U8)
    panels, together = int(p.n_panels), int(p.panels_per_item)
    assert together - panels % together < int(p.n_column_groups) or panels % together == 0
