"""Joint projections taken apart, and element-wise operators that pass views."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.hoist_elementwise import HoistElementwise
from parax.compiler.passes.block.split_projections import SplitProjections
from passes.check import check_pass

QKV = """graph @g(%x: f32[N,5,8]) {{
    %w = const f32[8,48] "w"\n %b = const f32[48] "b"\n %s = const i64[5] [-1, 5, 3, 2, 8]
    %i = const i64[] 0\n %j = const i64[] 1\n %k = const i64[] -1\n {}\n}}"""
JOINT = """%1 = MatMul(%x, %w)\n %2 = Add(%1, %b)\n %3 = Reshape(%2, %s)\n %4 = Transpose(%3) {perm=[2,0,3,1,4]}
    %5 = Gather(%4, %i)\n %6 = Gather(%4, %j)\n %7 = Gather(%4, %k)\n return %5, %6, %7"""


def test_queries_keys_and_values_become_three_products() -> None:
    parts = "\n".join(f"""%w{i} = const f32[8,16] "w{i}"\n %b{i} = const f32[16] [{", ".join(16 * ["0"])}]
        %1{i} = MatMul(%x, %w{i})\n %2{i} = Add(%1{i}, %b{i})\n %t = const i64[4] [-1, 5, 2, 8]
        %3{i} = Reshape(%2{i}, %t)\n %4{i} = Transpose(%3{i}) {{perm=[0,2,1,3]}}""".replace("%t", f"%t{i}") for i in range(3))
    check_pass(SplitProjections(), QKV.format(JOINT),
               QKV.format(f'{parts}\n return %40 as "5", %41 as "6", %42 as "7"'))


def test_a_split_of_columns_becomes_products() -> None:
    check_pass(SplitProjections(), QKV.format("%1 = MatMul(%x, %w)\n %2, %3 = Split(%1) {axis=-1, num_outputs=2}\n return %2, %3"),
               QKV.format("""%u = const f32[8,24] "u"\n %v = const f32[8,24] "v"
               %2 = MatMul(%x, %u)\n %3 = MatMul(%x, %v)\n return %2, %3"""))


@pytest.mark.parametrize(("body", "reason"), [
    (JOINT.replace("return %5,", "%8 = Relu(%2)\n return %8,"), "gathered one by one"),
    (JOINT.replace("[2,0,3,1,4]", "[3,0,2,1,4]").replace("%7 = Gather(%4, %k)", "%7 = Relu(%4)"), "gathered one by one"),
    (JOINT.replace("[2,0,3,1,4]", "[3,0,2,1,4]").replace("%k", "%i"), "consecutive columns"),
    ("%1 = MatMul(%x, %w)\n %2, %3 = Split(%1) {axis=1, num_outputs=2}\n return %2, %3", "columns"),
])  # fmt: skip
def test_products_that_stay_whole(body: str, reason: str) -> None:
    check_pass(SplitProjections(), QKV.format(body), None, refuses=reason)


def test_a_scale_passes_reshape_and_transpose() -> None:
    text = 'graph @g(%x: f32[N,5,8]) {{\n%w = const f32[8,8] "w"\n %s = const i64[4] [-1, 5, 2, 4]\n %c = const f32[] 0.5\n{}\n}}'
    check_pass(HoistElementwise(),
               text.format("%1 = MatMul(%x, %w)\n %2 = Reshape(%1, %s)\n %3 = Transpose(%2) {perm=[0,2,1,3]}\n"
                           '%4 = Mul(%3, %c)\n return %4 as "y"'),
               text.format("%1 = MatMul(%x, %w)\n %4 = Mul(%1, %c)\n %2 = Reshape(%4, %s)\n"
                           '%3 = Transpose(%2) {perm=[0,2,1,3]}\n return %3 as "y"'))


@pytest.mark.parametrize(("body", "reason"), [
    ("%1 = Softmax(%x)\n %2 = Flatten(%1)\n %3 = Relu(%2)\n return %3", "kernel's result"),
    ("%1 = MatMul(%x, %w)\n %2 = Flatten(%1)\n %3 = Relu(%2)\n return %3, %2", "no views"),
    ("%1 = MatMul(%x, %w)\n %2 = Flatten(%1)\n %3 = Add(%2, %2)\n return %3", "one tensor"),
    ("%1 = MatMul(%x, %w)\n %2 = Flatten(%1)\n %3 = Relu(%2)\n %4 = Relu(%1)\n return %3, %4", "another reader"),
])  # fmt: skip
def test_operators_that_stay_behind(body: str, reason: str) -> None:
    check_pass(HoistElementwise(), f'graph @g(%x: f32[N,5,8]) {{\n%w = const f32[8,8] "w"\n{body}\n}}', None, refuses=reason)
