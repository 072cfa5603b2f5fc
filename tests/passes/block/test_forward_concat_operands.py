"""Parts of a concatenation come from its operands."""

from __future__ import annotations

import pytest

from parax.compiler.passes.block.forward_concat_operands import ForwardConcatOperands
from passes.check import check_pass

PAIR = """graph @g(%x: f32[2,4,3], %y: f32[2,2,3]) {{
    {constants}
    %1 = Concat(%x, %y) {{axis=1}}
    {rest}
}}"""


def test_split_at_the_joints() -> None:
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants="%s = const i64[2] [4, 2]", rest="""%2, %3 = Split(%1, %s) {axis=-2}
        %4 = Relu(%2)\n %5 = Neg(%3)\n return %4, %5"""),
        """graph @g(%x: f32[2,4,3], %y: f32[2,2,3]) {
        %4 = Relu(%x)\n %5 = Neg(%y)\n return %4, %5\n}""")


def test_split_elsewhere_takes_parts_of_the_operands() -> None:
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants="%s = const i64[3] [1, 3, 2]", rest="""%2, %3, %4 = Split(%1, %s) {axis=1}
        %5 = Relu(%2)\n %6 = Neg(%3)\n %7 = Abs(%4)\n return %5, %6, %7"""),
        """graph @g(%x: f32[2,4,3], %y: f32[2,2,3]) {
        %0 = const i64[1] [0]\n %1 = const i64[1] [1]\n %2 = const i64[1] [1]
        %a = const i64[1] [1]\n %b = const i64[1] [4]\n %c = const i64[1] [1]
        %3 = Slice(%x, %0, %1, %2)\n %4 = Slice(%x, %a, %b, %c)
        %5 = Relu(%3)\n %6 = Neg(%4)\n %7 = Abs(%y)\n return %5, %6, %7\n}""")


def test_split_across_a_joint_stays() -> None:
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants="%s = const i64[2] [3, 3]", rest="%2, %3 = Split(%1, %s) {axis=1}\n return %2, %3"), None,
        refuses="no operands of a Concat")


@pytest.mark.parametrize(("begin", "end", "operand"), [(0, 4, "%x"), (4, 99, "%y"), (-2, 6, "%y")])
def test_slice_of_a_whole_operand(begin: int, end: int, operand: str) -> None:
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants=f"%b = const i64[1] [{begin}]\n %e = const i64[1] [{end}]\n %a = const i64[1] [1]",
                    rest="%2 = Slice(%1, %b, %e, %a)\n %3 = Relu(%2)\n return %3"),
        f"graph @g(%x: f32[2,4,3], %y: f32[2,2,3]) {{\n %3 = Relu({operand})\n return %3\n}}")


@pytest.mark.parametrize(("axis", "step", "begin", "end"), [
    (1, 2, 0, 4),   # every second one
    (1, 1, 3, 5),   # across the joint
    (0, 1, 0, 1),   # another axis
    (1, -1, 3, 0),  # backwards
    (1, 1, 2, 2),   # nothing
])  # fmt: skip
def test_slices_that_stay(axis: int, step: int, begin: int, end: int) -> None:
    constants = "\n ".join(f"%{name} = const i64[1] [{value}]"
                           for name, value in (("b", begin), ("e", end), ("a", axis), ("s", step)))
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants=constants, rest="%2 = Slice(%1, %b, %e, %a, %s)\n %3 = Relu(%2)\n return %3"), None)


def test_a_run_of_operands_where_nobody_else_reads_the_rest() -> None:
    text = """graph @g(%x: f32[2,4], %y: f32[2,2], %z: f32[2,3]) {{
        %b = const i64[1] [4]\n %e = const i64[1] [9]\n %a = const i64[1] [1]
        %1 = Concat(%x, %y, %z) {{axis=1}}\n %2 = Slice(%1, %b, %e, %a)\n %3 = Relu(%2){rest}\n}}"""
    check_pass(ForwardConcatOperands(), text.format(rest="\n return %3"),
        """graph @g(%x: f32[2,4], %y: f32[2,2], %z: f32[2,3]) {
        %1 = Concat(%y, %z) {axis=1}\n %3 = Relu(%1)\n return %3\n}""")
    check_pass(ForwardConcatOperands(), text.format(rest="\n %4 = Neg(%1)\n return %3, %4"), None)


