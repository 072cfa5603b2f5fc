"""Loops, scans and branches that are one native function: taken where they can be, and right, on one core and two."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import parax
from control_models import GROWING, IF, NESTED, SCAN, SWAPPING, TWICE
from parax.compiler import native_programs
from parax.errors import InvalidInput, ResourceLimit
from parax.runtime.manifest import HostStep, Manifest
from parax.runtime.steps import PLAIN_REQUESTS

ort = pytest.importorskip("onnxruntime")

RNN_SCAN = """
rnn (float[T,B,3] xs, float[B,4] start) => (float[B,4] last, float[T,B,4] rows) {
    last, rows = Scan <num_scan_inputs = 1,
        body = body (float[B,4] h, float[B,3] x) => (float[B,4] next, float[B,4] row) {
            a = MatMul(x, w)  b = MatMul(h, r)  c = Add(a, b)  next = Tanh(c)  row = Identity(next) }
    >(start, xs)
}
"""
RNN_LOOP = """
rnn (float[T,B,3] xs, float[B,4] start, int64 trips) => (float[B,4] last, float[K,B,4] rows)
    {
    go = Constant<value = bool {1}>()
    last, rows = Loop (trips, go, start) <body = body (int64 i, bool c, float[B,4] h)
            => (bool k, float[B,4] next, float[B,4] row) {
        k = Identity(c)
        x = Gather<axis = 0>(xs, i)
        a = MatMul(x, w)  b = MatMul(h, r)  d = Add(a, b)  next = Tanh(d)  row = Identity(next) }>
}
"""
EARLY = """
early (float[N] x, int64 trips, bool go, float most) => (float[N] y, float[K,N] rows, int64[K] numbers) {
    y, rows, numbers = Loop (trips, go, x) <body = body (int64 i, bool c, float[N] s)
            => (bool k, float[N] t, float[N] row, int64 number) {
        t = Add(s, x)
        sum = ReduceSum<keepdims = 0>(t)
        k = Less(sum, most)
        row = Mul(s, t)
        number = Add(i, i) }>
}
"""
STATES_ALONE = """
alone (int64 trips, int64[2] a) => (int64[2] y) {
    go = Constant<value = bool {1}>()
    y = Loop (trips, go, a) <body = body (int64 i, bool c, int64[2] s) => (bool k, int64[2] t) {
        k = Identity(c)  u = Mul(s, s)  seven = Constant<value = int64 {10007}>()  v = Mod(u, seven)  t = Add(v, i) }>
}
"""
LOOP_IN_LOOP = """
inner (float[N] x, int64 trips) => (float[N] y, float[K,N] rows) {
    go = Constant<value = bool {1}>()
    y, rows = Loop (trips, go, x) <body = outer (int64 i, bool c, float[N] s) => (bool k, float[N] t, float[N] row) {
        k = Identity(c)
        three = Constant<value = int64 {3}>()
        one = Cast<to = 1>(i)
        u = Loop (three, c, s) <body = middle (int64 j, bool d, float[N] v) => (bool l, float[N] w) {
            l = Less(j, i)
            a = Add(v, x)  w = Mul(a, one) }>
        t = Add(u, x)
        row = Neg(u) }>
}
"""
SCAN_IN_SCAN = """
grid (float[A,B,3] xs, float[3] start, float[3] more) => (float[3] last, float[B,A,3] all) {
    last, all = Scan <num_scan_inputs = 1, scan_output_axes = [1], body = outer (float[3] s, float[B,3] plane)
            => (float[3] t, float[B,3] sums) {
        t, sums = Scan <num_scan_inputs = 1, scan_input_directions = [1],
            body = inner (float[3] u, float[3] x) => (float[3] v, float[3] out) {
                a = Add(u, x)  v = Mul(a, more)  out = Add(v, s) }
        >(s, plane)
    }>(start, xs)
}
"""
AXES = """
axes (float[2,T,3] xs, double[4,T] ys, bool[T] zs) => (double[4] last, float[2,3,T] a, double[T,4] b, bool[T] c) {
    zero = Constant<value = double[4] {0.0, 0.0, 0.0, 0.0}>()
    last, a, b, c = Scan <num_scan_inputs = 3, scan_input_axes = [1, -1, 0], scan_input_directions = [0, 1, 1],
        scan_output_axes = [-1, 0, 0], scan_output_directions = [1, 0, 0],
        body = body (double[4] s, float[2,3] x, double[4] y, bool z)
            => (double[4] t, float[2,3] p, double[4] q, bool r) {
                t = Add(s, y)  p = Neg(x)  q = Where(z, t, y)  r = Not(z) }
    >(zero, xs, ys, zs)
}
"""
UNUSED = """
unused (float[N] x, int64 trips, int64 one) => (float[K,N] rows) {
    go = Constant<value = bool {1}>()
    never, rows, neither = Loop (trips, go, x) <body = body (int64 i, bool c, float[N] s)
            => (bool k, float[N] t, float[N] row, float[N] other) {
        n = Sub(i, one)  zero = Sub(one, one)  k = Less(n, trips)  t = Add(s, x)  row = Neg(t)  other = Mul(t, t) }>
}
"""
DEAF = """
deaf (float[N] x, float[N] y, int64 trips, bool go) => (float[N] a, float[N] b, float[N] same, float[K,N] was) {
    a, b, same, was = Loop (trips, go, x, y, x) <body = body (int64 i, bool c, float[N] p, float[N] q, float[N] r)
            => (bool k, float[N] d, float[N] e, float[N] f, float[N] row) {
        k = Constant<value = bool {1}>()  d = Identity(q)  e = Identity(p)  f = Identity(r)  row = Identity(y) }>
}
"""


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 7 - 1


WEIGHTS = {"w": ramp(3, 4) / 3, "r": ramp(4, 4) / 3}


def model_of(text: str) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{text}')
    if model.graph.name == "rnn":
        model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in WEIGHTS.items())
    return model


def is_native(manifest: Manifest) -> bool:
    """Whether nothing of a plan's steps is left to Python but to say how many iterations there are."""
    return all(not isinstance(step, HostStep) or step.native is not None for step in manifest.steps)


