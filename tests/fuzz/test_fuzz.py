"""A fixed share of the fuzzer with every run of the tests; CI runs more, with another seed."""

from __future__ import annotations

import math
import os
import random

import numpy as np
import onnx
import pytest
from onnx import parser

from fuzz.compare import Expected, strict_difference, within_spread
from fuzz.configurations import Arrangement, Configuration, draw
from fuzz.generate import Case
from fuzz.models import Source
from fuzz.oracles import Rounding
from fuzz.others import NoOracle
from fuzz.pool import Pool, trials_of
from fuzz.reduce import Failing, Reducer
from fuzz.trial import WRONG, Outcome, try_case

SEED, GRAPHS = "tests", 200
PLAIN = Configuration(0, "native", "throughput", "sequential", "default", (Arrangement(1, 1, "sequential"),))
MODEL = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[N,3] x) => (float[N,3] y, float[N,3] z) { a = Exp(x) b = Add(a, x) y = Tanh(b) z = Neg(x) }"""


@pytest.mark.slow
def test_random_graphs() -> None:
    pool = Pool(trials_of(Source(SEED)), GRAPHS, len(os.sched_getaffinity(0)), timeout=60.0)
    failed = [r for r in pool if r.outcome.failed]
    shown = (f"--seed {SEED} --only {r.number}: {r.outcome.status}: {r.outcome.problem}" for r in failed)
    assert not failed, "\n".join(shown)


def _case(n: int = 4) -> Case:
    return Case("t", parser.parse_model(MODEL), [{"x": np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)}])


def test_a_right_result_passes_and_a_wrong_one_does_not() -> None:
    case = _case()
    expected = Expected(case.model, case.feeds[0])
    right = dict(expected.others["onnxruntime"])
    assert expected.problem(right) == ""
    wrong = {**right, "y": right["y"].copy()}
    wrong["y"][1, 2] *= np.float32(1 + 1e-4)
    assert "output y" in expected.problem(wrong)
    assert "shape" in expected.problem({**right, "z": right["z"][:1]})


def test_integers_and_infinities_are_compared_exactly() -> None:
    assert strict_difference(np.array([1, 2]), np.array([1, 3]))
    assert not strict_difference(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]))
    assert strict_difference(np.array([np.inf]), np.array([-np.inf]))
    assert strict_difference(np.array([1.0]), np.array([np.inf]))
    assert strict_difference(np.array([1.0]), np.array([np.nan]))


def test_sums_of_many_jumps_may_lie_beyond_the_few_that_were_met() -> None:
    """tanh of large numbers, cast to integers, is 1 or 0; convolved, a sum of many such."""
    sums = [np.array([n, 7, n % 2]) for n in range(100, 120)]
    for found, right in ((95, True), (135, True), (80, False), (140, False)):
        assert within_spread(np.array([found, 7, 0]), sums).tolist() == [right, True, True]
    assert within_spread(np.array([100, 8, 2]), sums).tolist() == [True, False, False]  # nothing jumps, or one thing


def test_float64_is_judged_in_float64() -> None:
    """onnx.reference rounds Erf to float32, and ONNX Runtime has none for float64."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (double[3] x) => (double[3] y) { y = Erf(x) }""")
    x = np.array([0.1, 0.7, 1.9])
    exact = np.array([math.erf(v) for v in x])
    expected = Expected(model, {"x": x})
    assert expected.problem({"y": exact}) == ""
    assert "output y" in expected.problem({"y": exact.astype(np.float32).astype(np.float64)})


def test_an_index_may_come_from_a_tie_that_rounding_makes() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float16[6] x) => (int64[1] y) { s = Sigmoid(x) y = ArgMax(s) }""")
    x = np.array([-1, 9, 9.5, 10, 3, 4], np.float16)
    expected = Expected(model, {"x": x})
    assert all(expected.problem({"y": np.array([i])}) == "" for i in (2, 3))
    assert "output y" in expected.problem({"y": np.array([0])})
    assert "output y" in expected.problem({"y": np.array([5])})


def test_a_rounding_near_a_half_may_go_either_way() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) <float three = {3}, float w = {1.5}> {
            a = Div(x, three) b = Mul(a, w) y = Round(b) }""")
    expected = Expected(model, {"x": np.array([1, 4], np.float32)})
    found = expected.others["onnxruntime"]["y"]
    assert expected.problem({"y": np.array([1.0 - found[0], found[1]], np.float32)}) == ""
    assert expected.problem({"y": np.array([found[0], 3.0], np.float32)}) != ""


