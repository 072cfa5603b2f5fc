"""Pipelines as text: both ways, what is refused and with which help, and that every pass can be named."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields

import pytest

from parax.compiler import passes as room
from parax.compiler.passes.base import BlockPass, DataflowPass, Item, NodePass, Pass, StepPass
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.node.constant_folding import ConstantFolding
from parax.compiler.passes.partition.result_nodes import ResultNodes
from parax.compiler.passes.pipelines import known_passes, pipeline
from parax.compiler.passes.quantize.equalise_channels import EqualiseChannels
from parax.compiler.passes.quantize.quantize import Quantize
from parax.compiler.passes.quantize.quantize_weights import QuantizeWeights
from parax.compiler.passes.quantize.round_weights import RoundWeights
from parax.compiler.passes.surroundings import Surroundings
from parax.compiler.passes.text import option_kinds, parse_passes, print_passes
from parax.errors import UsageError
from sampling import thorough

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

KNOWN = known_passes()
AROUND = Surroundings(lambda op: True, lambda node, v, t: False, lambda node, given: [], 2.5e6)
VALUES = {"int": st.integers(-5, 1 << 40), "bool": st.booleans(), "float": st.floats(allow_nan=False, allow_infinity=False)}


@st.composite
def a_pass(draw: hypothesis.strategies.DrawFn, of_steps: bool) -> Pass:
    kind = draw(st.sampled_from([kind for kind in KNOWN.values() if issubclass(kind, StepPass) == of_steps]))
    options = {name: draw(VALUES[type_]) for name, type_ in option_kinds(kind).items() if draw(st.booleans())}
    return AROUND.make(kind, **options)


PASSES, STEPS = (
    st.lists(st.one_of(a_pass(of_steps), st.lists(a_pass(of_steps), min_size=1, max_size=3)), max_size=5)
    for of_steps in (False, True)
)


@thorough(200, derandomize=True)
@hypothesis.given(PASSES, STEPS)
def test_what_is_printed_reads_as_the_same_passes(passes: list[Item], steps: list[Item]) -> None:
    hypothesis.assume(passes or steps)
    text = print_passes(passes, steps, AROUND)
    found, own = parse_passes(text, KNOWN, AROUND)
    assert (found, own or []) == (passes, steps)
    spaced = text.replace(",", " ,\n ").replace("(", " ( ").replace("{", " { ").replace("=", " = ")
    assert parse_passes(spaced, KNOWN, AROUND) == (found, own)


@thorough(300, derandomize=True)
@hypothesis.given(st.text("a-({=,)}1 ", max_size=12) | st.sampled_from(["dead-code" + end for end in ",({=)}1"]))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_passes(text, KNOWN, AROUND)
    except UsageError:
        return
    assert print_passes(*[part or [] for part in parse_passes(text, KNOWN, AROUND)])


@pytest.mark.parametrize("level", range(4))
def test_every_level_can_be_written(level: int) -> None:
    made = pipeline(level, AROUND)
    again = pipeline(level, AROUND, print_passes(made.passes, made.step_passes))
    assert (again.passes, again.step_passes) == (made.passes, made.step_passes)


def test_native_steps_keep_the_passes_of_the_level_unless_the_text_names_others() -> None:
    assert pipeline(2, AROUND, "dead-code").step_passes == pipeline(2, AROUND).step_passes
    assert [p.pass_name() for p in pipeline(2, AROUND, "dead-code,steps(read-in-place)").every_pass()] == [
        "dead-code", "read-in-place", "result-nodes"]  # fmt: skip


def test_options_win_over_what_is_handed_in_and_the_rest_of_it_stays() -> None:
    (one, two), _ = parse_passes("fuse-depthwise{cache_nbytes=7}, constant-folding {max_growth=2}", KNOWN, AROUND)
    assert getattr(one, "cache_nbytes", None) == 7.0
    assert two == ConstantFolding(AROUND.evaluate, max_growth=2)


@pytest.mark.parametrize(("text", "message"), [
    ("fuse-elementwize", "no such pass; expected one of algebraic-simplification, .*found fuse-elementwize; did you mean fuse-elementwise"),
    ("FuseElementwise", "found FuseElementwise; did you mean fuse-elementwise"),
    ("qqqq", "found qqqq; `parax passes` says"),
    ("", "no such pass; .*found nothing"),
    ("dead-code,,dead-code", "no such pass; .*found ,"),
    ("fuse-elementwise{max_node=3}", "no such option of fuse-elementwise; expected one of max_nodes, max_operands; "
                                     "found max_node; did you mean max_nodes"),
    ("dead-code{deep=1}", "no such option of dead-code; expected no option of dead-code; found deep"),
    ("decompose-composites{has_kernel=true}", "no such option"),
    ("fuse-elementwise{max_nodes}", "cannot be read; expected max_nodes=VALUE behind .*; found }"),
    ("fuse-elementwise{max_nodes=many}", "max_nodes of fuse-elementwise: not such a value; expected a whole number; found many"),
    ("fuse-depthwise{cache_nbytes=nan}", "expected a number; found nan"),
    ("merge-convolutions{widen=1}", "expected true or false; found 1"),
    ("fuse-elementwise{max_nodes=1,max_nodes=2}", "given twice; found max_nodes of fuse-elementwise"),
    ("fuse-elementwise{max_nodes=1", "expected a comma or }"),
    ("repeat(dead-code", r"expected a comma or \) behind"),
    ("repeat(repeat(dead-code))", "no such pass"),
    ("steps(read-in-place),dead-code", r"expected the end, as steps\(…\) comes last"),
    ("read-in-place", r"a pass in the wrong place; expected inside of steps\(…\), which comes last; found read-in-place"),
    ("steps(dead-code)", r"expected before steps\(…\); found dead-code"),
    ("dead-code dead-code", "expected a comma, or the end behind 'dead-code'; found dead-code"),
])  # fmt: skip
def test_a_wrong_text_is_refused_with_what_there_is(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_passes(text, KNOWN, AROUND)


def test_every_pass_can_be_named_but_those_that_follow_a_schedule_or_measured_ranges() -> None:
    for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(module.name)
    kinds = {kind for base in (NodePass, BlockPass, DataflowPass, StepPass) for kind in base.__subclasses__()}
    ours = {kind for kind in kinds if kind.__module__.startswith(room.__name__)}
    assert ours - {StepPass, EqualiseChannels, Quantize, QuantizeWeights, RoundWeights} == set(KNOWN.values()) and ResultNodes not in ours and len(KNOWN) > 30


def test_every_field_is_an_option_or_handed_in() -> None:
    """But for what the planner alone gives."""
    own = {(kind.pass_name(), f.name) for kind in KNOWN.values() for f in fields(kind)
           if f.name not in option_kinds(kind) and f.name not in AROUND.given(kind)}  # fmt: skip
    assert own == {("merge-convolutions", "pays")}
    assert FuseElementwise().max_nodes == 64
