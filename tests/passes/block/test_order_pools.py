"""OrderPools: pools and 1×1 convolutions change places where the other order takes less."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.order_pools import OrderPools
from passes.check import check_pass

GRAPH = 'graph @g(%x: f32[N,8,6,6]) {{\n%w = const f32[4,8,1,1] "w"\n %b = const f32[4] "b"\n {}\n}}'
MEAN = "{kernel_shape=[3,3], pads=[1,1,1,1]}"
ZEROS_TOO = "{kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1}"
HALVED = "{kernel_shape=[2,2], strides=[2,2]}"


def test_a_mean_is_taken_of_fewer_channels() -> None:
    check_pass(
        OrderPools(),
        GRAPH.format(f'%1 = AveragePool(%x) {MEAN}\n %2 = Conv(%1, %w, %b)\n return %2 as "y"'),
        GRAPH.format(f'%1 = Conv(%x, %w, %b)\n %2 = AveragePool(%1) {MEAN}\n return %2 as "y"'),
    )


def test_the_bias_waits_where_zeros_are_counted() -> None:
    check_pass(
        OrderPools(),
        GRAPH.format(f'%1 = AveragePool(%x) {ZEROS_TOO}\n %2 = Conv(%1, %w, %b)\n return %2 as "y"'),
        GRAPH.format(
            f'%c = const f32[4,1,1] "c"\n %1 = Conv(%x, %w)\n %2 = AveragePool(%1) {ZEROS_TOO}\n'
            '%3 = Add(%2, %c)\n return %3 as "y"'
        ),
    )


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_leaving_pixels_out_is_the_convolutions_stride(pool: str) -> None:
    check_pass(
        OrderPools(),
        GRAPH.format(
            f'%1 = {pool}(%x) {{kernel_shape=[1,1], strides=[2,3]}}\n %2 = Conv(%1, %w, %b)\n return %2 as "y"'
        ),
        GRAPH.format('%2 = Conv(%x, %w, %b) {pads=[0,0,0,0], strides=[2,3]}\n return %2 as "y"'),
    )


def test_a_pool_that_leaves_fewer_pixels_goes_first() -> None:
    check_pass(
        OrderPools(),
        GRAPH.format(f'%1 = Conv(%x, %w, %b)\n %2 = AveragePool(%1) {HALVED}\n return %2 as "y"'),
        GRAPH.format(f'%1 = AveragePool(%x) {HALVED}\n %2 = Conv(%1, %w, %b)\n return %2 as "y"'),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"%1 = AveragePool(%x) {MEAN}\n %2 = Conv(%1, %w)\n return %2, %1", None),  # another reader
        (f"%1 = MaxPool(%x) {MEAN}\n %2 = Conv(%1, %w)\n return %2", "no mean"),
        (f"%1 = AveragePool(%x) {HALVED}\n %2 = Conv(%1, %w)\n return %2", "leaves pixels out"),
        (f"%u = const f32[8,8,1,1] \"u\"\n %1 = AveragePool(%x) {MEAN}\n %2 = Conv(%1, %u)\n return %2", "no fewer channels"),
        (f"%t = const f32[4,8,3,3] \"t\"\n %1 = AveragePool(%x) {MEAN}\n %2 = Conv(%1, %t)\n return %2", "more than one tap"),
        (f"%g = const f32[4,4,1,1] \"g\"\n %1 = AveragePool(%x) {MEAN}\n %2 = Conv(%1, %g) {{group=2}}\n return %2",
         "or groups"),
        (f"%1 = Conv(%x, %w)\n %2 = AveragePool(%1) {MEAN}\n return %2", "leaves no pixels out"),
        ("%1 = Conv(%x, %w, %b)\n %2 = AveragePool(%1) {kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1], "
         "count_include_pad=1}\n return %2", "counts zeros"),
        (f"%1 = Conv(%x, %w)\n %2 = MaxPool(%1) {HALVED}\n return %2", None),
        ("%1, %i = MaxPool(%x) {kernel_shape=[1,1], strides=[2,2]}\n %2 = Conv(%1, %w)\n return %2, %i", None),
    ],
)  # fmt: skip
def test_must_not_fire(text: str, reason: str | None) -> None:
    check_pass(OrderPools(), GRAPH.format(text), None, refuses=reason)
