"""Movements that follow one another become one."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.simplify_movements import SimplifyMovements
from passes.check import check_pass


def test_transposes_cancel() -> None:
    check_pass(SimplifyMovements(), """graph @g(%x: f32[2,3,4]) {
        %1 = Transpose(%x) {perm=[1,2,0]}\n %2 = Transpose(%1) {perm=[2,0,1]}\n %3 = Relu(%2)\n return %3\n}""",
        """graph @g(%x: f32[2,3,4]) {
        %1 = Transpose(%x) {perm=[1,2,0]}\n %3 = Relu(%x)\n return %3\n}""")


def test_transposes_combine() -> None:
    check_pass(SimplifyMovements(), """graph @g(%x: f32[2,3,4]) {
        %1 = Transpose(%x) {perm=[1,2,0]}\n %2 = Transpose(%1) {perm=[1,2,0]}\n return %2 as "y"\n}""",
        """graph @g(%x: f32[2,3,4]) {
        %1 = Transpose(%x) {perm=[1,2,0]}\n %3 = Transpose(%x) {perm=[2,0,1]}\n return %3 as "y"\n}""")


def test_views_of_views_are_one_reshape() -> None:
    check_pass(SimplifyMovements(), """graph @g(%x: f32[N,3,4]) {
        %a = const i64[1] [0]\n %1 = Unsqueeze(%x, %a)\n %2 = Flatten(%1) {axis=2}\n return %2 as "y"\n}""",
        """graph @g(%x: f32[N,3,4]) {
        %a = const i64[1] [0]\n %1 = Unsqueeze(%x, %a)\n %3 = const i64[2] [-1, 12]\n %4 = Reshape(%x, %3)
        return %4 as "y"\n}""")


def test_a_shape_known_but_for_the_batch_is_a_constant() -> None:
    check_pass(SimplifyMovements(), """graph @g(%x: f32[N,6]) {
        %z = const i64[] 0\n %0 = const i64[1] [0]\n %r = const i64[2] [2, 3]
        %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Unsqueeze(%2, %0)\n %4 = Concat(%3, %r) {axis=0}
        %5 = Reshape(%x, %4)\n return %5 as "y"\n}""",
        """graph @g(%x: f32[N,6]) {
        %z = const i64[] 0\n %0 = const i64[1] [0]\n %r = const i64[2] [2, 3]
        %1 = Shape(%x)\n %2 = Gather(%1, %z)\n %3 = Unsqueeze(%2, %0)\n %4 = Concat(%3, %r) {axis=0}
        %6 = const i64[3] [-1, 2, 3]\n %7 = Reshape(%x, %6)\n return %7 as "y"\n}""")


def test_two_unknown_dimensions_need_one_that_is_copied() -> None:
    text = """graph @g(%x: f32[N,S,6]) {{
        %1 = Shape(%x)\n %a = const i64[1] [0]\n %b = const i64[1] [1]\n %i = const i64[2] {index}\n %c = const i64[2] [2, 3]
        %2 = Gather(%1, %i)\n %3 = Concat(%2, %c) {{axis=0}}\n {last}\n}}"""
    check_pass(SimplifyMovements(), text.format(index="[0, 1]", last='%4 = Reshape(%x, %3)\n return %4 as "y"'),
               text.format(index="[0, 1]", last='%5 = const i64[4] [0, 0, 2, 3]\n %6 = Reshape(%x, %5)\n return %6 as "y"'))
    check_pass(SimplifyMovements(), text.format(index="[1, 0]", last="%4 = Reshape(%x, %3)\n return %4"), None)


def test_joins_of_joins_and_slices_of_slices() -> None:
    check_pass(SimplifyMovements(), """graph @g(%x: f32[2,9], %y: f32[2,3]) {
        %b = const i64[1] [1]\n %e = const i64[1] [8]\n %s = const i64[1] [2]\n %m = const i64[1] [-1]\n %f = const i64[1] [-99]
        %1 = Concat(%x, %y) {axis=1}\n %2 = Concat(%1, %x) {axis=-1}
        %3 = Slice(%x, %b, %e, %b, %s)\n %4 = Slice(%3, %m, %f, %b, %m)\n return %2 as "a", %4 as "b"\n}""",
        """graph @g(%x: f32[2,9], %y: f32[2,3]) {
        %b = const i64[1] [1]\n %e = const i64[1] [8]\n %s = const i64[1] [2]
        %1 = Concat(%x, %y) {axis=1}\n %5 = Concat(%x, %y, %x) {axis=1}
        %6 = const i64[1] [7]\n %7 = const i64[1] [0]\n %8 = const i64[1] [1]\n %9 = const i64[1] [-2]
        %3 = Slice(%x, %b, %e, %b, %s)\n %10 = Slice(%x, %6, %7, %8, %9)\n return %5 as "a", %10 as "b"\n}""")


@pytest.mark.parametrize("body", [
    "%1 = Concat(%x, %y) {axis=1}\n %2 = Concat(%1, %1) {axis=1}",  # joined twice
    "%1 = Concat(%x, %y) {axis=1}\n %2 = Concat(%1, %1) {axis=0}",  # along another axis
    "%1 = Transpose(%x)\n %2 = Relu(%1)",
    "%1 = Flatten(%x)\n %2 = Relu(%1)",
])  # fmt: skip
def test_movements_that_stay(body: str) -> None:
    check_pass(SimplifyMovements(), f"graph @g(%x: f32[2,4], %y: f32[2,3]) {{\n{body}\nreturn %2\n}}", None,
               refuses="nothing to merge")


MARGIN = """graph @g(%x: f32[N,3,5,5]) {
    %p = const i64[8] [0, 0, 1, 2, 0, 0, 1, 3]\n %a = const i64[2] [2, 3]\n %v = const f32[] 0.5
    %b = const i64[2] BEGIN\n %e = const i64[2] END\n %1 = Pad(%x, %p, %v)\n %2 = Slice(%1, %b, %e, %a)\n return %2 as "y"\n}"""


@pytest.mark.parametrize(
    ("begin", "end", "after"),
    [  # the padded axes are of 7 and 10 elements; the tensor lies at [1:6] and [2:7] of them
        ("[2, 4]", "[6, 7]", "%2 = Slice(%x, %b, %e, %a)"),
        ("[1, 2]", "[6, 7]", None),
        ("[0, 3]", "[7, 9]", "%1 = Slice(%x, %b, %e, %a)\n %2 = Pad(%1, %p, %v)"),
        ("[0, 1]", "[6, 9]", "%2 = Pad(%x, %p, %v)"),
    ],
)  # fmt: skip
def test_a_part_of_a_tensor_with_margins(begin: str, end: str, after: str | None) -> None:
    kept = {"%2 = Slice(%x, %b, %e, %a)": "%b = const i64[2] [1, 2]\n %e = const i64[2] [5, 5]\n %a = const i64[2] [2, 3]",
            "%1 = Slice(%x, %b, %e, %a)\n %2 = Pad(%1, %p, %v)":
            "%b = const i64[1] [1]\n %e = const i64[1] [5]\n %a = const i64[1] [3]\n"
            "%p = const i64[8] [0, 0, 1, 0, 0, 0, 1, 2]\n %v = const f32[] 0.5",
            "%2 = Pad(%x, %p, %v)": "%p = const i64[8] [0, 0, 1, 1, 0, 0, 0, 2]\n %v = const f32[] 0.5"}  # fmt: skip
    text = MARGIN.replace("BEGIN", begin).replace("END", end)
    if after is None:
        expected = 'graph @g(%x: f32[N,3,5,5]) {\n return %x as "y"\n}'
    else:
        expected = f'graph @g(%x: f32[N,3,5,5]) {{\n {kept[after]}\n {after}\n return %2 as "y"\n}}'
    check_pass(SimplifyMovements(), text, expected)


@pytest.mark.parametrize(
    ("pad", "step"), [('{mode="reflect"}', "[1, 1]"), ("", "[2, 1]")]
)  # fmt: skip
def test_other_margins_and_steps_stay(pad: str, step: str) -> None:
    check_pass(SimplifyMovements(), f"""graph @g(%x: f32[N,3,5,5]) {{
        %p = const i64[8] [0, 0, 1, 2, 0, 0, 1, 3]\n %a = const i64[2] [2, 3]\n %b = const i64[2] [1, 1]
        %e = const i64[2] [6, 7]\n %s = const i64[2] {step}
        %1 = Pad(%x, %p) {pad}\n %2 = Slice(%1, %b, %e, %a, %s)\n return %2 as "y"\n}}""", None)
