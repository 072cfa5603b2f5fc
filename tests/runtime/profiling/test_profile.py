"""Session.profile over real plans: the parts add up, in every mode, and every form of the profile holds them."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import parax
from parax.errors import CorruptPlan, IncompatiblePlan, InvalidInput, UsageError
from parax.runtime.plan import Plan
from parax.runtime.profiling.notes import notes_of
from parax.runtime.profiling.profile import Profile
from parax.runtime.profiling.profiler import profiling
from parax.runtime.topology import choose_cores

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,8] y) {
  [first] h = MatMul (x, a)  [soft] s = Softmax (h)  [last] y = MatMul (s, b) }"""
BAD_NAME = "soft </script>"
HOST = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x, int64 n) => (float[N,64] y, int64[2,K] where) {
  [double] d = Add (x, x)
  [find] where = NonZero (d)
  [again] y = Loop (n, , d) <body = b (int64 i, bool c, float[N,64] v) => (bool d, float[N,64] w) {
    d = Identity (c)  [step] w = Exp (v) }> }"""
ON_HOST_ALONE = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,4] x) => (int64[2,K] y) { [find] y = NonZero (x) }"""


def compiled(text: str = MODEL, **options: Any) -> Plan:
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.name.replace("soft", BAD_NAME)
    rng = np.random.default_rng(0)
    for name, shape in (("a", (64, 32)), ("b", (32, 8))):
        if f", {name})" in text:
            weight = onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
            model.graph.initializer.append(weight)
    return parax.compile(model, options=parax.CompileOptions(profile=True, **options))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compiled()


def rows(n: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((n, 64), np.float32)}


def check(profile: Profile, n_requests: int) -> None:
    """Whatever ran: what is said adds up to the time that was measured apart."""
    d = profile.document
    assert d["requests"] == n_requests and d["seconds_per_request"] > 0
    parts = sum(own["seconds"] for own in profile.operators) + d["entering"] + profile.outside
    assert parts == pytest.approx(profile.seconds_per_request, rel=1e-6)
    for core in d["cores"]:
        assert sum(core[k] for k in ("kernels", "waiting", "host", "outside")) == pytest.approx(
            d["seconds_per_request"] * n_requests, rel=1e-6)  # fmt: skip
        assert min(core[k] for k in ("kernels", "waiting", "host", "outside")) >= -1e-9
    assert all(0 <= own["waiting"] <= own["seconds"] + 1e-12 for own in profile.operators)
    assert profile.operators == sorted(profile.operators, key=lambda own: -own["seconds"])


def test_the_operators_have_their_names_and_counts(plan: Plan) -> None:
    with plan.session(instances=1, cores_per_instance=1) as session:
        expected = session.run(rows(6))["y"]
        with session.profile() as profile:
            for _ in range(5):
                np.testing.assert_array_equal(session.run(rows(6))["y"], expected)
    check(profile, 5)
    by_name = {name: own for own in profile.operators for name in own["names"]}
    assert {"first", BAD_NAME, "last"} <= by_name.keys()
    assert by_name["first"]["flops"] == 2 * 6 * 64 * 32
    assert by_name["first"]["nbytes"] == 4 * (6 * 64 + 64 * 32 + 6 * 32)
    assert by_name["first"]["kernels"] and by_name["first"]["cores"] == 1
    assert profile.document["sizes"] == [{"requests": 5, "N": 6}]
    assert profile.document["native_calls"] == 5
    assert BAD_NAME in str(profile) and "of peak" in str(profile)


@pytest.mark.parametrize(("arguments", "options"), [
    ({"instances": 2, "cores_per_instance": 1}, {}),
    ({"instances": 1, "cores_per_instance": 2}, {}),
    ({"instances": 1, "cores_per_instance": 1, "micro_batch": 2}, {}),
    ({}, {}),
    ({}, {"hint": "latency"}),
    ({}, {"mode": "pipelined"}),
    ({"batch_window": 0.001}, {}),
])  # fmt: skip
def test_it_adds_up_in_every_mode(arguments: dict[str, Any], options: dict[str, Any]) -> None:
    if len(choose_cores(None)) < 2:
        pytest.skip("needs two cores")
    with compiled(**options).session(**arguments) as session:
        run = session.run  # taken before
        with session.profile() as profile:
            for n in (1, 8, 64, 64):
                run(rows(n))
            assert [f.result()["y"].shape for f in [session.submit(rows(3)) for _ in range(4)]] == [(3, 8)] * 4
    check(profile, 8)
    assert sum(own["requests"] for own in profile.document["sizes"]) == 8


def test_callers_at_the_same_time(plan: Plan) -> None:
    with plan.session() as session, ThreadPoolExecutor(4) as pool:
        list(pool.map(session.run, [rows(4)] * 8))
        with session.profile() as profile:
            list(pool.map(session.run, [rows(4)] * 40))
    check(profile, 40)


def test_python_operators_count_without_the_native_code_of_their_bodies() -> None:
    with compiled(HOST).session(instances=1, cores_per_instance=1) as session:
        x = {"x": np.ones((8, 64), np.float32), "n": np.array(3, np.int64)}
        session.run(x)
        with session.profile() as profile:
            session.run(x)
    check(profile, 1)
    host = {name for own in profile.operators if own["host"] for name in own["names"]}
    assert host == {"find", "again"} and profile.document["cores"][0]["host"] > 0
    assert {"double", "step"} <= {name for own in profile.operators if not own["host"] for name in own["names"]}


