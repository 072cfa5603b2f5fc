"""A case with a framework's results: who agrees, who does not, and which reasons explain that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from fuzz import compare, others, widening
from fuzz.compare import Expected
from fuzz.configurations import Arrangement, Configuration
from fuzz.generate import Case, Feeds
from fuzz.halves import kept_wide
from fuzz.known import Freedom
from fuzz.models import INPUT, RESULT, Source, recorded_path
from fuzz.oracles import Rounding
from fuzz.pool import Command, Pool, _is_stopped
from fuzz.trial import DISPUTED, HANG, NO_ORACLE, PASS, UNSTABLE, Outcome, try_case
from fuzz.votes import _refereed

PLAIN = Configuration(0, "native", "throughput", "sequential", "default", (Arrangement(1, 1, "sequential"),))
HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
X = np.array([-6.5, -1.25, 0.75, 3.0])


def _outcome(text: str, x: np.ndarray, said: np.ndarray) -> Outcome:
    return try_case(Case("t", parser.parse_model(HEAD + text), [{"x": x}], recorded={"y": said}), [PLAIN])


def test_all_agree_but_for_rounding() -> None:
    text = "g (double[4] x) => (double[4] y) { a = Exp(x) y = Tanh(a) }"
    right = np.tanh(np.exp(X))
    assert _outcome(text, X, right * (1 + 2e-16)).status == PASS
    outcome = _outcome(text, X, right * (1 + 1e-10))
    assert outcome.status == DISPUTED and "framework: output y at [0]" in outcome.problem


@pytest.mark.parametrize("off, status", [(0.0, UNSTABLE), (1e-4, DISPUTED)])
def test_a_cause_explains_what_it_can_move_a_result_by(off: float, status: str) -> None:
    """PyTorch multiplies by 0.01 in float64, the model by a float32 near it."""
    text = "g (double[4] x) => (double[4] y) { y = LeakyRelu<alpha = 0.01>(x) }"
    outcome = _outcome(text, X, np.where(X < 0, 0.01 * X, X) * (1 + off))
    assert outcome.status == status, outcome.problem


@pytest.mark.parametrize("off, status", [(0.0, UNSTABLE), (1e-4, DISPUTED)])
def test_an_exporter_may_narrow_numbers_without_axes(off: float, status: str) -> None:
    text = "g (double x) => (float y) { a = Cast<to = 1>(x) y = Sin(a) }"
    outcome = _outcome(text, X[1], np.sin(X[1]) * (1 + off))
    assert outcome.status == status, outcome.problem


def test_a_type_that_no_cause_explains_is_disputed() -> None:
    outcome = _outcome("g (float[4] x) => (float[4] y) { y = Neg(x) }", X.astype(np.float32), -X)
    assert outcome.status == DISPUTED and "is float64 [4], not float32 [4]" in outcome.problem


def test_onnx_runtime_has_its_votes() -> None:
    """Its sigmoid of large negative numbers is off by units of 1."""
    text = "g (float[4] x) => (float[4] y) { y = Sigmoid(x) }"
    x = np.array([-11.5, -10.5, -9.75, 2], np.float32)
    exact = (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    outcome = _outcome(text, x, exact)
    assert outcome.status in (PASS, UNSTABLE) and "framework" not in outcome.problem
    assert _outcome(text, x, exact + np.float32(1e-6)).status == DISPUTED


def test_recorded_cases_may_lack_numbers(tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (float[4] x) => (float[4] y) { y = Neg(x) }")
    source = Source("s", recorded=tmp_path)
    onnx.save(model, recorded_path(tmp_path, 3))
    assert not source.has(3)  # the arrays are written last
    x = X.astype(np.float32)
    arrays = {f"{INPUT}x": x, f"{INPUT}unused": x, f"{RESULT}y": -x}
    np.savez(recorded_path(tmp_path, 3).with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
    assert source.has(3) and not source.has(2)
    case = source.case(3)
    assert case.recorded is not None
    assert list(case.feeds[0]) == ["x"] and case.recorded["y"].tolist() == (-x).tolist()
    assert source.words() == ["--seed", "s", "--recorded", str(tmp_path)]


WORKER = """
import json, os, signal, sys, time
say = lambda **record: print(json.dumps(record), flush=True)
first, count, step = map(int, sys.argv[-1].split(":"))
for number in range(first, count, step):
    say(number=number, phase="compile")
    if number == 1:
        time.sleep(60)
    if number == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    say(number=number, outcome={"status": "pass"}, seconds=0.0)
