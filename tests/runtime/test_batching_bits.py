"""Batched requests of compiled models, from many callers at once: the bits are those of running alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

import parax
from fake_plans import add_manifest, fake_plan
from gates import LIMIT, Gate, counts, held_up, rows
from inside import executor_of, in_flight, waiting_and_running
from parax.runtime import Plan
from parax.runtime.session import Session
from parax.runtime.topology import machine

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

Build = Callable[..., Plan]
TWO = pytest.param(2, marks=pytest.mark.skipif(len(machine().default_cores()) < 2, reason="needs two usable cores"))


def everyone(session: Session, clients: int, inputs: Callable[[int, int], dict[str, np.ndarray]], count: int) -> None:
    """Let clients run, submit and arun requests side by side, and compare each with what it gives alone."""
    expected = {(c, i): lone(session.plan, inputs(c, i)) for c in range(clients) for i in range(count)}

    def client(c: int) -> None:
        for i in range(count):
            feeds = inputs(c, i)
            if c % 3 == 0:
                found = session.run(feeds)
            elif c % 3 == 1:
                found = session.submit(feeds).result(LIMIT)
            else:
                found = asyncio.run(session.arun(feeds))
            assert_same(found, expected[c, i])

    with ThreadPoolExecutor(clients) as pool:
        for future in [pool.submit(client, c) for c in range(clients)]:
            future.result(LIMIT)


_ALONE: dict[int, tuple[Plan, Session]] = {}


def lone(plan: Plan, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results of a session that does not batch."""
    if id(plan) not in _ALONE:
        _ALONE[id(plan)] = plan, plan.session(instances=1, cores_per_instance=1)
    return _ALONE[id(plan)][1].run(feeds)


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].tobytes() == array.tobytes()


MODELS = {
    "dense": "(float[N,48] x) => (float[N,24] y) <float[48,24] w, float[24,24] v> "
             "{a = MatMul(x, w) b = Relu(a) c = MatMul(b, v) y = Softmax<axis = 1>(c)}",
    "conv": "(float[N,3,9,9] x) => (float[N,8,9,9] y, float[N,8] z) <float[8,3,3,3] w> "
            "{a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w) y = Relu(a) "
            "z = ReduceMax<axes = [2, 3], keepdims = 0>(y)}",
    "length": "(float[N,S,16] x) => (float[N,S,16] y) <float[16,16] w> {a = MatMul(x, w) y = Softmax<axis = 1>(a)}",
    "inside": "(float[5,N,16] x) => (float[N,5,16] y) {a = Transpose<perm = [1, 0, 2]>(x) y = Tanh(a)}",
    "shared": "(float[N,16] x, float[16] s) => (float[N,16] y) {a = Mul(x, s) y = Sin(a)}",
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled() -> Callable[[str], Plan]:
    plans: dict[str, Plan] = {}

    def get(name: str) -> Plan:
        if name not in plans:
            model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> g {MODELS[name]}')
            rng = np.random.default_rng(5)
            for value in model.graph.value_info:  # the weights
                shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                weights = rng.standard_normal(shape).astype(np.float32)
                model.graph.initializer.append(onnx.numpy_helper.from_array(weights, value.name))
            plans[name] = parax.compile(model)
        return plans[name]

    return get


def random_feeds(plan: Plan, rng: np.random.Generator, n: int, s: int = 7) -> dict[str, np.ndarray]:
    sizes = {"N": n, "S": s}
    shapes = {spec.name: [sizes.get(str(d), d) for d in spec.shape or ()] for spec in plan.inputs}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [0.0, 0.002])
