"""Products between reshapes."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.unflatten_products import UnflattenProducts
from passes.check import check_pass

TEXT = """graph @g(%x: f32[N,5,4]) {{
    %w = const f32[4,4] "w"\n %b = const f32[4] [1, 2, 3, 4]\n %c = const i64[2] [-1, 4]\n {}\n}}"""
ROWS = "%s = Shape(%x)\n %1 = Reshape(%x, %c)\n "


@pytest.mark.parametrize(("product", "after"), [
    ("Gemm(%1, %w, %b) {transB=1}", "%2 = MatMul(%x, %w)\n %3 = Add(%2, %b)\n return %3"),
    ("Gemm(%1, %w)", "%3 = MatMul(%x, %w)\n return %3"),
    ("MatMul(%1, %w)", "%3 = MatMul(%x, %w)\n return %3"),
])  # fmt: skip
def test_rows_stay_apart(product: str, after: str) -> None:
    check_pass(UnflattenProducts(), TEXT.format(f"{ROWS}%2 = {product}\n %3 = Reshape(%2, %s)\n return %3"),
               TEXT.format(after))


@pytest.mark.parametrize(("body", "reason"), [
    (ROWS + "%2 = Gemm(%1, %w) {alpha=2}\n %3 = Reshape(%2, %s)\n return %3", "plain product"),
    (ROWS + "%2 = Gemm(%1, %w)\n %3 = Reshape(%2, %s)\n return %3, %2", "single use"),
    (ROWS + "%d = const i64[3] [-1, 2, 4]\n %2 = MatMul(%1, %w)\n %4 = Concat(%2, %2) {axis=0}\n %3 = Reshape(%4, %d)\n return %3",
     "no matrix product"),
    ("%2 = MatMul(%x, %w)\n %d = const i64[2] [-1, 4]\n %3 = Reshape(%2, %d)\n return %3", "no matrix product"),
    (ROWS + "%d = const i64[3] [1, -1, 4]\n %2 = MatMul(%1, %w)\n %3 = Reshape(%2, %d)\n return %3", "another way"),
])  # fmt: skip
def test_products_that_stay(body: str, reason: str) -> None:
    check_pass(UnflattenProducts(), TEXT.format(body), None, refuses=reason)
