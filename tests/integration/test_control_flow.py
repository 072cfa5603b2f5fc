"""If, Loop, Scan and data-dependent sizes from the model to the result, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import parax
from control_models import GROWING, IF, NESTED, NON_ZERO, SCAN
from parax.errors import InvalidInput, InvalidModel
from parax.runtime.steps import PLAIN_REQUESTS

ort = pytest.importorskip("onnxruntime")


def check(text: str, **feeds: np.ndarray) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{text}')
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    for instances, cores in ((1, 1), (1, 2)):
        with parax.compile(model).session(instances=instances, cores_per_instance=min(cores, 2)) as ours:
            found = ours.run(feeds)
            for _ in range(PLAIN_REQUESTS + 1):  # the last by the function that is written for the plan
                again = ours.run(feeds)
    for output, array in zip(model.graph.output, wanted, strict=True):
        if array.size == 0:  # of no iterations ONNX Runtime calls every symbolic size 0, also those that are known
            assert (found[output.name].size, found[output.name].ndim) == (0, array.ndim)
        else:
            np.testing.assert_allclose(found[output.name], array, rtol=1e-6)
        assert found[output.name].dtype == array.dtype
        np.testing.assert_array_equal(found[output.name], again[output.name])


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3


@pytest.mark.parametrize("taken", [True, False])
def test_if(taken: bool) -> None:
    check(IF, x=ramp(3, 4), c=np.array(taken))


@pytest.mark.parametrize(("trips", "go"), [(3, True), (1, True), (50, True), (3, False), (0, True), (-2, True)])
def test_a_loop_whose_state_grows(trips: int, go: bool) -> None:
    check(GROWING, x=ramp(5), trips=np.array(trips), go=np.array(go))


@pytest.mark.parametrize("length", [1, 6])
def test_scan(length: int) -> None:
    check(SCAN, xs=ramp(length, 3), start=ramp(3))


def test_a_scan_over_nothing() -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{SCAN}')
    with parax.compile(model).session(instances=1) as session:
        found = session.run({"xs": ramp(0, 3), "start": ramp(3)})
    np.testing.assert_array_equal(found["last"], ramp(3))
    assert found["sums"].shape == (3, 0)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_an_if_inside_a_loop(trips: int) -> None:
    check(NESTED, x=ramp(4), trips=np.array(trips))


@pytest.mark.parametrize("x", [ramp(3, 4), np.zeros((2, 4), np.float32), np.ones((1, 4), np.float32)])
def test_sizes_that_the_data_decide(x: np.ndarray) -> None:
    check(NON_ZERO, x=x)


def test_sizes_that_do_not_fit_are_refused() -> None:
    """A constraint between a size that an input tells and one that only the run knows."""
    text = """misfit (float[N] x, float[N] w) => (float[M] y) {
        where = NonZero(x)
        shape = Constant<value = int64[1] {-1}>()
        flat = Reshape(where, shape)
        f = Cast<to = 1>(flat)
        y = Add(f, w)
    }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{text}')
    with parax.compile(model).session(instances=1) as session:
        x, w = np.ones(3, np.float32), np.ones(3, np.float32)
        np.testing.assert_array_equal(session.run({"x": x, "w": w})["y"], [1, 2, 3])
        with pytest.raises(InvalidInput):
            session.run({"x": np.array([0, 1, 1], np.float32), "w": w})