@pytest.mark.parametrize("instances", [1, TWO])
@pytest.mark.parametrize("name", MODELS)
def test_bits_are_those_of_running_alone(
    compiled: Callable[[str], Plan], name: str, instances: int, window: float
) -> None:
    plan = compiled(name)

    def inputs(client: int, i: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([client, i])
        made = random_feeds(plan, rng, int(rng.integers(1, 6)), 3 + i % 3)
        if "s" in made:
            made["s"] = np.full(16, i % 2, np.float32)
        return made

    with plan.session(instances=instances, batch_window=window) as session:
        everyone(session, 8, inputs, 25)
        batches, requests = counts(session)
        assert requests >= 2 * batches
        assert in_flight(session) == 0 and waiting_and_running(session) == (0, 0)
        assert len(executor_of(session).free) == instances


def test_other_symbols_and_shared_inputs_never_mix(compiled: Callable[[str], Plan]) -> None:
    rng = np.random.default_rng(0)
    lengths = compiled("length")
    with lengths.session(instances=1, batch_window=0.0) as session:
        gate, feeds = Gate(session), [random_feeds(lengths, rng, 2, s) for s in (3, 4, 3, 4, 3)]
        with ThreadPoolExecutor(8) as pool:
            first = pool.submit(session.run, random_feeds(lengths, rng, 1))
            assert gate.begun.wait(LIMIT)
            futures = [pool.submit(session.run, f) for f in feeds]
            gate.wait_for(6)
            gate.opened.set()
            for given, future in zip(feeds, futures, strict=True):
                assert_same(future.result(LIMIT), lone(lengths, given))
            assert first.result(LIMIT)
        assert gate.rows[0] == 1 and sorted(gate.rows[1:]) == [4, 6]
    shared = compiled("shared")
    with shared.session(instances=1, batch_window=0.0) as session:
        gate = Gate(session)
        feeds = [random_feeds(shared, rng, n) | {"s": np.full(16, c, np.float32)} for n, c in ((1, 0), (2, 1), (3, 0))]
        with ThreadPoolExecutor(8) as pool:
            first = pool.submit(session.run, feeds[0])
            assert gate.begun.wait(LIMIT)
            futures = [pool.submit(session.run, f) for f in feeds]
            gate.wait_for(4)
            gate.opened.set()
            for given, future in zip(feeds, futures, strict=True):
                assert_same(future.result(LIMIT), lone(shared, given))
        assert sorted(gate.rows) == [1, 2, 4]


def test_coroutines_side_by_side(add_plan: Build) -> None:
    async def all_at_once() -> list[dict[str, np.ndarray]]:
        return list(await asyncio.gather(*(session.arun({"x": rows(n % 5 + 1)}) for n in range(64))))

    with add_plan().session(instances=1, batch_window=0.001) as session:
        for _ in range(5):
            for n, result in enumerate(asyncio.run(all_at_once())):
                assert np.array_equal(result["y"], rows(n % 5 + 1) + 1)
        assert in_flight(session) == 0


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), micro_batch=st.none() | st.integers(1, 40),
    submitted=st.sets(st.integers(0, 11)),
)  # fmt: skip
def test_any_sizes(add_code: bytes, sizes: list[int], micro_batch: int | None, submitted: set[int]) -> None:
    plan = fake_plan(add_manifest(), {"base": add_code}, np.ones(16, np.float32))
    with plan.session(instances=1, batch_window=0.0, micro_batch=micro_batch) as session:
        most = session.statistics()[-1]["most_rows"]
        with held_up(session) as (gate, _):
            xs = [rows(n, 100 * i) for i, n in enumerate(sizes)]
            futures = [session.submit({"x": x}) if i in submitted else None for i, x in enumerate(xs)]
            gate.wait_for(1 + sum(f is not None for f in futures))
            with ThreadPoolExecutor(16) as pool:
                called = [pool.submit(session.run, {"x": x}) if f is None else f for x, f in zip(xs, futures)]
                gate.wait_for(1 + len(xs))
                gate.opened.set()
                for x, future in zip(xs, called, strict=True):
                    assert np.array_equal(future.result(LIMIT)["y"], x + 1)
        assert all(n <= most or n in sizes for n in gate.rows)
        assert sum(gate.rows) == 1 + sum(sizes)
        batches, requests = counts(session)
        assert len(gate.rows) == 1 + len(sizes) - requests + batches
