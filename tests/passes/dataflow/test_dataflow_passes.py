"""Dead code, common subexpressions and the cut into steps."""

from __future__ import annotations

from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.dataflow.common_subexpressions import CommonSubexpressions
from parax.compiler.passes.dataflow.dead_code import DeadCode
from parax.compiler.passes.dataflow.split_steps import HostStep, NativeStep, split_steps
from passes.check import check_pass


def test_what_no_output_needs_goes() -> None:
    check_pass(DeadCode(), """graph @g(%x: f32[4]) {
        %c = const f32[] 1.0\n %1 = Relu(%x)\n %2 = Add(%1, %c)\n %3 = Exp(%x)\n return %3\n}""",
        "graph @g(%x: f32[4]) {\n%3 = Exp(%x)\n return %3\n}", keep_dead=True)


def test_what_an_output_needs_stays() -> None:
    check_pass(DeadCode(), "graph @g(%x: f32[4]) {\n%1 = Relu(%x)\n %2 = Exp(%1)\n return %1, %2\n}", None, keep_dead=True)


def test_equal_operators_on_equal_operands_are_one() -> None:
    check_pass(CommonSubexpressions(), """graph @g(%x: f32[4]) {
        %a = const f32[] 2.0\n %b = const f32[] 2.0\n %1 = Mul(%x, %a)\n %2 = Mul(%x, %b)\n %3 = Add(%1, %2)\n return %3\n}""",
        """graph @g(%x: f32[4]) {
        %a = const f32[] 2.0\n %1 = Mul(%x, %a)\n %3 = Add(%1, %1)\n return %3\n}""")


def test_different_operators_stay_apart() -> None:
    check_pass(CommonSubexpressions(), """graph @g(%x: f32[4]) {
        %a = const f32[] 2.0\n %b = const f64[] 2.0\n %1 = Mul(%x, %a)\n %2 = Add(%x, %a)\n %3 = LeakyRelu(%x) {alpha=0.1}
        %4 = LeakyRelu(%x) {alpha=0.2}\n %5 = Cast(%b) {to=f32}\n %6 = Sum(%1, %2, %3, %4, %5)\n return %6\n}""", None)


def test_two_outputs_of_equal_computations_share_one() -> None:
    check_pass(CommonSubexpressions(), 'graph @g(%x: f32[4]) {\n%1 = Exp(%x)\n %2 = Exp(%x)\n return %1, %2\n}',
               'graph @g(%x: f32[4]) {\n%1 = Exp(%x)\n return %1, %1 as "2"\n}')


def test_a_graph_without_host_operators_is_one_step() -> None:
    graph = parse_graph('graph @g(%x: f32[4]) {\n%1 = Exp(%x)\n %2 = Neg(%1)\n return %2 as "y"\n}')
    (step,) = split_steps(graph).steps
    assert isinstance(step, NativeStep) and step.inputs == ["x"] and step.outputs == ["y"]


def test_host_operators_cut_the_graph() -> None:
    graph = parse_graph("""graph @g(%x: f32[4]) {
        %c = const f32[] 2.0\n %1 = Mul(%x, %c)\n %2 = NonZero(%1)\n %3 = Cast(%2) {to=f32}\n %4 = Mul(%3, %c)
        %5 = Exp(%1)\n return %4, %5\n}""")
    steps = split_steps(graph).steps
    assert [type(s) for s in steps] == [NativeStep, HostStep, NativeStep]
    first, host, last = steps
    assert isinstance(first, NativeStep) and isinstance(host, HostStep) and isinstance(last, NativeStep)
    verify(first.graph)
    verify(last.graph)
    assert (first.inputs, first.outputs) == (["x"], ["1"])
    assert (host.inputs, host.outputs) == (["1"], ["2"])
    assert (last.inputs, last.outputs) == (["2", "1"], ["4", "5"])
