"""Graphs in training mode: what becomes what, running statistics, masks however a batch is cut."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import run_graph
from backend.kernels.test_random_mask import plain_mask
from parax.compiler.ir.ops.normalization import BatchNormalization
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.verify import verify
from parax.compiler.training.modes import COUNTER, to_training
from parax.errors import InvalidModel, UnsupportedOp
from passes.check import comparable

NORM = """graph @g(%x: f32[N,3,4], %s: f32[3], %b: f32[3], %m: f32[3]) {
  %v = const f32[3] [1.0, 2.0, 3.0]
  %y = BatchNormalization(%x, %s, %b, %m, %v) {momentum=0.75, epsilon=0.125}
  %z = Relu(%y)
  return %z
}"""
DROP = """graph @g(%x: f32[N,6]) {
  %ratio = const f32[] 0.25
  %y = Dropout(%x, %ratio) {seed=5}
  %z = Relu(%y)
  return %z
}"""

DROPPED = """graph @g(%x: f32[N,6], %training.counter: i64[2]) {
  %ratio = const f32[] 0.25
  %0 = const i64[1] [0]
  %1 = const i64[1] [1]
  %from = const i64[1] [1]
  %vector = const i64[1] [1]
  %2 = const i64[1] [2]
  %scalar = const i64[0] []
  %seed = const i64[] 5
  %one = const f32[] 1.0
  %zero = const f32[] 0.0
  %step = Slice(%training.counter, %0, %1)
  %row = Slice(%training.counter, %from, %2)
  %size = Size(%x)
  %elements = Reshape(%size, %vector)
  %rows = Shape(%x) {end=1}
  %each = Div(%elements, %rows)
  %first = Mul(%row, %each)
  %position = Concat(%step, %first) {axis=0}
  %share = Reshape(%ratio, %scalar)
  %shape = Shape(%x)
  %mask = parax::RandomMask(%shape, %share, %seed, %position)
  %kept = Sub(%one, %share)
  %scale = Reciprocal(%kept)
  %scaled = Mul(%x, %scale)
  %y = Where(%mask, %scaled, %zero)
  %z = Relu(%y)
  return %z
}"""


def test_batch_normalization_becomes_that_of_training() -> None:
    graph = parse_graph(NORM)
    mode = to_training(graph)
    verify(graph)
    after = NORM.replace("%y =", "%y, %nm, %nv =").replace("epsilon=0.125", "epsilon=0.125, training_mode=1")
    assert comparable(graph, True) == comparable(parse_graph(after), True)
    (node,) = (n for n in graph if isinstance(n.op, BatchNormalization))
    assert {old.name: new for old, new in mode.running.items()} == dict(zip("mv", node.outputs[1:]))
    assert mode.counter is None


def test_running_statistics_are_what_the_batch_makes_of_them() -> None:
    graph = parse_graph(NORM)
    mode = to_training(graph)
    graph.set_outputs([*graph.outputs, *mode.running.values()])
    rng = np.random.default_rng(0)
    x, (s, b, m) = rng.standard_normal((5, 3, 4)).astype(np.float32), rng.standard_normal((3, 3)).astype(np.float32)
    z, mean, variance = run_graph(graph, {"x": x, "s": s, "b": b, "m": m}, {"N": 5})
    own, spread = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(mean, 0.75 * m + 0.25 * own, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, 0.75 * np.array([1, 2, 3]) + 0.25 * spread, rtol=1e-5)
    normal = (x - own[:, None]) / np.sqrt(spread[:, None] + 0.125)
    np.testing.assert_allclose(z, np.maximum(normal * s[:, None] + b[:, None], 0), rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_applied_twice_comes_nearer_to_both_batches() -> None:
    graph = parse_graph("""graph @g(%x: f32[4,3], %s: f32[3], %m: f32[3], %v: f32[3]) {
      %same = Identity(%m)
      %y = BatchNormalization(%x, %s, %s, %m, %v)
      %z = BatchNormalization(%y, %s, %s, %same, %v)
      return %z
    }""")
    mode = to_training(graph)
    first, second = (n for n in graph if isinstance(n.op, BatchNormalization))
    assert list(second.inputs[3:]) == list(first.outputs[1:])
    assert {old.name: new for old, new in mode.running.items()} == dict(zip("mv", second.outputs[1:]))


@pytest.mark.parametrize(("mean", "error", "message"), [
    ("%w = Relu(%m)", UnsupportedOp, "mean that the model computes"), ("%w = Identity(%v)", InvalidModel, "one tensor"),
])  # fmt: skip
def test_statistics_that_cannot_be_trained(mean: str, error: type[Exception], message: str) -> None:
    graph = parse_graph(f"""graph @g(%x: f32[4,3], %s: f32[3], %m: f32[3], %v: f32[3]) {{
      {mean}
      %y = BatchNormalization(%x, %s, %s, %w, %v)
      return %y
    }}""")
    with pytest.raises(error, match=message):
        to_training(graph)


def test_dropout_becomes_a_mask_by_the_counter() -> None:
    graph = parse_graph(DROP)
    mode = to_training(graph)
    verify(graph)
    assert comparable(graph, False) == comparable(parse_graph(DROPPED), False), print_graph(graph)
    assert mode.counter is graph.inputs[-1]
    assert not mode.running


@pytest.mark.parametrize("cut", [[7], [2, 5], [1, 1, 5]])
def test_masks_do_not_depend_on_how_a_batch_is_cut(cut: list[int]) -> None:
    graph = parse_graph(DROP)
    to_training(graph)
    x, step = np.random.default_rng(1).random((7, 6)).astype(np.float32) + 1, 11
    starts = np.cumsum([0, *cut])
    found = [run_graph(graph, {"x": x[a:b], COUNTER: np.array([step, a])}, {"N": int(b - a)})[0]
             for a, b in zip(starts, starts[1:])]  # fmt: skip
    kept = plain_mask(42, 0.25, 5, step).reshape(7, 6)
    np.testing.assert_allclose(np.concatenate(found), np.where(kept, x / 0.75, 0), rtol=1e-6)


def test_rows_that_a_reshape_merges_are_counted_all_the_same() -> None:
    graph = parse_graph("""graph @g(%x: f32[N,4,3]) {
      %to = const i64[2] [-1, 3]
      %r = Reshape(%x, %to)
      %y = Dropout(%r)
      return %y
    }""")
    to_training(graph)

    def run(n: int, first: int) -> np.ndarray:
        feeds = {"x": np.ones((n, 4, 3), np.float32), COUNTER: np.array([2, first])}
        return run_graph(graph, feeds, {"N": n})[0]

    np.testing.assert_array_equal(np.concatenate([run(2, 0), run(3, 2)]), run(5, 0))


def test_layers_and_steps_draw_different_masks() -> None:
    graph = parse_graph("""graph @g(%x: f32[8,32]) {
      %y = Dropout(%x)
      %z = Dropout(%x)
      return %y, %z
    }""")
    to_training(graph)
    ones = np.ones((8, 32), np.float32)
    runs = [run_graph(graph, {"x": ones, COUNTER: np.array([step, 0])}) for step in (1, 2)]
    drawn = [layer for run in runs for layer in run]
    for i, a in enumerate(drawn):
        assert all((a != b).any() for b in drawn[:i])


def test_a_model_with_the_counters_name_is_refused() -> None:
    graph = parse_graph(f"graph @g(%{COUNTER}: f32[4]) {{\n%y = Dropout(%{COUNTER})\nreturn %y\n}}")
    with pytest.raises(InvalidModel, match="counter"):
        to_training(graph)