"""


def test_who_stands_still_by_a_signal_does_not_hang(tmp_path: Path) -> None:
    pool, seen = Pool(Command([sys.executable, "-c", WORKER], tmp_path), 3, 3, timeout=2.0), {}
    for record in pool:
        seen[record.number] = record.outcome.status
        for worker in pool.workers:
            if record.number == 1:  # by now number 2 has stood still for as long
                assert _is_stopped(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGCONT)
    assert seen == {0: PASS, 1: HANG, 2: PASS}


def test_a_process_that_has_ended_does_not_stand_still() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not _is_stopped(child.pid)


@pytest.mark.parametrize("off, status", [(3e-5, UNSTABLE), (1e-2, DISPUTED)])
def test_a_mean_of_many_may_be_of_one_after_the_other(off: float, status: str) -> None:
    text = "g (float[1,1,2000,2000] x) => (float[1,1,1,1] y) { y = AveragePool<kernel_shape = [2000, 2000]>(x) }"
    x = np.random.default_rng(0).random((1, 1, 2000, 2000), np.float32)
    outcome = _outcome(text, x, np.full((1, 1, 1, 1), x.mean(dtype=np.float64) * (1 + off), np.float32))
    assert outcome.status == status, outcome.problem


@pytest.mark.parametrize("extreme", [*(f"Reduce{way}<keepdims = 0>" for way in ("Max", "Min")),
                                     "MaxPool<kernel_shape = [4]>"])  # fmt: skip
def test_onnx_runtime_may_leave_nan_out(extreme: str) -> None:
    shape = [1, 1, 1] if "MaxPool" in extreme else []
    text = f"g (float[1,1,4] x) => (float{shape or ''} y) {{ a = Sqrt(x) y = {extreme}(a) }}"
    outcome = _outcome(text, X.astype(np.float32).reshape(1, 1, 4), np.full(shape, np.nan, np.float32))
    assert outcome.status in (PASS, UNSTABLE) and "framework" not in outcome.problem, outcome.problem


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("way", ["Max", "Min"])
def test_onnx_runtime_may_leave_nan_out_of_places(way: str) -> None:
    text = f"g (float[4] x) => (int64 y) {{ a = Sqrt(x) y = Arg{way}<axis = 0, keepdims = 0>(a) }}"
    outcome = _outcome(text, X.astype(np.float32)[::-1].copy(), np.array(2))
    assert outcome.status in (PASS, UNSTABLE) and "framework" not in outcome.problem, outcome.problem


def test_a_crash_of_onnx_runtime_costs_its_vote_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its optimiser faults on some models, which are no less judged by the others."""
    monkeypatch.setattr(others, "_run_optimised", lambda model, feeds: os.kill(os.getpid(), signal.SIGSEGV))
    outcome = _outcome("g (double[4] x) => (double[4] y) { y = Neg(x) }", X, -X)
    assert outcome.status == UNSTABLE and "SIGSEGV" in outcome.problem


MEAN = "g (float[2048,3] x) => (float[1,3] y) { axes = Constant<value_ints = [0]>() y = ReduceMean(x, axes) }"
EQUAL = np.full((2048, 3), 0.3314544, np.float32)


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("off, status", [(1.5e-5, UNSTABLE), (1e-3, DISPUTED)])
def test_float64_is_the_referee_of_sums_in_other_orders(off: float, status: str) -> None:
    """Equal terms one after the other: all roundings go the same way. More than that no order explains."""
    outcome = _outcome(MEAN, EQUAL, EQUAL[:1] * np.float32(1 + off))
    assert outcome.status == status, outcome.problem
    assert "adds in another order" in outcome.problem or status != UNSTABLE