@pytest.mark.parametrize("sums", ["s = ReduceSum<keepdims = 0>(x)", "s = ReduceMean<keepdims = 0>(x)",
                                  "t = MatMul(x, ones) s = Squeeze(t)"])  # fmt: skip
def test_what_cancels_may_vanish_in_another_order(sums: str) -> None:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x) => (bool y) <float[3] ones = {{1, 1, 1}}> {{ {sums} y = Cast<to = 9>(s) }}""")
    for small, either in ((0.25, True), (1e12, False)):
        expected = Expected(model, {"x": np.array([2.6e15, small, -2.6e15], np.float32)})
        assert expected.problem({"y": np.array(True)}) == ""
        assert (expected.problem({"y": np.array(False)}) == "") == either


@pytest.mark.parametrize("sums", ["ReduceSum<keepdims = 0>(x)", "ReduceMean<keepdims = 0>(x)", "Add(x, x)",
                                  "Sub(x, c)"])  # fmt: skip
@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_what_is_not_finite_never_vanishes(sums: str, number: float) -> None:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x) => (y) <float[3] c = {{1, 1, 1}}> {{ y = {sums} }}""")
    expected = Expected(model, {"x": np.full(3, number, np.float32)})
    right = expected.others["onnxruntime"]["y"]
    assert expected.problem({"y": right}) == ""
    assert expected.problem({"y": np.zeros_like(right)}) != ""


def test_a_vectors_fast_product_has_bounds() -> None:
    """NNSmith showed a MatMul of one without: two results that are right, each off the other way, seemed to differ."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, float[3,64] w) => (float[64] y) { y = MatMul(x, w) }""")
    feeds = {"x": np.ones(3, np.float32), "w": np.ones((3, 64), np.float32)}
    assert len(Expected(model, feeds).noisy(4, "fast", "y")) == 5
    assert len(Expected(model, {**feeds, "x": np.array([1, np.inf, 1], np.float32)}).noisy(4, "fast", "y")) == 5


def test_an_integer_of_what_is_not_a_number_is_anything_on_the_way_too() -> None:
    """x86 makes its least integer of NaN, aarch64 makes 0; NNSmith showed that the latter was wrong behind a Neg."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (int32[2] y) { a = Acos(x) b = Cast<to = 6>(a) y = Neg(b) }""")
    expected = Expected(model, {"x": np.array([3.5, 1.0], np.float32)})
    for number, right in ((0, True), (-(2**31), True), (1, False)):
        assert (expected.problem({"y": np.array([number, 0], np.int32)}) == "") == right
    assert expected.problem({"y": np.array([0, 1], np.int32)}) != ""


def test_the_greatest_of_what_nobody_can_say_is_any_of_its_window() -> None:
    """Padding times an infinite weight is NaN or left out: which, decides where the greatest is."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,1,4] x, float[1,1,1,3] w) => (int64[1,1,1,2] i) {
            c = Conv<pads = [0, 1, 0, 1]>(x, w) y, i = MaxPool<kernel_shape = [1, 3]>(c) }""")
    x, w = np.array([[[[1, -2, 3, -4]]]], np.float32), np.array([[[[np.inf, 1, 2]]]], np.float32)
    expected = Expected(model, {"x": x, "w": w})
    for first, second, right in ((0, 1, True), (2, 3, True), (1, 2, True), (3, 1, False), (0, 0, False)):
        assert (expected.problem({"i": np.array([[[[first, second]]]])}) == "") == right