def test_what_the_notes_leave_out_is_in_no_operator() -> None:
    plan = compiled(HOST)
    notes = plan.manifest.provenance["profile"] | {"calls": [], "hosts": {}}
    plan.manifest = plan.manifest._replace(provenance=plan.manifest.provenance | {"profile": notes})
    with plan.session(instances=1, cores_per_instance=1) as session, session.profile() as profile:
        session.run({"x": np.ones((8, 64), np.float32), "n": np.array(3, np.int64)})
    assert profile.operators == [] and profile.document["cores"][0]["host"] > 0 and str(profile)


def test_a_plan_of_python_operators_alone() -> None:
    with compiled(ON_HOST_ALONE).session() as session, session.profile() as profile:
        session.run({"x": np.ones((2, 4), np.float32)})
    check(profile, 1)
    assert [own["names"] for own in profile.operators] == [["find"]] and "the callers'" in str(profile)


def test_no_request_at_all(plan: Plan) -> None:
    with plan.session() as session, session.profile() as profile:
        pass
    assert profile.document["requests"] == 0 and profile.operators == [] and "0 requests" in str(profile)


def test_a_request_that_fails_is_left_out(plan: Plan) -> None:
    with plan.session() as session, session.profile() as profile:
        session.run(rows(1))
        with pytest.raises(InvalidInput):
            session.run({"x": np.ones((1, 63), np.float32)})
    check(profile, 1)


def test_one_profile_at_a_time_and_none_after_an_error(plan: Plan) -> None:
    with plan.session() as session:
        with session.profile(), pytest.raises(UsageError, match="profiled already"), session.profile():
            pass
        with pytest.raises(RuntimeError), session.profile():
            raise RuntimeError
        assert session.watch is None
        with session.profile() as profile:
            session.run(rows(1))
            with pytest.raises(UsageError, match="still being recorded"):
                str(profile)
        check(profile, 1)


def test_a_log_that_is_full_leaves_later_requests_out(plan: Plan) -> None:
    with plan.session(instances=1, cores_per_instance=1) as session:
        session.run(rows(1))
        with profiling(session, capacity=50) as profile:
            for _ in range(40):
                session.run(rows(1))
    n = profile.document["requests"]
    assert 1 <= n < 40 and profile.document["is_cut"] and "the log was full" in str(profile)
    check(profile, n)


def test_a_request_in_flight_at_either_end_is_left_out(plan: Plan) -> None:
    with plan.session(instances=1, cores_per_instance=1) as session:
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                session.run(rows(4))

        thread = threading.Thread(target=load)
        thread.start()
        try:
            for _ in range(5):
                with session.profile() as profile:
                    for _ in range(20):
                        session.run(rows(2))
                check(profile, profile.document["requests"])
                assert profile.document["requests"] >= 20
        finally:
            stop.set()
            thread.join()


def test_other_plans_say_what_to_do() -> None:
    model = onnx.parser.parse_model(ON_HOST_ALONE)
    refused = pytest.raises(IncompatiblePlan, match="--profile")
    with parax.compile(model).session() as session, refused, session.profile():
        pass


@pytest.mark.parametrize("change", [
    {"operators": 3}, {"operators": [{}]}, {"calls": [[[99, "k"]]]}, {"hosts": {"v": -1}}, {"machine": {"name": []}},
    {"calls": None}, {"machine": 7},
])  # fmt: skip
def test_notes_that_are_none_are_refused(plan: Plan, change: dict[str, Any]) -> None:
    changed = plan.manifest.provenance | {"profile": plan.manifest.provenance["profile"] | change}
    with pytest.raises(CorruptPlan, match="provenance"):
        notes_of(plan.manifest._replace(provenance=changed))


@pytest.fixture(scope="module")
def profile(plan: Plan) -> Profile:
    with plan.session() as session:
        session.run(rows(4))
        with session.profile() as found:
            session.run(rows(4))
    return found


def test_data_are_read_back(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "p.json")
    again = Profile.load(tmp_path / "p.json")
    assert again.document == profile.document and str(again) == str(profile)
    assert "1 requests" in repr(again) and "still" in repr(Profile())


def test_a_trace_has_every_kernel_on_its_core(profile: Profile, tmp_path: Path) -> None:
    profile.save(str(tmp_path / "my.trace.json"))
    events = json.loads((tmp_path / "my.trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event["ph"] == "X"]
    assert len(kernels) == len(profile.document["timeline"]) > 0
    assert {event["tid"] for event in kernels} == {core["core"] for core in profile.document["cores"]}
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in kernels)
    assert [event for event in events if event["ph"] == "C"]


def test_a_page_needs_no_network_and_no_name_ends_its_scripts(profile: Profile, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    profile.save(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert BAD_NAME not in text and "soft \\u003c/script>" in text and "soft &lt;/script&gt;" in text
    assert 'src="http' not in text and 'href="http' not in text and 'id="chart0"' in text


def test_a_notebook_shows_tables_whose_names_are_no_html(profile: Profile) -> None:
    text = profile._repr_html_()
    assert text.count("<table>") == 3 and "soft &lt;/script&gt;" in text and BAD_NAME not in text


@pytest.mark.parametrize("name", ["p.txt", "p", "p.svg"])
def test_a_file_of_no_known_form_is_refused_and_not_made(name: str, profile: Profile, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such form"):
        profile.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense", '{"format": "parax-profile-1"}', "[" * 100_000,
                                  '{"format": "parax-profile-1", "seconds_per_request": 1, "outside": 0, "requests": 1,'
                                  '"operators": [{}], "cores": [], "timeline": [], "memory": []}'])  # fmt: skip
def test_a_file_that_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InvalidInput, match="not a profile"):
        Profile.load(tmp_path / "p.json")
    with pytest.raises(UsageError, match="cannot be read"):
        Profile.load(tmp_path / "none.json")
