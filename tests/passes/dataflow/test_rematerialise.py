"""What a training step drops and computes again to fit into less memory."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import run_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.autodiff.reverse import gradients
from parax.compiler.passes.dataflow.choose_repeated import choose_repeated
from parax.compiler.passes.dataflow.dead_code import DeadCode
from parax.compiler.passes.dataflow.kept_tensors import KeptTensors, Lives
from parax.compiler.passes.dataflow.memory_planning import plan_memory
from parax.compiler.passes.dataflow.rematerialise import (
    ArenaTooSmall,
    Rematerialise,
    arena_nbytes,
    reorder,
    spared,
)
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass


def deep(n_layers: int, width: int = 64, tail: str = "Tanh") -> Graph:
    """A step of x → MatMul → Tanh → … → sum of squares, with the gradient of every weight."""
    weights = ", ".join(f"%w{i}: f32[{width},{width}]" for i in range(n_layers))
    lines, last = [], "x"
    for i in range(n_layers):
        lines += [f"%p{i} = MatMul(%{last}, %w{i})", f"%h{i} = {tail}(%p{i})"]
        last = f"h{i}"
    text = f"graph @step(%x: f32[128,{width}], {weights}) {{\n" + "\n".join(lines)
    graph = parse_graph(f"{text}\n%loss = ReduceSumSquare(%{last}) {{keepdims=0}}\nreturn %loss\n}}")
    found = gradients(graph, graph.value("loss"), [graph.value(f"w{i}") for i in range(n_layers)])
    graph.set_outputs([graph.value("loss"), *found])
    DeadCode().run(graph, Rewriter(graph))
    return graph


def given(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {v.name: (rng.standard_normal(v.tensor.static_shape) * 0.15).astype(np.float32) for v in graph.inputs}


STEP = """graph @g(%x: f32[64,128]) {
    %1 = Softmax(%x)\n %2 = Sigmoid(%1)\n %3 = Softmax(%2)\n %4 = Softmax(%3)\n %5 = ReduceMax(%4) {keepdims=0}
    AGAIN%6 = Mul(%4, %2)\n %7 = Mul(%6, %1)\n %8 = ReduceMin(%7) {keepdims=0}\n return %5, %8\n}"""
BYTES = 64 * 128 * 4


def test_a_tensor_is_computed_again_before_its_backward_reader() -> None:
    after = STEP.replace("AGAIN", "%9 = Sigmoid(%1)\n ").replace("%6 = Mul(%4, %2)", "%6 = Mul(%4, %9)")
    check_pass(Rematerialise(arena_nbytes=3 * BYTES + 4096), STEP.replace("AGAIN", ""), after)


def test_of_a_pool_that_keeps_its_taps_the_result_alone_is_computed_again() -> None:
    before = """graph @g(%x: f32[4,8,16,16]) {
        %1 = Softmax(%x)\n %2, %t = parax::TrainingMaxPool(%1) {kernel_shape=[1,1]}\n %3 = Softmax(%2)\n %4 = Softmax(%3)
        %5 = ReduceMax(%4) {keepdims=0}\n AGAIN%6 = Mul(%4, %2)\n %7 = Mul(%6, %1)\n %8 = ReduceMin(%7) {keepdims=0}
        %9 = ReduceMax(%t) {keepdims=0}\n return %5, %8, %9\n}"""
    graph, same = (parse_graph(before.replace("AGAIN", "")) for _ in range(2))
    assert Rematerialise(arena_nbytes=3 * BYTES + BYTES // 4 + 4096).run(graph, Rewriter(graph))
    verify(graph)
    expected = before.replace("AGAIN", "%p = MaxPool(%1) {kernel_shape=[1,1]}\n ").replace("Mul(%4, %2)", "Mul(%4, %p)")
    assert [n.op.name for n in graph] == [n.op.name for n in parse_graph(expected)]
    x = given(graph)
    for found, kept in zip(run_graph(graph, x), run_graph(same, x), strict=True):
        np.testing.assert_array_equal(found, kept)


def test_what_fits_or_has_open_sizes_is_left_alone() -> None:
    text = STEP.replace("AGAIN", "")
    check_pass(Rematerialise(arena_nbytes=5 * BYTES), text, None)
    check_pass(Rematerialise(), text, None)
    check_pass(Rematerialise(arena_nbytes=1), text.replace("64,", "N,"), None)


def test_views_of_what_is_computed_again_are_shown_again() -> None:
    text = STEP.replace("%2 = Sigmoid(%1)", "%s = Sigmoid(%1)\n %2 = Reshape(%s, %shape)")
    text = text.replace("{\n", "{\n%shape = const i64[2] [64, 128]\n", 1).replace("AGAIN", "")
    text = text.replace("%shape = const i64[2] [64, 128]", "%shape = const i64[2] [128, 64]")
    text = text.replace("Mul(%6, %1)", "Mul(%6, %t)").replace("%6 = ", "%t = Reshape(%1, %shape)\n %6 = ")
    graph, expected = parse_graph(text), parse_graph(text)
    assert Rematerialise(3 * BYTES + 4096).run(graph, Rewriter(graph))
    verify(graph)
    assert_equivalent(expected, graph, {}, -2.0, 2.0)
    assert [n.op.name for n in graph].count("Sigmoid") == 2


@pytest.mark.parametrize(("n_layers", "share"), [(8, 0.9), (8, 0.75), (16, 0.6)])
@pytest.mark.parametrize("tail", ["Tanh", "Softplus"])
def test_no_bit_changes(n_layers: int, share: float, tail: str) -> None:
    graph = deep(n_layers, tail=tail)
    x, free = given(graph), arena_nbytes(graph)
    expected = run_graph(graph.clone(), x)
    assert Rematerialise(int(free * share)).run(graph, Rewriter(graph))
    verify(graph)
    assert arena_nbytes(graph) <= free * share
    for a, b in zip(expected, run_graph(graph, x), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not Rematerialise(int(free * share)).run(graph, Rewriter(graph))


def test_a_limit_that_cannot_be_met_says_the_least_that_can() -> None:
    graph = deep(8)
    before = print_graph(graph)
    with pytest.raises(ArenaTooSmall, match="needs more memory") as caught:
        Rematerialise(1000).run(graph, Rewriter(graph))
    least = caught.value.needs_nbytes
    assert print_graph(graph) == before and least < arena_nbytes(graph)
    assert Rematerialise(least).run(graph, Rewriter(graph)) and arena_nbytes(graph) <= least


@pytest.mark.parametrize("n_layers", [2, 5, 12])
def test_the_model_of_lives_is_that_of_the_planner(n_layers: int) -> None:
    """Bytes that live while each node runs, but that the planner rounds sizes to lines."""
    graph = deep(n_layers)
    kept = KeptTensors(graph)
    planned = plan_memory(graph).peak
    assert isinstance(planned, int)
    assert Lives(kept, kept.once()).live.max() == pytest.approx(planned, rel=0.02)
    for share in (0.9, 0.7, 0.5):
        order = choose_repeated(kept, int(planned * share))
        copy = graph.clone()
        reorder(copy, order)
        verify(copy)
        again = plan_memory(copy).peak
        assert isinstance(again, int) and again == pytest.approx(Lives(kept, order).live.max(), rel=0.03)


def test_what_is_made_again_is_let_go_again() -> None:
    """Where there is room for few tensors, some run more than twice: the square root of the layers is not the least."""
    graph = deep(24)
    x, kept = given(graph), KeptTensors(graph)
    expected = run_graph(graph.clone(), x)
    most = int(arena_nbytes(graph) * 0.3)
    order = choose_repeated(kept, most)
    assert max(map(order.count, order)) > 2 and Lives(kept, order).live.max() <= most
    reorder(graph, order)
    verify(graph)
    for a, b in zip(expected, run_graph(graph, x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("share", [0.4, 0.7, 1.1])
def test_runs_that_the_limit_has_room_for_are_left_out(share: float) -> None:
    """Of an order for a lower limit; what is left is needed, run by run."""
    graph = deep(12)
    x, kept, everything = given(graph), KeptTensors(graph), arena_nbytes(graph)
    frugal = choose_repeated(kept, int(everything * 0.35))
    limit = int(everything * share)
    order, total = spared(graph, kept, frugal, limit)
    assert total <= limit and kept.cost(order) < kept.cost(frugal)
    assert (kept.cost(order) == 0) == (share > 1)
    again = graph.clone()
    reorder(again, order)
    verify(again)
    assert arena_nbytes(again) == total
    for a, b in zip(run_graph(graph, x), run_graph(again, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_random_masks_are_kept() -> None:
    graph = parse_graph("""graph @g(%x: f32[64,128], %p: i64[2]) {
        %shape = const i64[2] [64, 128]\n%ratio = const f32[] 0.5\n%seed = const i64[] 3\n%zero = const f32[] 0.0
        %1 = Softmax(%x)\n %m = parax::RandomMask(%shape, %ratio, %seed, %p)\n %2 = Where(%m, %1, %zero)
        %3 = Softmax(%2)\n %4 = Softmax(%3)\n %5 = ReduceMax(%4) {keepdims=0}
        %6 = Mul(%4, %2)\n %7 = Mul(%6, %1)\n %8 = Where(%m, %7, %zero)\n %9 = ReduceMax(%8) {keepdims=0}
        return %5, %9\n}""")
    x = {"x": np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32), "p": np.array([5, 7], np.int64)}
    expected = run_graph(graph.clone(), x)
    assert Rematerialise(arena_nbytes(graph) - 1).run(graph, Rewriter(graph))
    names = [n.op.name for n in graph]
    assert names.count("RandomMask") == 1 and names.count("Where") == 3
    for a, b in zip(expected, run_graph(graph, x), strict=True):
        np.testing.assert_array_equal(a, b)
