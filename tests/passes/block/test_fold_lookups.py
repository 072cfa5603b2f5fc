"""Products that move into the tables whose rows they multiply. The results prove the tables' contents."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.fold_lookups import FoldLookups
from passes.check import check_pass

TABLES = '%t = const f32[5,4] "t"\n %u = const f32[4,2] "u"\n'
ONE = """graph @g(%i: i64[N], %j: i64[N]) {{
    {tables} %w = const f32[4,3] "w"\n %b = const f32[3] [1, 2, 3]\n %1 = Gather(%t, %i)\n {body}\n return %4\n}}"""
TWO = """graph @g(%i: i64[N], %j: i64[N]) {{
    {tables} %w = const f32[6,3] "w"\n %x = const f32[3,6] "x"\n %b = const f32[3] [1, 2, 3]
    %1 = Gather(%t, %i)\n %2 = Gather(%u, %j)\n %3 = Concat(%1, %2) {{axis=1}}\n {body}\n return %4\n}}"""
FOLDED_ONE = 'graph @g(%i: i64[N], %j: i64[N]) {\n %t = const f32[5,3] "t"\n %4 = Gather(%t, %i)\n return %4\n}'
FOLDED_TWO = """graph @g(%i: i64[N], %j: i64[N]) {\n %t = const f32[5,3] "t"\n %u = const f32[4,3] "u"
    %1 = Gather(%t, %i)\n %2 = Gather(%u, %j)\n %4 = Add(%1, %2)\n return %4\n}"""


@pytest.mark.parametrize("body", ["%4 = MatMul(%1, %w)", "%4 = Gemm(%1, %w, %b) {alpha=0.5, beta=2.0}"])
def test_a_product_moves_into_the_table_of_its_rows(body: str) -> None:
    check_pass(FoldLookups(), ONE.format(tables=TABLES, body=body), FOLDED_ONE)


@pytest.mark.parametrize("body", [
    "%4 = MatMul(%3, %w)", "%4 = Gemm(%3, %w)", "%4 = Gemm(%3, %w, %b)", "%4 = Gemm(%3, %x, %b) {transB=1}",
])  # fmt: skip
def test_rows_side_by_side_become_a_sum(body: str) -> None:
    check_pass(FoldLookups(), TWO.format(tables=TABLES, body=body), FOLDED_TWO)


def test_a_bias_of_rank_0() -> None:
    """It has no last axis to look at."""
    body = "%s = const f32[] 2\n %4 = Gemm(%1, %w, %s)"
    check_pass(FoldLookups(), ONE.format(tables=TABLES, body=body), FOLDED_ONE)


def test_indices_of_higher_rank() -> None:
    text = 'graph @g(%i: i64[N,2]) {{\n %t = const f32[5,{n}] "t"\n{rest}\n}}'
    check_pass(FoldLookups(),
               text.format(n=4, rest=' %w = const f32[4,3] "w"\n %1 = Gather(%t, %i)\n %2 = MatMul(%1, %w)\n return %2'),
               text.format(n=3, rest=" %2 = Gather(%t, %i)\n return %2"))


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("return %4", "return %4, %1", "for it alone"),
    ("return %4", "%5 = Gather(%t, %j)\n return %4, %5", "for it alone"),
    ("Gather(%t, %i)", "Gather(%t, %i) {axis=1}", "for it alone"),
    ('[6,3] "w"', '[6,30] "w"', "grow too much"),
    ("MatMul(%3, %w)", "MatMul(%x, %3)", "constant weights"),
    ("{axis=1}", "{axis=0}", "for it alone"),
])  # fmt: skip
def test_others_stay(old: str, new: str, reason: str) -> None:
    tables = TABLES.replace("[5,4]", "[5,5]").replace("[4,2]", "[4,5]") if "axis=0" in new else TABLES
    text = TWO.format(tables=tables, body="%4 = MatMul(%3, %w)").replace(old, new)
    if new == "Gather(%t, %i) {axis=1}":
        text = text.replace("[5,4]", "[4,5]").replace("%i: i64[N]", "%i: i64[4]").replace("%j: i64[N]", "%j: i64[4]")
    if "axis=0" in new:
        text = text.replace("[6,3]", "[5,3]").replace("[3,6]", "[3,5]")
    if new == "MatMul(%x, %3)":
        text = text.replace("[3,6]", "[3,9]").replace("i64[N]", "i64[9]")
    assert new in text
    check_pass(FoldLookups(), text, None, refuses=reason, evaluate=False)


@pytest.mark.parametrize("options", [{"max_growth": 0.5}, {"max_flops": 10}])
def test_limits(options: dict[str, float]) -> None:
    text = ONE.format(tables=TABLES, body="%4 = MatMul(%1, %w)")
    check_pass(FoldLookups(**options), text, None, refuses="grow too much")