@pytest.mark.parametrize("ours, theirs, says", [
    (2e-5, 1e-6, "less than parax promises"), (1e-6, 1.5e-5, "adds in another order"), (1e-4, 1e-6, ""),
    (1e-6, 1e-3, ""),
])  # fmt: skip
def test_the_referee_allows_what_is_promised_or_nearer(ours: float, theirs: float, says: str) -> None:
    expected = Expected(parser.parse_model(HEAD + MEAN), {"x": EQUAL})
    found, said = (EQUAL[:1] * np.float32(1 + off) for off in (ours, theirs))
    cause = _refereed(expected, "y", "framework", found, said, "strict")
    assert says in cause and bool(says) == bool(cause)


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("said", [np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max])
@pytest.mark.parametrize("x", [np.inf, -np.inf, np.nan, 1e30])
def test_integers_of_infinities_are_any(x: float, said: int) -> None:
    """And so is what is computed of them."""
    text = "g (float[2] x) => (int64[2] y) { a = Cast<to = 7>(x) y = Max(a, a) }"
    assert _outcome(text, np.array([x, 5], np.float32), np.array([said, 5])).status in (PASS, UNSTABLE)
    assert _outcome(text, np.array([x, 5], np.float32), np.array([said, 6])).status == DISPUTED


HALVES = np.array([12, 11.5, -1], np.float16)
OPTIMISED = replace(PLAIN, level=2)


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("said, status", [(np.inf, UNSTABLE), (-np.inf, DISPUTED), (9, DISPUTED)])
def test_float16_overflows_where_parax_keeps_float32(said: float, status: str) -> None:
    """docs/data-types.md promises so; whoever rounds behind every operator has an infinity there, and nothing else."""
    text = "g (float16[3] x) => (float16[3] y) { a = Exp(x) y = Log(a) }"
    case = Case("t", parser.parse_model(HEAD + text), [{"x": HALVES}])
    case = replace(case, recorded={"y": np.array([said, said, -1], np.float16)})
    outcome = try_case(case, [OPTIMISED])
    assert outcome.status == status, outcome.problem
    assert "where parax keeps float32" in outcome.problem or status != UNSTABLE


@pytest.mark.parametrize("fp, y, is_right", [
    ("default", [12, 11.5, -1], True), ("default", [np.inf, np.inf, -1], True), ("strict", [12, 11.5, -1], False),
    ("strict", [np.inf, np.inf, -1], True), ("default", [12, 9, -1], False), ("default", [12, 11.5, 1], False),
])  # fmt: skip
def test_without_onnx_runtime_either_range_of_float16_is_right_but_for_strict(
    fp: str, y: list[float], is_right: bool
) -> None:
    text = "g (float16[3] x) => (float16[3] y) { a = Exp(x) y = Log(a) }"
    expected = Expected(parser.parse_model(HEAD + text), {"x": HALVES}, refused={"onnxruntime": "not asked"})
    assert (expected.problem({"y": np.array(y, np.float16)}, fp) == "") is is_right


@pytest.mark.parametrize("body, wide", [
    ("a = Exp(x) y = Log(a)", "ay"),
    ("a = Exp(x) b = Cast<to = 1>(a) c = Exp(b) y = Cast<to = 10>(c)", "a"),
    ("a = Identity(x) b = Exp(a) y = Concat<axis = 0>(a, b)", "b"),
    ("a = Exp(x) b = Neg(x) y = Concat<axis = 0>(a, b)", "aby"),
    ("c = Constant<value = float16[1] {1}>() a = Exp(x) y = Concat<axis = 0>(a, c)", "ay"),
])  # fmt: skip
def test_what_parax_keeps_in_float32(body: str, wide: str) -> None:
    model = parser.parse_model(HEAD + f"g (float16[N] x) => (float16[M] y) {{ {body} }}")
    assert kept_wide(model, widening.types_of(model)) == frozenset(wide)


