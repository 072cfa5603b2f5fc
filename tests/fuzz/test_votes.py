"""A case with a framework's results: who agrees, who does not, and which reasons explain that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from fuzz import others
from fuzz.compare import Expected
from fuzz.configurations import Arrangement, Configuration
from fuzz.generate import Case
from fuzz.models import INPUT, RESULT, Source, recorded_path
from fuzz.pool import Command, Pool, _is_stopped
from fuzz.trial import DISPUTED, HANG, PASS, UNSTABLE, Outcome, try_case
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
