"""Plans of several steps: host operators between native segments, symbols bound on the way."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fake_plans import ADD, add_manifest, fake_plan, object_code, tensor
from inside import executor_of
from parax.errors import CorruptPlan, IncompatiblePlan, InvalidInput, UsageError
from parax.runtime import Plan
from parax.runtime.loading import load
from parax.runtime.manifest_reader import ManifestReader

X = np.array([[3, 0, 0, 1], [1, 2, 3, 4], [3, 0, 0, 1], [0, 0, 0, 0], [1, 2, 3, 4]], np.float32)


def unique_rows_plan(code: bytes, **changes: Any) -> Plan:
    """x: f32[N,4] → u = distinct rows of x, f32[K,4] → y = u + 1; also where each row went."""
    manifest = {
        **add_manifest(),
        "symbols": [{"name": "K", "min": 0, "max": 4}, {"name": "N", "input": 0, "axis": 0}],
        "outputs": [tensor("y", "K", 4), tensor("inverse", "N", dtype="i64")],
        "values": {"u": {"dtype": "f32", "shape": ["K", 4]}},
        "batch": None,
        "steps": [
            {
                "kind": "host",
                "op": "Unique",
                "attrs": {"axis": 0, "sorted": 1},
                "inputs": ["x"],
                "outputs": ["u", None, "inverse"],
                "binds": [{"symbol": "K", "output": 0, "axis": 0}],
            },
            {"kind": "native", "segment": 0, "inputs": ["u"], "outputs": ["y"], "arena": ["*", 16, "K"]},
        ],
        **changes,
    }
    return fake_plan(manifest, {"base": code}, np.ones(16, np.float32))


@pytest.mark.parametrize("mode", [{"instances": 1}, {}])
def test_symbols_bound_by_a_host_step_reach_native_code(add_code: bytes, mode: dict[str, Any]) -> None:
    with unique_rows_plan(add_code).session(**mode) as session:
        for x in (X, X[:1], X[1:4], X):
            result = session.run({"x": x})
            rows, inverse = np.unique(x, axis=0, return_inverse=True)
            assert np.array_equal(result["y"], rows + 1)
            assert np.array_equal(result["inverse"], inverse.reshape(-1))
        assert list(session.run(["inverse"], {"x": X})) == ["inverse"]


def test_a_bound_symbol_has_bounds(add_code: bytes) -> None:
    with unique_rows_plan(add_code).session(instances=1) as session:
        with pytest.raises(InvalidInput, match=r"dimension K.*0 to 4; found 6"):
            session.run({"x": np.arange(24, dtype=np.float32).reshape(6, 4)})
        assert len(executor_of(session).free) == 1


def test_out_is_filled_where_shapes_are_known_before(add_code: bytes) -> None:
    with (
        unique_rows_plan(add_code).session(instances=1) as session,
        pytest.raises(UsageError, match="follow from the inputs' shapes"),
    ):
        session.run({"x": X}, out={"inverse": np.zeros(5, np.int64)})


def test_native_errors_between_host_steps(add_code: bytes) -> None:
    bad = X.copy()
    bad[3] = -99  # sorts first
    with unique_rows_plan(add_code).session(instances=1) as session:
        for _ in range(2):
            with pytest.raises(InvalidInput, match="Gather 'emb'"):
                session.run({"x": bad})
            assert session.run({"x": X})["y"].shape == (3, 4)


def test_many_threads(add_code: bytes) -> None:
    wrong: list[Any] = []

    def work() -> None:
        results = [(n, session.run({"x": X[:n]})["y"]) for n in (*range(1, 6), *range(1, 6))]
        wrong.extend(n for n, y in results if not np.array_equal(y, np.unique(X[:n], axis=0) + 1))

    with unique_rows_plan(add_code).session() as session:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def host_plan(
    op: str,
    attrs: dict[str, Any],
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
    weights: Any = b"",
    **changes: Any,
) -> Plan:
    """One host operator and no native code."""
    step = {
        "kind": "host",
        "op": op,
        "attrs": attrs,
        "inputs": [t["name"] for t in inputs],
        "outputs": [t["name"] for t in outputs],
    }
    manifest = {"name": op, "inputs": inputs, "outputs": outputs, "targets": [], "steps": [step], **changes}
    return fake_plan(manifest, {}, weights)


def test_constants_of_host_steps(tmp_path: Any) -> None:
    weights = np.array([0, 3], np.int64)
    outputs = [tensor("v", 3), tensor("i", 3, dtype="i64")]
    step = {"kind": "host", "op": "TopK", "attrs": {"axis": 0}, "inputs": ["x", "k"], "outputs": ["v", "i"]}
    constants = {"k": {"dtype": "i64", "shape": [1], "offset": 8}}
    plan = host_plan("TopK", {}, [tensor("x", 5)], outputs, weights, steps=[step], constants=constants)
    plan.save(tmp_path / "plan.bin")
    with load(tmp_path / "plan.bin").session(instances=1) as session:
        x = np.array([1, 5, 2, 5, 0], np.float32)
        result = session.run({"x": x})
        assert result["v"].tolist() == [5, 5, 2]
        assert result["i"].tolist() == [1, 3, 2]
        mine = np.zeros(3, np.float32)
        assert session.run({"x": x}, out={"v": mine})["v"] is mine
        assert mine.tolist() == [5, 5, 2]


def test_strings_pass_through_host_steps() -> None:
    strings = tensor("x", 2, dtype="str"), tensor("y", 2, dtype="str")
    with host_plan("Identity", {}, [strings[0]], [strings[1]]).session(instances=1) as session:
        for x in (np.array(["a", "ß"]), np.array(["a", "ß"], object), ["a", "ß"]):
            result = session.run({"x": x})["y"]
            assert result.dtype == object
            assert result.tolist() == ["a", "ß"]


def test_string_constants() -> None:
    step = {"kind": "host", "op": "Identity", "attrs": {}, "inputs": ["c"], "outputs": ["y"]}
    constants = {"c": {"dtype": "str", "shape": [2, 1], "data": ["a", "b"]}}
    plan = host_plan("Identity", {}, [], [tensor("y", 2, 1, dtype="str")], steps=[step], constants=constants)
    with plan.session(instances=1) as session:
        first = session.run({})["y"]
        assert first.tolist() == [["a"], ["b"]]
        first[0, 0] = "changed"
        assert session.run({})["y"].tolist() == [["a"], ["b"]]


def test_an_output_that_is_an_input_is_a_copy() -> None:
    x = np.ones(3, np.float32)
    with host_plan("Identity", {}, [tensor("x", 3)], [tensor("y", 3)]).session(instances=1) as session:
        y = session.run({"x": x})["y"]
        assert not np.may_share_memory(x, y)
    with host_plan("Identity", {}, [tensor("x", 3)], [tensor("x", 3)], steps=[]).session(instances=1) as session:
        assert not np.may_share_memory(x, session.run({"x": x})["x"])


def test_a_host_result_of_another_shape_is_refused() -> None:
    with (
        host_plan("Identity", {}, [tensor("x", 3)], [tensor("y", 4)]).session(instances=1) as session,
        pytest.raises(InvalidInput, match="another shape than the model allows"),
    ):
        session.run({"x": np.ones(3, np.float32)})


def test_symbols_bound_to_a_tensors_value(add_code: bytes) -> None:
    manifest = {
        **add_manifest(),
        "inputs": [tensor("x", "N", 4), tensor("n", 1, dtype="i64")],
        "outputs": [tensor("y", "K", 4)],
        "symbols": [{"name": "K"}, {"name": "N", "input": 0, "axis": 0}],
        "batch": None,
        "steps": [
            {
                "kind": "host",
                "op": "Identity",
                "inputs": ["n"],
                "outputs": ["n2"],
                "binds": [{"symbol": "K", "output": 0, "element": 0}],
            },
            {"kind": "native", "segment": 0, "inputs": ["x"], "outputs": ["y"], "arena": ["*", 16, "K"]},
        ],
    }
    plan = fake_plan(manifest, {"base": add_code}, np.ones(16, np.float32))
    with plan.session(instances=1) as session:
        assert np.array_equal(session.run({"x": X, "n": np.array([2])})["y"], X[:2] + 1)
        with pytest.raises(InvalidInput, match="dimension K"):
            session.run({"x": X, "n": np.array([0])})


def test_an_unknown_host_operator() -> None:
    with pytest.raises(IncompatiblePlan, match=r"lacks a host operator; found ai\.onnx\.Nonsense"):
        host_plan("Nonsense", {}, [tensor("x", 3)], [tensor("y", 3)]).session()


def test_two_native_segments(add_code: bytes) -> None:
    code = object_code(ADD.format(segment=0) + ADD.format(segment=1).replace("declare void @llvm.trap()", ""))
    native = {"kind": "native", "arena": ["*", 16, "N"]}
    steps = [
        {**native, "segment": 0, "inputs": ["x"], "outputs": ["v"]},
        {**native, "segment": 1, "inputs": ["v"], "outputs": ["y"]},
    ]
    values = {"v": {"dtype": "f32", "shape": ["N", 4]}}
    plan = fake_plan({**add_manifest(), "steps": steps, "values": values}, {"base": code}, np.ones(16, np.float32))
    with plan.session() as session:
        mine = np.zeros_like(X)
        for _ in range(2):
            assert np.array_equal(session.run({"x": X})["y"], X + 2)
            assert session.run({"x": X}, out={"y": mine})["y"] is mine
            assert np.array_equal(mine, X + 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": {}}, "needs the value's shape"),
        ({"values": {"u": {"dtype": "str", "shape": ["K", 4]}}}, "cannot read or write this type"),
        ({"symbols": [{"name": "K"}, {"name": "N"}, {"name": "K"}]}, "two symbols of one name"),
        ({"outputs": [tensor("y", "K", 4), tensor("nobody", 1)]}, "no step writes an output"),
    ],
)
def test_references_that_lead_nowhere(add_code: bytes, change: dict[str, Any], message: str) -> None:
    manifest = {**unique_rows_plan(add_code).json(), **change}
    with pytest.raises(CorruptPlan, match=message):
        ManifestReader(manifest).read()