def test_what_is_kept_in_float32_is_read_in_float16_by_other_types() -> None:
    text = "g (float16[3] x) => (float16[3] y, float[3] z) { a = Exp(x) y = Neg(a) z = Cast<to = 1>(a) }"
    run = Rounding(parser.parse_model(HEAD + text), Freedom(kept_wide=True)).run({"x": HALVES})
    assert run["y"][:2].tolist() == [-np.inf] * 2 and run["z"][:2].tolist() == [np.inf] * 2  # results are rounded, too


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("off, status", [(0.0, UNSTABLE), (1e-4, DISPUTED)])
def test_a_narrow_constant_explains_its_rounding_beyond_the_range_of_float32(off: float, status: str) -> None:
    """As log2 is exported; e^200 is no infinity for that."""
    text = "g (double[2] x) => (double[2] y) { c = Constant<value = double {0.6931471824645996}>() a = Exp(x) b = Log(a) y = Div(b, c) }"  # noqa: E501
    x = np.array([200.0, 3.0])
    outcome = _outcome(text, x, x / np.log(2) * (1 + off))
    assert outcome.status == status, outcome.problem


@pytest.mark.usefixtures("any_target")
@pytest.mark.parametrize("x, status", [(-95, UNSTABLE), (-80, DISPUTED)])
def test_a_sigmoid_is_0_where_its_exponential_overflows(x: float, status: str) -> None:
    text = "g (float[2] x) => (float[2] y) { a = Sigmoid(x) y = Ceil(a) }"
    outcome = _outcome(text, np.array([x, 2], np.float32), np.array([0, 1], np.float32))
    assert outcome.status == status, outcome.problem


@pytest.mark.parametrize("off, status", [(0.0, PASS), (1e-4, NO_ORACLE)])
def test_where_float64_has_no_room_nobody_can_judge(monkeypatch: pytest.MonkeyPatch, off: float, status: str) -> None:
    def no_room(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(compare, "Rounding", no_room)
    outcome = _outcome("g (double[4] x) => (double[4] y) { y = Exp(x) }", X, np.exp(X) * (1 + off))
    assert outcome.status == status, outcome.problem
    assert compare.NO_ROOM in outcome.problem or status == PASS


def test_what_float64_keeps_of_other_outputs_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, held = Rounding.run, []

    def run(self: Rounding, *args: Any) -> Feeds:
        held.append(id(self))
        if len(set(held)) == 2 and expected._rounding.get("y"):
            raise MemoryError
        return plain(self, *args)

    monkeypatch.setattr(Rounding, "run", run)
    text = "g (double[4] x) => (double[4] y, double[4] z) { y = Exp(x) z = Neg(x) }"
    expected = Expected(parser.parse_model(HEAD + text), {"x": X})
    assert len(expected.noisy(1, "strict", "y")) == 2
    assert len(expected.noisy(1, "strict", "z")) == 2 and not expected.imprecise
    assert list(expected._rounding) == ["z"]


def test_types_are_inferred_without_large_weights() -> None:
    model = parser.parse_model(HEAD + "g (float[3] x) => (float[N,3] y) { a = Add(x, w) b = Add(a, v) y = Neg(b) }")
    weights = {"w": np.zeros((widening.MOST_READ, 3), np.float32), "v": np.zeros(3, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    assert dict.fromkeys("wvxaby", np.dtype("float32")) == widening.types_of(model)
    light, weights = widening.without_weights(model)
    assert list(weights) == ["w"] and [t.name for t in light.graph.initializer] == ["v"] and light.ByteSize() < 1000
    exact = Expected(model, {"x": np.ones(3, np.float32)}).noisy(0, "strict", "y")
    assert exact[0].shape == (widening.MOST_READ, 3) and (exact[0] == -1).all()