def test_results_are_the_callers() -> None:
    """What a body passes through is copied: results share memory with no input and with each other."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{IF}')
    x = ramp(2, 4)
    with parax.compile(model).session(instances=1) as session:
        found = session.run({"x": x, "c": np.array(True)})
    assert not np.may_share_memory(found["z"], x)


VIEWS = """
views (float[N,3] x, bool c, float[3] start) => (float[3] last, float[3] same, float[N,3] relu, float[N,3] taken) {
    relu = Relu(x)
    last, same = Scan <num_scan_inputs = 2,
        body = body (float[3] s, float[3] t, float[3] a, float[3] b) => (float[3] p, float[3] q) {
            p = Identity(a)  q = Identity(b)
        }
    >(start, start, x, x)
    taken = If (c) <then_branch = yes () => (float[N,3] d) { d = Identity(relu) },
                    else_branch = no () => (float[N,3] e) { e = Neg(relu) }>
}
"""


@pytest.mark.parametrize("out", [{}, {"relu": np.empty((4, 3), np.float32)}])
def test_views_of_views_are_copied(out: dict[str, np.ndarray]) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{VIEWS}')
    inputs = ramp(9, 3)
    with parax.compile(model).session(instances=1) as session:
        found = session.run({"x": inputs[2:6], "c": np.array(True), "start": ramp(3)}, out=out)
    arrays = [inputs, *found.values()]
    assert not any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    np.testing.assert_array_equal(found["taken"], np.maximum(inputs[2:6], 0))


CHOICES = """
choices (float[N] x, bool[C] c, int64[T] trips) => (float[N] y, float[N] z) {
    y = If (c) <then_branch = yes () => (float[N] a) { a = Neg(x) },
                else_branch = no () => (float[N] b) { b = Relu(x) }>
    z = Loop (trips, c, x) <body = body (int64 i, bool k, float[N] s) => (bool l, float[N] t) {
        l = Identity(k)  t = Add(s, s)
    }>
}
"""


@pytest.mark.parametrize(("n_conditions", "n_trips"), [(0, 1), (2, 1), (1, 0), (1, 2)])
def test_what_decides_is_one_element(n_conditions: int, n_trips: int) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{CHOICES}')
    with parax.compile(model).session(instances=1) as session:
        one = {"x": ramp(3), "c": np.ones(1, bool), "trips": np.ones(1, np.int64)}
        np.testing.assert_array_equal(session.run(one)["z"], 2 * ramp(3))
        with pytest.raises(InvalidInput, match="must be one element"):
            session.run({**one, "c": np.ones(n_conditions, bool), "trips": np.ones(n_trips, np.int64)})


BARE = """
bare (int64 trips) => (int64[M] y) {
    y = Loop (trips) <body = body (int64 i, bool c) => (bool k, int64 square) { k = Identity(c)  square = Mul(i, i) }>
}
"""
FEWER = """
fewer (float[N] x, int64 most, int64 trips, bool go) => (int64[M,2] shapes) {
    shapes = Loop (trips, go) <body = outer (int64 i, bool c) => (bool k, int64[2] shape) {
        k = Identity(c)
        left = Sub(most, i)
        rows = Loop (left, c) <body = inner (int64 j, bool d) => (bool l, float[L] row) {
            l = Identity(d)
            row = Mul(x, x)
        }>
        shape = Shape(rows)
    }>
}
"""


@pytest.mark.parametrize("trips", [0, 3])
def test_a_loop_that_carries_nothing(trips: int) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{BARE}')
    model.graph.node[0].input.append("")  # the condition; the parser knows no last operand that is left out
    with parax.compile(model).session(instances=1) as session:
        assert session.run({"trips": np.array(trips)})["y"].tolist() == [i * i for i in range(trips)]


def test_an_inner_loop_that_runs_less_often_each_time() -> None:
    check(FEWER, x=ramp(0), most=np.array(2), trips=np.array(4), go=np.array(True))


CHAIN = """
chain (float[1] x, int64 trips) => (float[a] a, float[b] b, float[c] c, float[d] d, float[e] e, float[f] f) {
    a, b, c, d, e, f = Loop (trips, , x, x, x, x, x, x) <body = body
        (int64 i, bool go, float[p] p, float[q] q, float[r] r, float[s] s, float[t] t, float[u] u)
        => (bool k, float[A] A, float[B] B, float[C] C, float[D] D, float[E] E, float[F] F) {
        k = Identity(go)
        A = Concat<axis = 0>(p, p)
        B = Identity(p)
        C = Identity(q)
        D = Identity(r)
        E = Identity(s)
        F = Identity(t)
    }>
}
"""
SCANNED = """
scanned (float[2] x, int64 trips) => (float[M] y, float[K,L] rows) {
    y, rows = Loop (trips, , x) <body = body (int64 i, bool c, float[P] s) => (bool k, float[Q] t, float[R] row) {
        k = Identity(c)
        t = Concat<axis = 0>(s, s)
        row = Identity(t)
    }>
}
"""
SHRINKING = """
shrinking (float[5,2] x, int64 trips) => (float[M,2] y, float[K] sums) <int64[1] one = {1}, int64[1] far = {1000}> {
    y, sums = Loop (trips, , x) <body = body (int64 i, bool c, float[P,2] s) => (bool k, float[Q,2] t, float sum) {
        k = Identity(c)
        t = Slice(s, one, far)
        sum = ReduceSum<keepdims = 0>(s)
    }>
}
"""
TWICE = """
twice (float[N] x, int64 trips, float[1] more) => (float[M] y) {
    y = Loop (trips, , x) <body = outer (int64 i, bool c, float[P] s) => (bool k, float[Q] t) {
        k = Identity(c)
        two = Constant<value = int64 {2}>()
        u = Loop (two, , s) <body = inner (int64 j, bool d, float[R] v) => (bool l, float[W] w) {
            l = Identity(d)
            w = Concat<axis = 0>(v, v)
        }>
        t = Add(u, more)
    }>
}
"""


@pytest.mark.parametrize("trips", [0, 1, 2, 4])
def test_carried_values_that_change_their_size_one_after_the_other(trips: int) -> None:
    check(CHAIN, x=ramp(1), trips=np.array(trips))


def test_scan_outputs_as_large_as_a_carried_value() -> None:
    check(SCANNED, x=ramp(2), trips=np.array(1))


@pytest.mark.parametrize("trips", [0, 1, 3, 5])
def test_a_carried_value_that_shrinks(trips: int) -> None:
    check(SHRINKING, x=ramp(5, 2), trips=np.array(trips))


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_growing_loop_within_another(trips: int) -> None:
    check(TWICE, x=ramp(3), trips=np.array(trips), more=ramp(1))


RATES = """
rates (float[3,K] x, bool fast) => (float[3,2] z) {
    y = If (fast) <then_branch = wide () => (float[3,2] a) { a = MatMul(x, w8) },
                   else_branch = narrow () => (float[3,2] b) { r = Relu(x)  b = MatMul(r, w4) }>
    z = Neg(y)
}
"""


def rates(size: int) -> onnx.ModelProto:
    """A model of two sampling rates; the branch of the other rate does not fit this one."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {RATES.replace("K", str(size))}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(ramp(n, 2), f"w{n}") for n in (4, 8))
    return model


@pytest.mark.parametrize(("size", "fits"), [(4, False), (8, True)])
def test_a_branch_that_does_not_fit_is_an_error_only_where_it_is_taken(size: int, fits: bool) -> None:
    x = ramp(3, size)
    product = x @ ramp(size, 2) if fits else np.maximum(x, 0) @ ramp(size, 2)
    with parax.compile(rates(size)).session(instances=1) as s:
        np.testing.assert_allclose(s.run({"x": x, "fast": np.array(fits)})["z"], -product, rtol=1e-5)
        with pytest.raises(InvalidInput, match="branch that cannot run for these shapes"):
            s.run({"x": x, "fast": np.array(not fits)})


def test_a_model_of_which_no_branch_fits_is_refused() -> None:
    with pytest.raises(InvalidModel, match="inner dimensions"):
        parax.compile(rates(5))
