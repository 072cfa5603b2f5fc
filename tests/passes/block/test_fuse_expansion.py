"""Expansions join the depthwise-pointwise block behind them, and stay alone where the kernel could not help."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.block.fuse_depthwise import FuseDepthwise
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.block.fuse_expansion import FuseExpansion
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass

LAST = "{0,2,3,1}"
HEAD = f"""graph @g(%x: f32[N,4,6,6]{LAST}, %r: f32[N,8,6,6]{LAST}) {{
    %u = const f32[8,4,1,1] "u"\n %a = const f32[8] "a"\n %w = const f32[8,1,3,3] "w"\n %v = const f32[4,8,1,1] "v"
    %e = Conv(%x, %u, %a) : f32[N,8,6,6]{LAST}
"""
BODY = f"""body(%e: f32[N,8,6,6]{LAST}, %w: f32[8,1,3,3], %v: f32[4,8,1,1]) {{
        %d = Conv(%e, %w) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
        %p = Conv(%d, %v) : f32[N,4,6,6]{LAST}
        return %p
    }}"""
BLOCK = f" %p = fused<DepthwisePointwise>(%e, %w, %v) : f32[N,4,6,6]{LAST}\n {BODY}\n"
SMALL = FuseExpansion(least_nbytes=1)


def test_a_block_takes_its_expansion() -> None:
    check_pass(SMALL, f"{HEAD}{BLOCK} return %p\n}}",
        f"""graph @g(%x: f32[N,4,6,6]{LAST}, %r: f32[N,8,6,6]{LAST}) {{
        %u = const f32[8,4,1,1] "u"\n %a = const f32[8] "a"\n %w = const f32[8,1,3,3] "w"\n %v = const f32[4,8,1,1] "v"
        %p = fused<InvertedResidual>(%x, %u, %a, %w, %v) : f32[N,4,6,6]{LAST}
          body(%x: f32[N,4,6,6]{LAST}, %u: f32[8,4,1,1], %a: f32[8], %w: f32[8,1,3,3], %v: f32[4,8,1,1]) {{
            %e = Conv(%x, %u, %a) : f32[N,8,6,6]{LAST}
            %d = Conv(%e, %w) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
            %p = Conv(%d, %v) : f32[N,4,6,6]{LAST}
            return %p
          }}
        return %p\n}}""")  # fmt: skip


def test_tails_and_the_residual_come_along() -> None:
    text = (
        HEAD
        + f""" %zero = const f32[] 0.0\n %six = const f32[] 6.0
        %f = Clip(%e, %zero, %six) : f32[N,8,6,6]{LAST}
        %d = Conv(%f, %w) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
        %q = Clip(%d, %zero, %six) : f32[N,8,6,6]{LAST}
        %p = Conv(%q, %v) : f32[N,4,6,6]{LAST}
        %s = Add(%p, %x) : f32[N,4,6,6]{LAST}
        return %s\n}}"""
    )
    graph = parse_graph(text)
    rw = Rewriter(graph)
    depthwise = FuseDepthwise(least_pixels=16)
    assert FuseElementwise().run(graph, rw) and depthwise.run(graph, rw) and SMALL.run(graph, rw)
    (node,) = graph
    assert node.body is not None
    assert [n.op.name for n in node.body] == ["Conv", "Clip", "Conv", "Clip", "Conv", "Add"]
    assert_equivalent(parse_graph(text), graph, {}, -2.0, 2.0)
    assert not SMALL.run(graph, rw) and not depthwise.run(graph, rw)


def test_blocks_behind_one_another_stay_two() -> None:
    second = BLOCK.replace("%p = fused", "%t = fused").replace("(%e, %w, %v)", "(%g, %w, %v)")
    text = f"{HEAD}{BLOCK} %g = Conv(%p, %u, %a) : f32[N,8,6,6]{LAST}\n{second} return %t\n}}"
    graph = parse_graph(text)
    rw = Rewriter(graph)
    assert SMALL.run(graph, rw)
    assert [n.op.kind for n in graph] == ["InvertedResidual"] * 2  # type: ignore[attr-defined]
    assert_equivalent(parse_graph(text), graph, {}, -2.0, 2.0)
    assert not SMALL.run(graph, rw)


def test_a_block_whose_tail_reads_the_expanded_tensor_stays() -> None:
    """The block has one operand for both, which the kernel never stores."""
    text = (
        HEAD.replace("f32[4,8,1,1]", "f32[8,8,1,1]")
        + f""" %d = Conv(%e, %w) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
        %p = Conv(%d, %v) : f32[N,8,6,6]{LAST}
        %s = Add(%p, %e) : f32[N,8,6,6]{LAST}
        return %s\n}}"""
    )
    graph = parse_graph(text)
    rw = Rewriter(graph)
    assert FuseElementwise().run(graph, rw) and FuseDepthwise(least_pixels=16).run(graph, rw)
    assert [[n.op.name for n in node.body] for node in graph if node.body] == [["Conv", "Conv", "Add"]]
    assert not SMALL.run(graph, rw)
    assert any("other readers" in miss for miss in rw.misses)


@pytest.mark.parametrize(("text", "reason", "small"), [
    (f"{HEAD}{BLOCK} return %p, %e\n}}", "other readers", SMALL),
    (f"{HEAD}{BLOCK} %m = GlobalAveragePool(%e)\n return %p, %m\n}}", "other readers", SMALL),
    (f"{HEAD} %d = Conv(%e, %w) {{group=8}} : f32[N,8,4,4]{LAST}\n return %d\n}}", "no depthwise-pointwise", SMALL),
    (f"{HEAD}{BLOCK} return %p\n}}", "a small tensor", FuseExpansion()),
    (f"{HEAD}{BLOCK} return %p\n}}", "a deep product", FuseExpansion(least_nbytes=1, most_depth=3)),
    (f"{HEAD}{BLOCK} return %p\n}}".replace("%x: f32[N,4,6,6]{0,2,3,1}", "%x: f32[N,4,6,6]"), "channels-last", SMALL),
    (f"{HEAD}{BLOCK} return %p\n}}".replace("[8,4,1,1]", "[8,40,1,1]").replace("x: f32[N,4,", "x: f32[N,40,"),
     "smaller than", SMALL),
])  # fmt: skip
def test_what_stays(text: str, reason: str, small: FuseExpansion) -> None:
    check_pass(small, text, None, refuses=reason)


def test_a_tail_that_reads_another_tensor_stays() -> None:
    text = (
        HEAD
        + f""" %f = Add(%e, %r) : f32[N,8,6,6]{LAST}
        %d = Conv(%f, %w) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
        %p = Conv(%d, %v) : f32[N,4,6,6]{LAST}\n return %p\n}}"""
    )
    graph = parse_graph(text)
    rw = Rewriter(graph)
    assert FuseElementwise().run(graph, rw) and FuseDepthwise(least_pixels=16).run(graph, rw)
    assert not SMALL.run(graph, rw)
    assert any("reads other tensors" in miss for miss in rw.misses)