@pytest.mark.parametrize(("p", "overflows"), [(2, False), (3, True)])
def test_a_power_may_overflow_where_its_root_does_not(p: int, overflows: bool) -> None:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,2] x) => (float[1,1,2] y) {{ y = LpPool<p = {p}, kernel_shape = [1]>(x) }}""")
    x = np.array([[[2.6e15, 3.0]]], np.float32)
    expected = Expected(model, {"x": x})
    assert expected.problem({"y": x}) == ""
    assert (expected.problem({"y": np.array([[[np.inf, 3.0]]], np.float32)}) == "") == overflows


def test_a_trial_runs_the_plan() -> None:
    assert try_case(_case(), [PLAIN]).status == "pass"


def test_configurations_have_their_share() -> None:
    drawn = [c for i in range(400) for c in draw(random.Random(i))]
    assert {c.level for c in drawn} == {0, 1, 2, 3}
    assert {c.mode for c in drawn} == {"auto", "sequential", "layered", "pipelined"}
    assert {c.fp for c in drawn} == {"default", "strict", "fast"}
    if len(os.sched_getaffinity(0)) > 1:
        assert {(a.instances, a.cores) for c in drawn for a in c.arrangements} == {(1, 1), (1, 2), (2, 1), (0, 0)}


class _Judge(Reducer):
    """Calls a case wrong as long as it has a Tanh of something that an Exp went into."""

    def _fails(self, candidate: Failing) -> bool:
        ops = [n.op_type for n in candidate.model.graph.node]
        onnx.checker.check_model(candidate.model)
        return "Tanh" in ops


def test_reduction_keeps_what_fails() -> None:
    case = _case()
    found = _Judge(Failing(case.model, tuple(case.feeds), (PLAIN,)), Outcome(WRONG)).run()
    assert [n.op_type for n in found.model.graph.node] == ["Tanh"]
    assert [o.name for o in found.model.graph.output] == ["y"]
    assert found.size[2] == 1


def test_what_rounding_does_is_met_beside_what_nobody_can_say() -> None:
    """A tile with an infinity leaves its neighbours open; Gelu of one of them rounds to 0 or to less, which has no
    logarithm: -Inf and NaN are both right, and must not be taken for NaN alone because the neighbour may be NaN."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,1,4] x) => (float[1,1,1,4] y) <float[1,1,1,1] w = {1}> {
            c = Conv(x, w) e = Gelu(c) y = Log(e) }""")
    expected = Expected(model, {"x": np.array([[[[np.inf, -5.53, 1, 2]]]], np.float32)})
    right = expected.others["nodes" if "onnxruntime" not in expected.others else "onnxruntime"]["y"].copy()
    for value in (np.nan, -np.inf):
        right[0, 0, 0, 1] = value
        assert expected.problem({"y": right}, "default") == ""


@pytest.mark.parametrize("beside", [1.0, np.nan])
def test_what_a_tile_makes_of_a_number_beside_a_large_one_is_met_beside_what_is_not_finite(beside: float) -> None:
    """A tile's error is one of its greatest number, and may be all that is left of a small one, or leave 0: of 1.5 is
    made -5e9, say, or 0, of which Acos takes 0 only."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,1,4] x) => (float[1,1,1,4] y) <float[1,1,1,1] w = {1}> { c = Conv(x, w) y = Acos(c) }""")
    expected = Expected(model, {"x": np.array([[[[2.6e15, 1.5, 1, beside]]]], np.float32)})
    right = expected.others["nodes" if "onnxruntime" not in expected.others else "onnxruntime"]["y"]
    assert np.isnan(right[0, 0, 0, 1])
    for value in (np.nan, np.pi / 2):
        found = right.copy()
        found[0, 0, 0, 1] = value
        assert expected.problem({"y": found}, "default") == ""
        assert (expected.problem({"y": found}, "strict") == "") == np.isnan(value)


def test_sums_of_what_vanishes_inside_of_operators_may_be_zero() -> None:
    """1 + erf(-5.5 / √2) is 0.7 units of float32's rounding of 1, or 0; their mean is 0 where none of four is left."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,1,4,4] x) => (float[1,1,1,1] y)
        { a = Gelu(x) b = AveragePool <kernel_shape = [4, 4]> (a) y = Sign(b) }""")
    expected = Expected(model, {"x": np.full((1, 1, 4, 4), -5.487, np.float32)})
    for value in (-1.0, 0.0):
        assert expected.problem({"y": np.full((1, 1, 1, 1), value, np.float32)}, "default") == ""


def test_integers_made_of_infinities_may_be_the_greatest_and_the_least() -> None:
    """ONNX says nothing of them: ONNX Runtime has the least for both, others saturate."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4] x) => (int64[1] y) { a = Cast <to = 6> (x) y = ArgMax(a) }""")
    expected = Expected(model, {"x": np.array([-7, -np.inf, np.inf, 2], np.float32)})
    for place, right in ((1, True), (2, True), (3, True), (0, False)):
        assert (expected.problem({"y": np.array([place])}) == "") == right, place


def test_without_float64_noise_in_the_models_own_types_says_what_rounding_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sine of a large number moves by much where that number moves by a unit."""

    def refused(*_: object) -> None:
        raise NoOracle("takes too long")

    monkeypatch.setattr(Rounding, "run", refused)
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) { a = Add(x, x) y = Sin(a) }""")
    large = 2e5
    expected = Expected(model, {"x": np.array([large / 2, 0.25], np.float32)})
    right = expected.others["onnxruntime"]["y"]
    for units, passes in ((1, True), (100, False)):
        moved = np.array([np.sin(large + units * 2.0**-6), right[1]], np.float32)
        assert abs(moved[0] - right[0]) > 0.01
        assert (expected.problem({"y": moved}) == "") == passes
    assert expected.problem({"y": right + np.array([0, 0.01], np.float32)}) != ""
