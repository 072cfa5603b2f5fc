"""State that a plan keeps between calls: the same numbers as handing it in and out, whatever its shape and fate."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import parax
from parax.errors import CorruptPlan, InvalidInput, UsageError

F32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
HEADS, DEPTH, LONGEST = 3, 5, 37


def model(nodes: list[onnx.NodeProto], inputs: dict[str, list], outputs: dict[str, list], **types: int) -> bytes:
    """A model of these nodes as a file's bytes; everything is f32 but for what `types` says."""
    def info(named: dict[str, list]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, types.get(n, F32), shape) for n, shape in named.items()]

    graph = helper.make_graph(nodes, "g", info(inputs), info(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def growing(axis: int = 2) -> bytes:
    """Attention of new rows to all of them, where the past grows along `axis` of two states."""
    nodes = [
        helper.make_node("Concat", ["past.k", "new"], ["present.k"], axis=axis),
        helper.make_node("Neg", ["new"], ["minus"]),
        helper.make_node("Concat", ["past.v", "minus"], ["present.v"], axis=axis),
    ]
    perm = [0, 1, 2, 3] if axis == 2 else [0, 2, 1, 3]
    nodes += [helper.make_node("Transpose", [a], [b], perm=p) for a, b, p in (
        ("present.k", "kt", [perm[i] for i in (0, 1, 3, 2)]), ("new", "q", perm), ("present.v", "v", perm))]
    nodes += [
        helper.make_node("MatMul", ["q", "kt"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    def dims(length: str) -> list:
        shape = ["B", HEADS, HEADS, DEPTH]
        shape[axis] = length
        return shape

    return model(nodes, {"past.k": dims("P"), "past.v": dims("P"), "new": dims("S")},
                 {"y": ["B", HEADS, "S", DEPTH], "present.k": dims("T"), "present.v": dims("T")})


def scattered() -> bytes:
    """Rows written into a table of a fixed size at given places, and a sum over it."""
    nodes = [helper.make_node("ScatterND", ["past", "at", "new"], ["present"]),
             helper.make_node("ReduceSum", ["present"], ["y"], keepdims=0),
             helper.make_node("Identity", ["past"], ["seen"])]
    return model(nodes, {"past": [9, DEPTH], "at": ["S", 1], "new": ["S", DEPTH]},
                 {"y": [], "seen": [9, DEPTH], "present": [9, DEPTH]}, at=I64)


def counter(dtype: int = F32) -> bytes:
    """A running sum, read before and after it is changed, and by something that comes late."""
    nodes = [helper.make_node("Add", ["h", "x"], ["h.new"]), helper.make_node("Softmax", ["h"], ["before"], axis=1),
             helper.make_node("Mul", ["h.new", "x"], ["y"])]
    return model(nodes, {"h": ["B", 4], "x": ["B", 4]}, {"y": ["B", 4], "before": ["B", 4], "h.new": ["B", 4]})


GROWING = {"past.*": "present.*"}


@pytest.fixture(scope="module")
def attention() -> Iterator[tuple[parax.Plan, parax.Session]]:
    """The plan with state, and a session of that without."""
    plan = parax.compile(growing(), state=GROWING, dims={"P": (0, LONGEST)})
    with parax.compile(growing(), hint="latency").session() as apart:
        yield plan, apart


def rows(rng: np.random.Generator, n: int, batch: int = 1, axis: int = 2) -> np.ndarray:
    shape = [batch, HEADS, HEADS, DEPTH]
    shape[axis] = n
    return rng.standard_normal(shape).astype(np.float32)


def calls(apart: parax.Session, news: list[np.ndarray], axis: int = 2) -> Iterator[dict[str, np.ndarray]]:
    """The results of handing the state in and out."""
    past = {name: news[0].take([], axis) for name in ("past.k", "past.v")}
    for new in news:
        found = apart.run({**past, "new": new})
        past = {"past.k": found["present.k"], "past.v": found["present.v"]}
        yield found


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_growing_state_is_as_one_handed_in_and_out(axis: int, level: int) -> None:
    options = parax.CompileOptions(opt_level=level, hint="latency")
    news = [rows(np.random.default_rng(n), n, 2, axis) for n in (4, 1, 1, 7, 0, 1, 30)]  # beyond the first memory
    with (parax.compile(growing(axis), options=options).session() as apart,
          parax.compile(growing(axis), options=options, state=GROWING).session() as session):  # fmt: skip
        assert [spec.name for spec in session.inputs] == ["new"]
        assert [spec.name for spec in session.outputs] == ["y"]
        sequence = session.sequence()
        for new, wanted in zip(news, calls(apart, news, axis)):
            found = sequence.run({"new": new})
            np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-6)
            assert list(found) == ["y"] and sequence.length == wanted["present.k"].shape[axis]
            content = sequence.content()
            assert all(np.array_equal(content[f"past.{x}"], wanted[f"present.{x}"]) for x in "kv")


def test_nothing_copies_what_is_there(attention: tuple[parax.Plan, parax.Session]) -> None:
    names = attention[0].manifest.provenance["kernels"]
    assert len(names) == 4  # Neg, what is new of both states, and attention


def test_what_is_scattered_lies_in_place() -> None:
    plan, rng = parax.compile(scattered(), state={"past": "present"}), np.random.default_rng(0)
    table = np.zeros((9, DEPTH), np.float32)
    with plan.session() as session:
        for places in ([3, 3, 8], [0], [], [8, -1, 2]):
            new = rng.standard_normal((len(places), DEPTH)).astype(np.float32)
            before = table.copy()
            for place, row in zip(places, new):
                table[place] = row
            found = session.run({"at": np.array(places, np.int64).reshape(-1, 1), "new": new})
            np.testing.assert_allclose(found["y"], table.sum(dtype=np.float64), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found["seen"], before)
        session.reset()
        assert not session.run({"at": np.zeros((0, 1), np.int64), "new": np.zeros((0, DEPTH), np.float32)})["y"]


def test_a_state_may_be_of_the_last_call_alone() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["present"]), helper.make_node("ReduceSum", ["past"], ["y"], keepdims=0)]
    last = model(nodes, {"past": [2, "P"], "x": [2, "S"]}, {"y": [], "present": [2, "S"]})
    with parax.compile(last, state={"past": "present"}).session() as session:
        wanted = 0.0
        for n in (3, 5, 0, 20, 1, 1):
            x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
            np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
            wanted = -x.sum(dtype=np.float64)


def test_a_place_out_of_range_spoils_a_state_that_is_overwritten() -> None:
    with parax.compile(scattered(), state={"past": "present"}).session() as session:
        feeds = {"at": np.array([[1], [9]], np.int64), "new": np.ones((2, DEPTH), np.float32)}
        with pytest.raises(InvalidInput, match="out of range"):
            session.run(feeds)
        with pytest.raises(UsageError, match=r"half-way.*reset"):
            session.run({**feeds, "at": np.array([[1], [2]], np.int64)})
        session.reset()
        assert session.run({**feeds, "at": np.array([[1], [2]], np.int64)})["y"] == 2 * DEPTH


@pytest.mark.parametrize("level", [0, 2])
def test_late_readers_see_what_was_there(level: int) -> None:
    plan = parax.compile(counter(), state={"h": "h.new"}, options=parax.CompileOptions(opt_level=level))
    total, rng = np.zeros((3, 4)), np.random.default_rng(1)
    with plan.session() as session:
        for _ in range(4):
            x = rng.standard_normal((3, 4)).astype(np.float32)
            found = session.run({"x": x})
            np.testing.assert_allclose(found["before"].sum(1), 1, rtol=1e-5)
            np.testing.assert_allclose(found["before"], np.exp(total) / np.exp(total).sum(1, keepdims=True), rtol=1e-4)
            total += x
            np.testing.assert_allclose(found["y"], total * x, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("instances", [1, 2])
def test_sequences_side_by_side_do_not_meet(attention: tuple[parax.Plan, parax.Session], instances: int) -> None:
    plan, apart = attention
    if instances > len(plan.session().core_groups[0]):
        pytest.skip("needs two cores")
    wrong: list[int] = []

    def one(seed: int, session: parax.Session) -> None:
        rng, sequence = np.random.default_rng(seed), session.sequence()
        for _ in range(3):
            sequence.reset()
            news = [rows(rng, n) for n in (5, 1, 1, 2)]
            for new, wanted in zip(news, calls(apart, news)):
                if not np.allclose(sequence.run({"new": new})["y"], wanted["y"], rtol=1e-4, atol=1e-5):
                    wrong.append(seed)

    with plan.session(instances=instances) as session:
        threads = [threading.Thread(target=one, args=(seed, session)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_sequence_begins_anew_and_with_content(attention: tuple[parax.Plan, parax.Session]) -> None:
    plan, apart = attention
    news = [rows(np.random.default_rng(n), n) for n in (6, 2)]
    wanted = list(calls(apart, news))
    with plan.session() as session:
        session.run({"new": rows(np.random.default_rng(9), 3)})
        session.reset()
        for new, each in zip(news, wanted):
            np.testing.assert_allclose(session.run({"new": new})["y"], each["y"], rtol=1e-5, atol=1e-6)
        session.reset({"past.k": wanted[0]["present.k"], "past.v": wanted[0]["present.v"]})
        np.testing.assert_allclose(session.run({"new": news[1]})["y"], wanted[1]["y"], rtol=1e-5, atol=1e-6)
        session.reset({"past.k": wanted[0]["present.k"]})
        with pytest.raises(InvalidInput, match=r"past.v"):
            session.run({"new": news[1]})


def test_too_long_is_refused_and_changes_nothing(attention: tuple[parax.Plan, parax.Session]) -> None:
    plan, apart = attention
    news = [rows(np.random.default_rng(n), n) for n in (LONGEST - 1, 1)]
    wanted = list(calls(apart, news))
    with plan.session() as session:
        session.run({"new": news[0]})
        with pytest.raises(InvalidInput, match=rf"too long.*at most {LONGEST}.*{LONGEST + 1}.*reset"):
            session.run({"new": rows(np.random.default_rng(0), 2)})
        np.testing.assert_allclose(session.run({"new": news[1]})["y"], wanted[1]["y"], rtol=1e-5, atol=1e-6)
        with pytest.raises(InvalidInput, match="too long"):
            session.run({"new": news[1]})


def test_a_refused_beginning_is_none(attention: tuple[parax.Plan, parax.Session]) -> None:
    with attention[0].session() as session:
        with pytest.raises(InvalidInput, match="too long"):
            session.run({"new": rows(np.random.default_rng(0), LONGEST + 1, batch=2)})
        assert session.run({"new": rows(np.random.default_rng(0), 2)})["y"].shape == (1, HEADS, 2, DEPTH)


def test_another_batch_wants_a_new_beginning(attention: tuple[parax.Plan, parax.Session]) -> None:
    with attention[0].session() as session:
        session.run({"new": rows(np.random.default_rng(0), 2)})
        with pytest.raises(InvalidInput, match=r"another shape.*reset"):
            session.run({"new": rows(np.random.default_rng(0), 2, batch=2)})
        session.reset()
        session.run({"new": rows(np.random.default_rng(0), 2, batch=2)})


def test_not_a_number_stays_in_its_sequence(attention: tuple[parax.Plan, parax.Session]) -> None:
    with attention[0].session() as session:
        one, other = session.sequence(), session.sequence()
        one.run({"new": np.full_like(rows(np.random.default_rng(0), 1), np.nan)})
        assert np.isnan(one.run({"new": rows(np.random.default_rng(0), 1)})["y"]).all()
        assert np.isfinite(other.run({"new": rows(np.random.default_rng(0), 1)})["y"]).all()
        one.reset()
        assert np.isfinite(one.run({"new": rows(np.random.default_rng(0), 1)})["y"]).all()


def test_a_plan_with_state_is_read_from_its_file(attention: tuple[parax.Plan, parax.Session], tmp_path: Path) -> None:
    attention[0].save(tmp_path / "plan.bin")
    new = rows(np.random.default_rng(0), 3)
    with attention[0].session() as here, parax.load(tmp_path / "plan.bin").session() as there:
        for _ in range(2):
            assert np.array_equal(here.run({"new": new})["y"], there.run({"new": new})["y"])


def test_mistakes_of_use_are_told(attention: tuple[parax.Plan, parax.Session]) -> None:
    plan, apart = attention
    new = rows(np.random.default_rng(0), 1)
    with pytest.raises(UsageError, match=r"keeps no state.*--state"):
        apart.sequence()
    with pytest.raises(UsageError, match="rows"):
        plan.session(batch_window=0.01)
    with plan.session() as session:
        with pytest.raises(InvalidInput, match=r"no input is named 'past.k'"):
            session.run({"new": new, "past.k": new})
        with pytest.raises(InvalidInput, match="no state is named 'past'"):
            session.reset({"past": new})
        with pytest.raises(InvalidInput, match="element type"):
            session.reset({"past.k": new.astype(np.float64)})
        with pytest.raises(UsageError, match="each of another size"):
            session.prepare({"new": new})
        sequence = session.sequence()
        sequence._busy.acquire()
        with pytest.raises(UsageError, match="one after the other"):
            sequence.run({"new": new})
        sequence._busy.release()
        mine = np.zeros_like(new)
        assert sequence.run({"new": new}, {"y": mine})["y"] is mine and mine.any()


BENT = {
    "no such input": lambda m: m["states"][0].update(input="other"),
    "no such output": lambda m: m["states"][0].update(output="other"),
    "another axis": lambda m: m["states"][0].update(axis=4),
    "no axis": lambda m: m["states"][0].update(axis=None),
    "another shape": lambda m: m["outputs"][1].update(shape=[["+", "P", "S"], "B", HEADS, DEPTH + 1]),
    "another type": lambda m: m["outputs"][1].update(dtype="i32"),
    "twice": lambda m: m["states"].append(m["states"][0]),
    "a batch": lambda m: m.update(batch={"symbol": "B", "axis": {"new": 0, "y": 0}}),
    "no state": lambda m: m.pop("states"),
}


@pytest.mark.parametrize("change", BENT)
def test_a_plan_whose_states_do_not_fit_is_refused(
    attention: tuple[parax.Plan, parax.Session], change: str
) -> None:
    manifest = attention[0].json()
    BENT[change](manifest)
    with pytest.raises(CorruptPlan):
        parax.Plan(manifest, attention[0]._members).session()


WRONG = [
    ({"past": "present.k"}, "no input has that name.*past.k"),
    ({"past.k": "present"}, "no output has that name.*present.k"),
    ({"past.*": "present.k"}, "on one side only"),
    ({"new": "past.k"}, "no output has that name"),
    ({"past.k": "present.k", "past.v": "present.k"}, "twice"),
    ({"past.?": "present.?"}, "no input has that name"),
]


@pytest.mark.parametrize(("state", "problem"), WRONG)
def test_wrong_pairs_are_refused(state: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parax.compile(growing(), state=state)


def test_types_that_are_no_one_memory_are_refused() -> None:
    cast = model([helper.make_node("Cast", ["h"], ["k"], to=I64)], {"h": ["B", 4], "x": ["B"]}, {"k": ["B", 4]}, k=I64)
    with pytest.raises(UsageError, match="different element types"):
        parax.compile(cast, state={"h": "k"})
    rank = model([helper.make_node("Flatten", ["h"], ["k"])], {"h": ["B", 4, 1], "x": ["B"]}, {"k": ["B", 4]})
    with pytest.raises(UsageError, match="different ranks"):
        parax.compile(rank, state={"h": "k"})
    wide = model([helper.make_node("Concat", ["h", "h"], ["k"], axis=1)], {"h": ["B", 4], "x": ["B"]}, {"k": ["B", 8]})
    with pytest.raises(UsageError, match=r"differ.*longer along one axis that the input leaves open"):
        parax.compile(wide, state={"h": "k"})
    untold = model([helper.make_node("Neg", ["h"], ["k"])], {"h": ["B", 4], "x": ["N"]}, {"k": ["B", 4]})
    with pytest.raises(UsageError, match=r"no other input tells.*B.*--dim B=N"):
        parax.compile(untold, state={"h": "k"})
    with parax.compile(untold, state={"h": "k"}, dims={"B": 3}).session() as session:
        assert session.run({"x": np.zeros(2, np.float32)}) == {}
