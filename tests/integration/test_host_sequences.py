"""Sequences and optionals of which only a run knows the length, through whole plans, against ONNX Runtime and
onnx.reference, whichever has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import parax
from commanding import run_here
from parax.errors import InvalidInput, InvalidModel, UnsupportedOp, UsageError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
PARTS = [X, X[:2], X[:1] + 1]
HEAD = '<ir_version: 9, opset_import: ["": 18]>\n'
onnxruntime.set_default_logger_severity(4)

INSERTED = """(seq(float[N,3]) s, float[2,3] x) => (seq(float[N,3]) r, seq(float[N,3]) q) {
    r = SequenceInsert(s, x)  z = Constant<value_int = 0>()  q = SequenceErase(r, z) }"""
BRANCHES = """(float[4,3] x, bool c) => (int64 n, seq(float[N,3]) s) {
    s = If(c) <then_branch = a () => (seq(float[N,3]) t) { t = SequenceConstruct(x, x) },
               else_branch = b () => (seq(float[N,3]) f) { f = SequenceConstruct(x) }>
    n = SequenceLength(s) }"""
FILLED = """(float[3] x, int64 n) => (float[M,3] y, seq(float[3]) s) {
    e = SequenceEmpty()
    true = Constant<value_int = 1>()  on = Cast<to = 9>(true)
    s = Loop(n, on, e) <body = b (int64 i, bool ci, seq(float[3]) s0) => (bool co, seq(float[3]) s1) {
        co = Identity(ci)  f = Cast<to = 1>(i)  z = Add(x, f)  s1 = SequenceInsert(s0, z) }>
    q = ConcatFromSequence<axis = 0, new_axis = 1>(s)
    y = Relu(q) }"""
SHRUNK = """(seq(float[N,3]) s, int64 n) => (seq(float[N,3]) r) {
    true = Constant<value_int = 1>()  on = Cast<to = 9>(true)
    r = Loop(n, on, s) <body = b (int64 i, bool ci, seq(float[N,3]) s0) => (bool co, seq(float[N,3]) s1) {
        co = Identity(ci)  s1 = SequenceErase(s0) }> }"""
SUMMED = """(seq(float[N,3]) s) => (float[3] y) {
    n = SequenceLength(s)  a = Constant<value_floats = [0.0, 0.0, 0.0]>()  zero = Constant<value_ints = [0]>()
    true = Constant<value_int = 1>()  on = Cast<to = 9>(true)
    y = Loop(n, on, a) <body = b (int64 i, bool ci, float[3] a0) => (bool co, float[3] a1) {
        co = Identity(ci)  e = SequenceAt(s, i)  r = ReduceSum<keepdims = 0>(e, zero)  a1 = Add(a0, r) }> }"""
STOPPED = """(float[3] x, int64 n) => (seq(float[3]) s) {
    e = SequenceEmpty()  three = Constant<value_int = 9>()
    true = Constant<value_int = 1>()  on = Cast<to = 9>(true)
    s = Loop(three, on, e) <body = b (int64 i, bool ci, seq(float[3]) s0) => (bool co, seq(float[3]) s1) {
        co = Less(i, n)  s1 = SequenceInsert(s0, x) }> }"""
OPENED = """(optional(float[N]) o) => (float[M] y) {
    h = OptionalHasElement(o)
    y = If(h) <then_branch = a () => (float[M] t) { t = OptionalGetElement(o) },
               else_branch = b () => (float[M] f) { f = Constant<value_floats = [7.0, 8.0]>() }> }"""
MAPPED = """(seq(float[N,3]) s, float[3] b) => (seq(float[N,3]) r) {
    r = SequenceMap(s, b) <body = m (float[N,3] e, float[3] w) => (float[N,3] o) { o = Add(e, w) }> }"""
TWICE = """(seq(float[N,3]) s, seq(float[N,3]) t) => (seq(float[N,3]) r, seq(int64[2]) q) {
    r, q = SequenceMap(s, t) <body = m (float[N,3] e, float[N,3] f) => (float[N,3] o, int64[2] p) {
        o = Mul(e, f)  p = Shape(e) }> }"""
IN_TWO = "(float[4,3] x, int64[K] sizes) => (seq(float[N,3]) s) { s = SplitToSequence<axis = 0>(x, sizes) }"

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "output": ("(float[4,3] x) => (seq(float[1,3]) s) { s = SplitToSequence<axis = 0>(x) }", {"x": X}),
    "empty output": ("(float[4,3] x) => (seq(int64[2]) s) { s = SequenceEmpty<dtype = 7>() }", {"x": X}),
    "pieces": ("(float[N,3] x) => (seq(float[1,3]) s) { s = SplitToSequence<axis = 0>(x) }", {"x": X}),
    "no pieces": ("(float[N,3] x) => (seq(float[1,3]) s) { s = SplitToSequence<axis = 0>(x) }", {"x": X[:0]}),
    "pieces of two": ("(float[N,3] x, int64 k) => (seq(float[M,3]) s) { s = SplitToSequence<axis = 0>(x, k) }",
                      {"x": X[:3], "k": np.array(2)}),
    "pieces of sizes": (IN_TWO, {"x": X, "sizes": np.array([1, 0, 3])}),
    "a piece": ("(float[N,3] x, int64 i) => (float[3] y) { s = SplitToSequence<axis = 0, keepdims = 0>(x) "
                "e = SequenceAt(s, i)  y = Relu(e) }", {"x": X, "i": np.array(-1)}),
    "length": ("(seq(float[N,3]) s) => (int64 n) { n = SequenceLength(s) }", {"s": PARTS}),
    "at": ("(seq(float[N,3]) s, int64 i) => (float[M,3] y) { e = SequenceAt(s, i)  y = Relu(e) }",
           {"s": PARTS, "i": np.array(1)}),
    "at of no rank": ("(seq(float[]) s, int64 i) => (float[] y) { y = SequenceAt(s, i) }",
                      {"s": [X, X[0]], "i": np.array(-1)}),
    "joined": ("(seq(float[N,3]) s) => (float[M,3] y) { e = ConcatFromSequence<axis = 0>(s)  y = Neg(e) }",
               {"s": PARTS}),
    "itself": ("(seq(float[N,3]) s) => (seq(float[N,3]) r) { r = Identity(s) }", {"s": PARTS}),
    "returned": ("(seq(float[N,3]) s) => (seq(float[N,3]) s) { }", {"s": PARTS}),
    "of strings": ("(seq(string[N]) s, string[N] x) => (seq(string[N]) r) { r = SequenceInsert(s, x) }",
                   {"s": [np.array(["a", "ü"], object)], "x": np.array(["b"], object)}),
    "inserted, erased": (INSERTED, {"s": PARTS, "x": X[:2]}),
    "inserted somewhere": ("(float[4,3] x, int64 p) => (seq(float[N,3]) r) { s = SequenceConstruct(x, x) "
                           "w = Neg(x)  r = SequenceInsert(s, w, p) }", {"x": X, "p": np.array(1)}),
    "optional": ("(optional(float[N]) o) => (bool h) { h = OptionalHasElement(o) }", {"o": X[0]}),
    "empty optional": ("(optional(float[N]) o) => (bool h) { h = OptionalHasElement(o) }", {"o": None}),
    "of optional": ("(optional(float[N]) o) => (float[N] y) { e = OptionalGetElement(o)  y = Neg(e) }", {"o": X[0]}),
    "optional sequence": ("(optional(seq(float[3])) o) => (int64 n) { e = OptionalGetElement(o) "
                          "n = SequenceLength(e) }", {"o": [X[0], X[1]]}),
    "opened": (OPENED, {"o": None}), "opened, full": (OPENED, {"o": X[1]}),
    "branches": (BRANCHES, {"x": X, "c": np.array(True)}), "other branch": (BRANCHES, {"x": X, "c": np.array(False)}),
    "filled": (FILLED, {"x": X[0], "n": np.array(5)}), "shrunk": (SHRUNK, {"s": PARTS, "n": np.array(2)}),
    "not shrunk": (SHRUNK, {"s": PARTS, "n": np.array(0)}), "stopped": (STOPPED, {"x": X[0], "n": np.array(2)}),
    "summed": (SUMMED, {"s": PARTS}), "mapped": (MAPPED, {"s": PARTS, "b": X[0]}),
    "mapped none": (MAPPED, {"s": [], "b": X[0]}), "mapped twice": (TWICE, {"s": PARTS, "t": PARTS}),
    "mapped pieces": ("(float[N,3] x) => (float[M,3] y) { s = SplitToSequence<axis = 0>(x) "
                      "r = SequenceMap(s) <body = m (float[1,3] e) => (float[1,3] o) { o = Relu(e) }> "
                      "y = ConcatFromSequence<axis = 0>(r) }", {"x": X}),
}  # fmt: skip


def plan_of(text: str) -> tuple[parax.Plan, onnx.ModelProto]:
    model = onnx.parser.parse_model(f"{HEAD}g {text}")
    return parax.compile(model), model


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    kinds = {each.dtype.kind.replace("U", "O") for each in (a, b)}
    return a.shape == b.shape and len(kinds) == 1 and bool((a == b).all())


def others(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[list[Any]]:
    """What other implementations give, as far as they do."""
    found = []
    for run in (lambda: ReferenceEvaluator(model).run(None, feeds),
                lambda: onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)):  # fmt: skip
        try:
            found.append(list(run()))
        except Exception:  # theirs have no common base
            continue
    return found


@pytest.mark.parametrize("name", CASES)
def test_others_agree(name: str, tmp_path: Path) -> None:
    text, feeds = CASES[name]
    plan, model = plan_of(text)
    plan.save(tmp_path / "plan.bin")
    wanted = others(model, feeds)
    with parax.load(tmp_path / "plan.bin").session() as session:
        for _ in range(2):
            results = list(session.run(feeds).values())
            assert wanted and all(same(results, each) for each in wanted)


def test_an_optional_leaves_a_plan_as_its_element() -> None:
    plan, _ = plan_of("(float[3] x) => (optional(float[3]) o) { o = Optional(x) }")
    with plan.session() as session:
        assert np.array_equal(session.run({"x": X[0]})["o"], X[0])
    plan, _ = plan_of("(float[3] x) => (optional(float[3]) o) { o = Optional<type: type_proto = float[3]>() }")
    with plan.session() as session:
        assert session.run({"x": X[0]}) == {"o": None}


def test_what_callers_get_is_theirs() -> None:
    plan, _ = plan_of("(seq(float[N,3]) s) => (seq(float[N,3]) r, seq(float[N,3]) q) "
                      "{ r = Identity(s)  q = Identity(s) }")  # fmt: skip
    with plan.session() as session:
        found = session.run({"s": PARTS})
    for mine in found["r"]:
        assert not any(np.shares_memory(mine, other) for other in (*PARTS, *found["q"]))


@pytest.mark.parametrize("text, feeds, match", [
    (CASES["at"][0], {"s": PARTS, "i": np.array(3)}, "outside of the sequence"),
    (CASES["at"][0], {"s": [], "i": np.array(0)}, "outside of the sequence"),
    (CASES["at"][0], {"s": X, "i": np.array(0)}, "a list"),
    (CASES["at"][0], {"s": [X[0]], "i": np.array(0)}, "wrong shape"),
    (CASES["at"][0], {"s": [X.astype(np.float64)], "i": np.array(0)}, "element type"),
    (CASES["joined"][0], {"s": []}, "empty sequence"),
    ("(seq(float[N,M]) s) => (float[K,L] y) { y = ConcatFromSequence<axis = 0>(s) }", {"s": [X, X[:, :1]]},
     "fit together"),
    (CASES["of optional"][0], {"o": None}, "no element"),
    (IN_TWO, {"x": X, "sizes": np.array([1, 1])}, "add up"),
    (CASES["pieces of two"][0], {"x": X, "k": np.array(0)}, "positive"),
    (SHRUNK, {"s": PARTS, "n": np.array(4)}, "outside of the sequence"),
])  # fmt: skip
def test_what_a_run_refuses(text: str, feeds: dict[str, Any], match: str) -> None:
    plan, _ = plan_of(text)
    with plan.session() as session, pytest.raises(InvalidInput, match=match):
        session.run(feeds)


@pytest.mark.parametrize("text, error, match", [
    ("(seq(float[N]) s, int64[2] x) => (seq(float[N]) r) { r = SequenceInsert(s, x) }", InvalidModel,
     "one element type"),
    ("(seq(float[N]) s) => (seq(int64[N]) r) { r = Identity(s) }", InvalidModel, "than declared"),
    ("(seq(float[N]) s) => (float[N] r) { r = Relu(s) }", InvalidModel, "wrong type"),
    ("(float[N] s) => (int64 r) { r = SequenceLength(s) }", InvalidModel, "a sequence"),
    ("(seq(float[N]) s, bool c) => (seq(float[N]) r) { r = If(c) <then_branch = a () => (seq(float[N]) t) "
     "{ t = Identity(s) }, else_branch = b () => (seq(int64[N]) f) { f = SequenceEmpty<dtype = 7>() }> }", InvalidModel,
     "two types"),
    ("(seq(float[N]) s) => (seq(float[N]) r) { r = SequenceMap(s) <body = m (float[N] e) => (o) { o = Neg(e) }> }",
     UnsupportedOp, "what it gives"),
    ("(optional(float[N]) o, int64 n) => (float[N] r) { r = Loop(n, , o) <body = b (int64 i, bool ci, "
     "optional(float[N]) p) => (bool co, float[N] q) { co = Identity(ci)  q = OptionalGetElement(p) }> }",
     UnsupportedOp, "becomes its element"),
])  # fmt: skip
def test_what_is_refused(text: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        plan_of(text)


def test_verbs_know_sequences(tmp_path: Path) -> None:
    _, model = plan_of(INSERTED)
    onnx.save(model, tmp_path / "m.onnx")
    given = [str(tmp_path / "m.onnx"), "--input", "s=[[[1, 2, 3]], [[4, 5, 6], [7, 8, 9]]]", "--random"]
    done = run_here("main", ["run", *given, "--output", f"r=@{tmp_path / 'r.json'}"])
    assert done.returncode == 0 and "[[1.0, 2.0, 3.0]]" in done.stdout, done.stderr
    done = run_here("main", ["run", *given, "--expect", f"r=@{tmp_path / 'r.json'}"])
    assert done.returncode == 0 and "same" in done.stdout
    assert run_here("main", ["verify", str(tmp_path / "m.onnx")]).returncode == 0
    assert "seq(tensor(float))" in run_here("main", ["inspect", str(tmp_path / "m.onnx")]).stdout


def test_memory_for_sequences_cannot_be_given() -> None:
    plan, _ = plan_of(CASES["itself"][0])
    with plan.session() as session, pytest.raises(UsageError, match="out="):
        session.run({"s": PARTS}, out={"r": X})


def test_a_prepared_request_takes_other_sequences() -> None:
    plan, _ = plan_of(CASES["joined"][0])
    with plan.session() as session:
        request = session.prepare({"s": PARTS})
        assert request.run()["y"].shape == (7, 3)
        assert request.run({"s": PARTS[:1]})["y"].tolist() == (-X).tolist()
        with pytest.raises(InvalidInput, match="a list"):
            request.run({"s": X})
