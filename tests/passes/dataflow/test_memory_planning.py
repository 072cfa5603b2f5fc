"""The arena: no two live buffers overlap, sharing is tight, views and in-place results stay where they must."""

from __future__ import annotations

import time

import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import evaluate
from parax.compiler.ir.verify import verify
from parax.compiler.ir.views import Home, MemoryPlan, computes, homes
from parax.compiler.passes.dataflow.memory_planning import plan_memory
from parax.compiler.passes.dataflow.placement import EXHAUSTIVE, Span, peak, place
from parax.compiler.passes.dataflow.separate_outputs import SeparateOutputs
from parax.compiler.passes.dataflow.write_in_place import WriteInPlace
from parax.compiler.passes.rewrite import Rewriter
from sampling import thorough

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies


def check_plan(graph: Graph, plan: MemoryPlan, sizes: dict[str, int]) -> None:
    """Runs the steps on paper: a step may overwrite only what nobody reads later, except its own dying operand."""
    home_of, last = homes(graph), {}
    steps = [n for n in graph if computes(n)]
    for i, node in enumerate(steps):
        last.update((home_of.get(v, Home(v)).value, i) for v in node.operands)
    born = {}
    for i, node in enumerate(steps):
        for v in node.outputs:
            born.setdefault(home_of[v].value, i)
            last[home_of[v].value] = max(i, last.get(home_of[v].value, i))
    alive = [v for v in born if v in plan.offsets]
    outside = set(graph.inputs) | {home_of.get(v, Home(v)).value for v in graph.outputs}
    assert set(alive) == {v for v in born if v not in outside}
    total = evaluate(plan.total, sizes)
    for a in alive:
        start, nbytes = evaluate(plan.offsets[a], sizes), evaluate(a.tensor.nbytes, sizes)
        assert start % 64 == 0 and start + nbytes <= total
        for b in alive:
            if born[a] < born[b] <= last.get(a, born[a]):
                other = evaluate(plan.offsets[b], sizes)
                apart = start + nbytes <= other or other + evaluate(b.tensor.nbytes, sizes) <= start
                in_place = last[a] == born[b] and other == start
                assert apart or in_place, f"{a} and {b} overlap"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Layers that read recent tensors, as networks do: some element-wise, some not, some views, of several sizes."""
    batch = draw(st.sampled_from(["", "N,"]))
    lines = [f"graph @g(%0: f32[{batch}4,32]) {{"]
    shapes = {0: 32}
    n = draw(st.integers(2, 30))
    for i in range(1, n):
        source = draw(st.integers(max(0, i - 4), i - 1))
        width = shapes[source]
        kind = draw(st.sampled_from(["Relu", "Add", "Softmax", "MatMul", "MatMul", "Transpose", "Identity", "Concat"]))
        if kind == "MatMul":
            shapes[i] = draw(st.sampled_from([8, 16, 32, 100, 500]))
            lines.append(f'%w{i} = const f32[{width},{shapes[i]}] "w{i}"\n %{i} = MatMul(%{source}, %w{i})')
        elif kind == "Transpose":
            perm = "[0,2,1]" if batch else "[1,0]"
            lines.append(f"%t{i} = Transpose(%{source}) {{perm={perm}}}\n %{i} = Transpose(%t{i}) {{perm={perm}}}")
            shapes[i] = width
        elif kind == "Concat":
            other = draw(st.sampled_from(list(shapes)[-6:]))
            shapes[i] = width + shapes[other]
            lines.append(f"%{i} = Concat(%{source}, %{other}) {{axis=-1}}")
        else:
            others = [j for j in shapes if shapes[j] == width]
            second = f", %{draw(st.sampled_from(others))}" if kind == "Add" else ""
            lines.append(f"%{i} = {kind}(%{source}{second})")
            shapes[i] = width
    used = "".join(line.split("=", 1)[1] for line in lines[1:])
    loose = [i for i in range(1, n) if f"%{i}," not in used and f"%{i})" not in used]
    lines.append("return " + ", ".join(f"%{i}" for i in loose or [n - 1]) + "\n}")
    return parse_graph("\n".join(lines))


@thorough(150, derandomize=True)
@hypothesis.given(graphs(), st.booleans())
def test_live_buffers_never_overlap_and_the_arena_is_tight(graph: Graph, in_place: bool) -> None:
    SeparateOutputs().run(graph, Rewriter(graph))
    if in_place:
        WriteInPlace().run(graph, Rewriter(graph))
    verify(graph)
    plan = plan_memory(graph)
    sizes = {"N": 3}
    check_plan(graph, plan, sizes)
    assert evaluate(plan.total, sizes) <= 1.2 * evaluate(plan.peak, sizes)


@thorough(100, derandomize=True)
@hypothesis.given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(1, 9)), max_size=40))
def test_spans_that_live_together_lie_apart(drawn: list[tuple[int, int, int]]) -> None:
    spans = [Span(first, first + length, size, first) for first, length, size in drawn]
    offsets, extent = place(spans)
    for i, (a, x) in enumerate(zip(spans, offsets, strict=True)):
        assert 0 <= x <= extent - a.size
        for b, y in zip(spans[:i], offsets[:i], strict=True):
            assert a.last < b.first or b.last < a.first or x + a.size <= y or y + b.size <= x
    assert extent >= peak(spans)


def test_twenty_thousand_buffers_are_placed_within_seconds() -> None:
    n = 20_000
    assert n > EXHAUSTIVE
    lives = [(i, i + 1 + i % 7, 64 * (1 + i % 5)) for i in range(n)] + [(0, n, 64) for _ in range(n // 4)]
    spans = [Span(first, last, size, first) for first, last, size in lives]
    start = time.perf_counter()
    offsets, extent = place(spans)
    assert time.perf_counter() - start < 10
    assert extent <= 1.2 * peak(spans) and len(offsets) == len(spans)


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("name", ["N", None])
def test_buffers_of_whole_pages_begin_at_other_places_of_a_page(n: int, name: str | None) -> None:
    graph = parse_graph("""graph @g(%x: f32[N,32,32]) {
        %1 = Softmax(%x)\n %2 = Softmax(%1)\n %3 = Softmax(%2)\n %4 = Add(%1, %3)\n %5 = Softmax(%4)\n return %5\n}"""
                        .replace("N", name or str(n)))  # fmt: skip
    plan, sizes = plan_memory(graph), {name: n} if name else {}
    check_plan(graph, plan, sizes)
    one, two, three = (evaluate(plan.offsets[graph.value(v)], sizes) for v in "123")
    for a, b in ((one, two), (two, three), (three, one)):
        assert 256 <= (a - b) % 4096 <= 4096 - 256


@pytest.mark.parametrize("name", ["N", None])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 33, 1025])
def test_buffers_have_the_whole_of_their_last_line(n: int, name: str | None) -> None:
    graph = parse_graph("""graph @g(%x: f32[N]) {
        %1 = Softmax(%x)\n %2 = Softmax(%1)\n %3 = Softmax(%2)\n %4 = Concat(%1, %2, %3) {axis=0}\n return %4\n}"""
                        .replace("N", name or str(n)))  # fmt: skip
    check_plan(graph, plan_memory(graph), {name: n} if name else {})


def test_an_element_wise_result_takes_over_its_dying_operand() -> None:
    graph = parse_graph("""graph @g(%x: f32[64]) {
        %1 = Softmax(%x)\n %2 = Relu(%1)\n %3 = Exp(%2)\n %4 = Softmax(%3)\n return %4\n}""")
    plan = plan_memory(graph)
    assert plan.offsets[graph.value("1")] == plan.offsets[graph.value("2")] == plan.offsets[graph.value("3")]
    assert plan.total == 256


def test_windows_of_one_result_are_one_buffer_from_the_first_of_them_on() -> None:
    graph = parse_graph("""graph @g(%x: f32[4,16]) {
        %1 = Softmax(%x)\n %2 = Relu(%1) : f32[4,16|32]\n %3 = Softmax(%1)\n %4 = Exp(%3) : f32[4,16|32]
        %5 = Concat(%2, %4) {axis=1}\n %6 = Softmax(%5)\n %7 = Neg(%6)\n return %7\n}""")
    plan = plan_memory(graph)
    check_plan(graph, plan, {})
    assert {v.name for v in plan.offsets} == {"1", "3", "5", "6"}
    spans = {v.name: range(plan.offsets[v], plan.offsets[v] + v.tensor.nbytes) for v in plan.offsets}  # type: ignore[operator]
    assert not set(spans["5"]) & set(spans["3"])  # %3 dies before %5 is read, but after %2 is written into it


@pytest.mark.parametrize("text", [
    "%2 = Relu(%1)\n %3 = Add(%2, %1)\n %4 = Softmax(%3)\n return %4",  # read again later
    "%2 = Transpose(%1)\n %3 = Add(%1, %2)\n %4 = Softmax(%3)\n return %4",  # also read in another order
    "%2 = Softmax(%1)\n %4 = Softmax(%2)\n return %4",  # not element-wise
])  # fmt: skip
def test_nothing_is_overwritten_that_is_still_read(text: str) -> None:
    graph = parse_graph(f"graph @g(%x: f32[8,8]) {{\n%1 = Softmax(%x)\n{text}\n}}")
    for node in graph:  # transposes as views, as AssignLayouts leaves them
        if node.op.name == "Transpose":
            node.output.type = node.output.tensor.with_layout((1, 0))
    plan = plan_memory(graph)
    check_plan(graph, plan, {})
    if graph.has_value("3"):
        assert plan.offsets[graph.value("3")] != plan.offsets[graph.value("1")] or "Relu" in text


def test_a_view_keeps_its_source_alive() -> None:
    graph = parse_graph("""graph @g(%x: f32[8,8]) {
        %s = const i64[1] [64]\n %1 = Softmax(%x)\n %2 = Reshape(%1, %s)\n %3 = Softmax(%x)\n %4 = Softmax(%3)
        %5 = Reshape(%4, %s)\n %6 = Add(%2, %5)\n %7 = Softmax(%6)\n return %7\n}""")
    plan = plan_memory(graph)
    check_plan(graph, plan, {})
    assert graph.value("2") not in plan.offsets


def test_sizes_of_several_symbols_share_within_their_class() -> None:
    graph = parse_graph("""graph @g(%x: f32[N,S], %y: f32[8]) {
        %1 = Softmax(%x)\n %2 = Softmax(%1)\n %3 = Softmax(%2)\n %4 = Softmax(%3)
        %5 = Softmax(%y)\n %6 = Softmax(%5)\n %7 = Softmax(%6)\n return %4, %7\n}""")
    plan = plan_memory(graph)
    sizes = {"N": 5, "S": 7}
    check_plan(graph, plan, sizes)
    assert evaluate(plan.total, sizes) == 2 * 64 * 5 * 7 + 2 * 64
