"""SeparateOutputs and NameOutputs: which outputs need bytes, or a value, of their own."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.dataflow.name_outputs import NameOutputs
from parax.compiler.passes.dataflow.separate_outputs import SeparateOutputs
from parax.compiler.passes.dataflow.split_steps import split_steps
from parax.errors import UsageError
from passes.check import check_pass

SHARED = """graph @g(%x: f32[4]) {{
  %c = const f32[4] [1, 2, 3, 4]
  %1 = Relu(%x)
  {}
}}"""
STEPS = """graph @g(%x: f32[4]) {{
  %1 = NonZero(%x)
  {}
}}"""


def test_every_output_gets_bytes_of_its_own() -> None:
    graph = check_pass(SeparateOutputs(), SHARED.format('return %x, %c, %1 as "a", %1 as "b"'), SHARED.format(
        '%2 = parax::Copy(%x)\n %3 = parax::Copy(%c)\n %4 = parax::Copy(%1)\n return %2 as "x", %3 as "c", %1 as "a", %4 as "b"'))
    assert graph.output_names == ["x", "c", "a", "b"]


def test_a_view_shares_the_bytes_of_what_it_shows() -> None:
    views = '%s = const i64[2] [2, 2]\n %2 = Reshape(%1, %s)\n '
    check_pass(SeparateOutputs(), SHARED.format(views + 'return %1 as "a", %2 as "b"'),
               SHARED.format(views + '%3 = parax::Copy(%2)\n return %1 as "a", %3 as "b"'))


def test_outputs_that_are_computed_apart_stay() -> None:
    check_pass(SeparateOutputs(), SHARED.format("%2 = Exp(%x)\n return %1, %2"), None, refuses="bytes of its own")


def test_every_output_of_several_steps_gets_a_value_of_its_own() -> None:
    check_pass(NameOutputs(), STEPS.format('return %x as "a", %1 as "b", %1 as "c"'), STEPS.format(
        '%2 = Identity(%x)\n %3 = Identity(%1)\n return %2 as "a", %1 as "b", %3 as "c"'))


@pytest.mark.parametrize(("text", "reason"), [
    (SHARED.format('return %x, %1 as "a", %1 as "b"'), "one native step"),
    (STEPS.format("%2 = Relu(%x)\n return %1, %2"), "a value of its own"),
])  # fmt: skip
def test_outputs_that_can_be_named_stay(text: str, reason: str) -> None:
    check_pass(NameOutputs(), text, None, refuses=reason)


def test_steps_refuse_an_output_that_no_name_can_be_given_to() -> None:
    graph = parse_graph(STEPS.format('return %x as "a", %1 as "b"'))
    with pytest.raises(UsageError, match="output a: an output that has no value of its own; end the passes"):
        split_steps(graph)