@pytest.mark.parametrize(("index", "operand", "inside"), [(0, "x", 0), (3, "x", 3), (5, "y", 1), (-1, "y", 1), (-6, "x", 0)])
def test_gather_of_one_position(index: int, operand: str, inside: int) -> None:
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants=f"%i = const i64[] {index}", rest="%2 = Gather(%1, %i) {axis=1}\n %3 = Relu(%2)\n return %3"),
        f"""graph @g(%x: f32[2,4,3], %y: f32[2,2,3]) {{
        %i = const i64[] {inside}\n %2 = Gather(%{operand}, %i) {{axis=1}}\n %3 = Relu(%2)\n return %3\n}}""")


def test_gather_of_several_positions_or_one_that_a_run_chooses_stays() -> None:
    check_pass(ForwardConcatOperands(),
        PAIR.format(constants="%i = const i64[2] [0, 5]", rest="%2 = Gather(%1, %i) {axis=1}\n return %2"), None)
    check_pass(ForwardConcatOperands(), """graph @g(%x: f32[4], %y: f32[2], %i: i64[]) {
        %1 = Concat(%x, %y) {axis=0}\n %2 = Gather(%1, %i)\n return %2\n}""", None, evaluate=False)


def test_open_sizes_are_compared_as_polynomials() -> None:
    check_pass(ForwardConcatOperands(), """graph @g(%x: f32[N,3], %y: f32[M,3]) {
        %0 = const i64[1] [0]\n %z = const i64[] 0\n %big = const i64[1] [9223372036854775807]
        %s = Shape(%x)\n %n = Gather(%s, %z)\n %b = Unsqueeze(%n, %0)
        %1 = Concat(%x, %y) {axis=0}\n %2 = Slice(%1, %b, %big, %0)\n %3 = Relu(%2)\n return %3\n}""",
        """graph @g(%x: f32[N,3], %y: f32[M,3]) {\n %3 = Relu(%y)\n return %3\n}""")


def test_an_empty_operand_is_passed_over() -> None:
    check_pass(ForwardConcatOperands(), """graph @g(%x: f32[0,3], %y: f32[2,3], %w: f32[1,3]) {
        %0 = const i64[1] [0]\n %e = const i64[1] [2]
        %1 = Concat(%x, %y, %w) {axis=0}\n %2 = Slice(%1, %0, %e, %0)\n %3 = Relu(%2)\n %4 = Neg(%1)\n return %3, %4\n}""",
        """graph @g(%x: f32[0,3], %y: f32[2,3], %w: f32[1,3]) {
        %1 = Concat(%x, %y, %w) {axis=0}\n %3 = Relu(%y)\n %4 = Neg(%1)\n return %3, %4\n}""")


def test_all_parts_of_a_split_joined_again_are_the_whole() -> None:
    text = """graph @g(%x: f32[2,6]) {{
        %1, %2, %3 = Split(%x) {{axis=1, num_outputs=3}}\n %4 = Concat({parts}) {{axis={axis}}}\n %5 = Relu(%4)\n return %5\n}}"""
    check_pass(ForwardConcatOperands(), text.format(parts="%1, %2, %3", axis=-1),
               "graph @g(%x: f32[2,6]) {\n %5 = Relu(%x)\n return %5\n}")
    for parts, axis in (("%1, %3, %2", 1), ("%1, %2", 1), ("%1, %2, %3", 0)):
        check_pass(ForwardConcatOperands(), text.format(parts=parts, axis=axis), None)