@pytest.fixture(params=["alone", "together"])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of an instance; together they run bodies however brief."""
    if request.param == "together":
        monkeypatch.setattr(native_programs, "LEAST_FLOPS", 0.0)
    return 2


def referred(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, np.ndarray] | None:
    """The results of onnx.reference; None where it has nothing to stack, or lacks Scan's directions.

    It also takes a condition that is left out for false, so that the models here give one.
    """
    try:
        found = ReferenceEvaluator(model).run(None, feeds)
    except (ValueError, RuntimeError) as error:
        assert "need at least one array" in str(error) or "Scan is not implemented for" in str(error)
        return None
    return {output.name: np.asarray(value) for output, value in zip(model.graph.output, found, strict=True)}


def check(text: str, n_cores: int, **feeds: Any) -> None:
    model, feeds = model_of(text), {name: np.asarray(value) for name, value in feeds.items()}
    plan = parax.compile(model)
    assert is_native(plan.manifest)
    names = [output.name for output in model.graph.output]
    wanted = referred(model, feeds)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = dict(zip(names, session.run(None, feeds), strict=True))
    for each in (1, n_cores):
        with plan.session(instances=1, cores_per_instance=each) as ours:
            for _ in range(PLAIN_REQUESTS + 2):  # the last by the function that is written for the plan
                found = ours.run(feeds)
                for name in names:
                    assert found[name].dtype == theirs[name].dtype
                    if found[name].size or theirs[name].size:
                        np.testing.assert_allclose(found[name], theirs[name], rtol=2e-5, atol=1e-6)
                        if wanted is not None:
                            again = wanted[name].reshape(theirs[name].shape)  # it stacks scalars as rows of one
                            np.testing.assert_allclose(found[name], again, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_network_as_a_scan(cores: int, batch: int, length: int) -> None:
    check(RNN_SCAN, cores, xs=ramp(length, batch, 3), start=ramp(batch, 4))


@pytest.mark.parametrize("trips", [1, 2, 7])
def test_a_network_as_a_loop(cores: int, trips: int) -> None:
    check(RNN_LOOP, cores, xs=ramp(7, 2, 3), start=ramp(2, 4), trips=trips)


@pytest.mark.parametrize(("trips", "go"), [(0, True), (-3, True), (1, True), (4, True), (400, True), (3, False)])
@pytest.mark.parametrize("most", [-1e9, 30.0, 1e9])
def test_a_condition_that_ends_a_loop(cores: int, trips: int, go: bool, most: float) -> None:
    check(EARLY, cores, x=ramp(9), trips=trips, go=go, most=np.float32(most))


@pytest.mark.parametrize("trips", [0, 1, 255, 256, 257, 3000])
def test_more_iterations_than_a_call_has(cores: int, trips: int) -> None:
    check(STATES_ALONE, cores, trips=trips, a=[3, 5])
    check(EARLY, cores, x=ramp(2), trips=trips, go=True, most=np.float32(1e9))


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_branch_in_a_loop(cores: int, trips: int) -> None:
    check(NESTED, cores, x=ramp(4), trips=trips)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_in_a_loop(cores: int, trips: int) -> None:
    check(LOOP_IN_LOOP, cores, x=ramp(4), trips=trips)


def test_a_scan_in_a_scan(cores: int) -> None:
    check(SCAN_IN_SCAN, cores, xs=ramp(4, 5, 3), start=ramp(3), more=ramp(3))


@pytest.mark.parametrize("length", [1, 6])
def test_slices_along_other_axes_and_backwards(cores: int, length: int) -> None:
    ys = ramp(4, length).astype(np.float64)
    check(AXES, cores, xs=ramp(2, length, 3), ys=ys, zs=np.arange(length) % 2 == 0)
    check(SCAN, cores, xs=ramp(length, 3), start=ramp(3))


def test_a_scan_over_nothing(cores: int) -> None:
    with parax.compile(model_of(AXES)).session(instances=1, cores_per_instance=cores) as session:
        found = session.run({"xs": ramp(2, 0, 3), "ys": np.zeros((4, 0)), "zs": np.zeros(0, bool)})
    assert [found[name].shape for name in ("last", "a", "b", "c")] == [(4,), (2, 3, 0), (0, 4), (0,)]
    assert not found["last"].any()


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_values_that_change_places_or_stay(cores: int, trips: int) -> None:
    check(SWAPPING, cores, x=ramp(3), y=-ramp(3), trips=trips)
    check(DEAF, cores, x=ramp(3), y=-ramp(3), trips=trips, go=True)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_results_that_nobody_reads(cores: int, trips: int) -> None:
    check(UNUSED, cores, x=ramp(3), trips=trips, one=1)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_of_native_steps(cores: int, taken: bool) -> None:
    text = IF.replace("e = Concat<axis = 0>(x, d)", "e = Add(x, d)").replace("float[m,4] e", "float[N,4] e")
    check(text, cores, x=ramp(3, 4), c=taken)


@pytest.mark.parametrize("text", [GROWING, TWICE, IF])
def test_what_cannot_be_is_left_as_it_was(text: str) -> None:
    """Sizes that iterations change, that branches do not share, trips of an inner loop that only a run knows."""
    assert not is_native(parax.compile(model_of(text)).manifest)


def test_several_instances_at_once() -> None:
    plan = parax.compile(model_of(EARLY))
    trips = [0, 1, 3, 300, 7, 1000]
    with plan.session(instances=2, cores_per_instance=1) as session:

        def one(i: int) -> dict[str, np.ndarray]:
            feeds = {"x": ramp(3) + i, "trips": np.array(trips[i % 6]), "go": np.array(True), "most": np.float32(1e9)}
            return session.run(feeds)

        alone = [one(i) for i in range(12)]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(one, [*range(12)] * 5))
    for i, found in enumerate(together):
        assert all(np.array_equal(found[name], alone[i % 12][name]) for name in found)


def test_a_loop_without_end_is_stopped() -> None:
    with parax.compile(model_of(EARLY)).session(instances=1, max_seconds=0.2) as session:
        feeds = {"x": np.zeros(1, np.float32), "trips": np.array(1 << 60), "go": np.array(True), "most": np.float32(1)}
        with pytest.raises(ResourceLimit):
            session.run(feeds)


def test_what_is_stacked_counts_as_memory() -> None:
    feeds = {"x": np.zeros(1000, np.float32), "trips": np.array(1 << 60), "go": np.array(True), "most": np.float32(1)}
    with parax.compile(model_of(EARLY)).session(instances=1, max_memory=64 << 20) as session:
        with pytest.raises(ResourceLimit):
            session.run(feeds)
        assert session.run({**feeds, "trips": np.array(2)})["rows"].shape == (2, 1000)


def test_what_a_body_refuses_is_an_error_of_the_request() -> None:
    """An index beyond what it indexes, in the middle of a loop; the next request is none the worse."""
    with parax.compile(model_of(RNN_LOOP)).session(instances=1) as session:
        feeds = {"xs": ramp(3, 2, 3), "start": ramp(2, 4)}
        wanted = session.run({**feeds, "trips": np.array(3)})["rows"]
        for _ in range(PLAIN_REQUESTS + 2):
            with pytest.raises(InvalidInput):
                session.run({**feeds, "trips": np.array(5)})
            assert np.array_equal(session.run({**feeds, "trips": np.array(3)})["rows"], wanted)
