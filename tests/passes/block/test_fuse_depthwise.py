"""Depthwise convolutions join the pointwise one behind them, and stay alone where the kernel could not help."""

from __future__ import annotations

import pytest

from parax.compiler.ir.call_rows import SEVERAL, USUAL_SIDE, CallRows
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.block.fuse_depthwise import FuseDepthwise
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass

LAST = "{0,2,3,1}"
HEAD = f"""graph @g(%x: f32[N,8,6,6]{LAST}, %r: f32[N,5,6,6]{LAST}) {{
    %w = const f32[8,1,3,3] "w"\n %b = const f32[8] "b"\n %v = const f32[5,8,1,1] "v"
    %d = Conv(%x, %w, %b) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
"""
SMALL = FuseDepthwise(least_pixels=16)


def test_a_pair_becomes_one_block() -> None:
    check_pass(SMALL, HEAD + f" %p = Conv(%d, %v) : f32[N,5,6,6]{LAST}\n return %p\n}}",
        f"""graph @g(%x: f32[N,8,6,6]{LAST}, %r: f32[N,5,6,6]{LAST}) {{
        %w = const f32[8,1,3,3] "w"\n %b = const f32[8] "b"\n %v = const f32[5,8,1,1] "v"
        %p = fused<DepthwisePointwise>(%x, %w, %b, %v) : f32[N,5,6,6]{LAST}
          body(%x: f32[N,8,6,6]{LAST}, %w: f32[8,1,3,3], %b: f32[8], %v: f32[5,8,1,1]) {{
            %d = Conv(%x, %w, %b) {{group=8,pads=[1,1,1,1]}} : f32[N,8,6,6]{LAST}
            %p = Conv(%d, %v) : f32[N,5,6,6]{LAST}
            return %p
          }}
        return %p\n}}""")  # fmt: skip


def test_tails_come_along() -> None:
    text = (
        HEAD
        + f""" %zero = const f32[] 0.0\n %six = const f32[] 6.0
        %a = Clip(%d, %zero, %six) : f32[N,8,6,6]{LAST}
        %p = Conv(%a, %v) : f32[N,5,6,6]{LAST}
        %s = Add(%p, %r) : f32[N,5,6,6]{LAST}
        %q = Clip(%s, %zero, %six) : f32[N,5,6,6]{LAST}
        return %q\n}}"""
    )
    graph = parse_graph(text)
    rw = Rewriter(graph)
    assert FuseElementwise().run(graph, rw) and SMALL.run(graph, rw)
    (node,) = graph
    assert node.body is not None
    assert [n.op.name for n in node.body] == ["Conv", "Clip", "Conv", "Add", "Clip"]
    assert_equivalent(parse_graph(text), graph, {}, -2.0, 2.0)
    assert not SMALL.run(graph, rw)


POINTWISE = f" %p = Conv(%d, %v) : f32[N,5,6,6]{LAST}\n return %p\n}}"


@pytest.mark.parametrize(("text", "reason"), [
    (HEAD + f" %p = Conv(%d, %v) : f32[N,5,6,6]{LAST}\n return %p, %d\n}}", "other readers"),
    (HEAD + f" %p = Conv(%d, %v) : f32[N,5,6,6]{LAST}\n %m = GlobalAveragePool(%d)\n return %p, %m\n}}",
     "other readers"),
    (HEAD + " %m = GlobalAveragePool(%d)\n return %m\n}", "no convolution"),
    (HEAD + f" %u = const f32[5,8,3,3] \"u\"\n %p = Conv(%d, %u) {{pads=[1,1,1,1]}} : f32[N,5,6,6]{LAST}\n"
     " return %p\n}", "not a depthwise and a pointwise"),
    (HEAD + f" %p = Conv(%d, %v) {{strides=[2,2]}} : f32[N,5,3,3]{LAST}\n return %p\n}}",
     "not a depthwise and a pointwise"),
    (HEAD.replace("f32[8,1,3,3]", "f32[8,2,3,3]").replace("group=8", "group=4") + POINTWISE,
     "not a depthwise and a pointwise"),
    (HEAD + " %p = Conv(%d, %v) : f32[N,5,6,6]\n return %p\n}", "not channels-last"),
    ((HEAD + POINTWISE).replace("pads=[1,1,1,1]", 'auto_pad="SAME_UPPER",strides=[2,2]')
     .replace("6,6]", "floor((H+1)/2),3]").replace("%x: f32[N,8,floor((H+1)/2),3]", "%x: f32[N,8,H,6]"),
     "padding of unknown size"),
])  # fmt: skip
def test_what_stays(text: str, reason: str) -> None:
    check_pass(SMALL, text, None, refuses=reason)


def test_a_small_tensor_between_larger_ones_stays() -> None:
    text = HEAD.replace("pads=[1,1,1,1]", "pads=[1,1,1,1],strides=[2,2]").replace("[N,8,6,6]", "[N,8,3,3]")
    text = text.replace("%x: f32[N,8,3,3]", "%x: f32[N,8,6,6]").replace("f32[5,8,1,1]", "f32[16,8,1,1]")
    text += f" %p = Conv(%d, %v) : f32[N,16,3,3]{LAST}\n return %p\n}}"
    nbytes = 4 * SEVERAL * (8 * 36 + 16 * 9)
    check_pass(FuseDepthwise(least_pixels=9, cache_nbytes=nbytes - 1), text, None, refuses="more memory")
    graph = parse_graph(text)
    assert FuseDepthwise(least_pixels=9, cache_nbytes=nbytes).run(graph, Rewriter(graph)), "the cache holds it"


def test_small_images_stay() -> None:
    check_pass(FuseDepthwise(), HEAD + POINTWISE, None, refuses="small images")


def test_images_of_open_sizes_are_judged_by_usual_ones() -> None:
    text = (HEAD + POINTWISE).replace("6,6]", "H,6]")
    graph, large = parse_graph(text), parse_graph(text)
    assert FuseDepthwise(least_pixels=USUAL_SIDE * 6).run(large, Rewriter(large))
    check_pass(FuseDepthwise(least_pixels=USUAL_SIDE * 6 + 1), text, None, refuses="small images")
    known = CallRows((("H", 2, 9),))
    assert FuseDepthwise(least_pixels=54, calls=known).run(graph, Rewriter(graph))
    check_pass(FuseDepthwise(least_pixels=55, calls=known), text, None, refuses="small images")


def test_weights_that_are_computed_stay() -> None:
    text = HEAD.replace("%r: f32[N,5,6,6]{0,2,3,1}", "%v: f32[5,8,1,1]").replace('%v = const f32[5,8,1,1] "v"', "")
    check_pass(SMALL, text + POINTWISE, None, refuses="constant weights")


def test_a_tail_that_reads_another_tensor_stays() -> None:
    text = (
        HEAD.replace("%r: f32[N,5,6,6]", "%r: f32[N,8,6,6]")
        + f" %a = Add(%d, %r) : f32[N,8,6,6]{LAST}\n %p = Conv(%a, %v) : f32[N,5,6,6]{LAST}\n return %p\n}}"
    )
    graph = parse_graph(text)
    rw = Rewriter(graph)
    FuseElementwise().run(graph, rw)
    assert not SMALL.run(graph, rw)
    assert any("reads other tensors" in miss for miss in rw.misses)


def test_a_pointwise_tail_that_reads_the_depthwise_result_stays() -> None:
    """Its block has one operand for both, which the kernel never stores."""
    text = (
        HEAD.replace("f32[5,8,1,1]", "f32[8,8,1,1]")
        + f""" %p = Conv(%d, %v) : f32[N,8,6,6]{LAST}
        %t = Tanh(%p) : f32[N,8,6,6]{LAST}
        %s = Add(%t, %d) : f32[N,8,6,6]{LAST}
        return %s\n}}"""
    )
    graph = parse_graph(text)
    rw = Rewriter(graph)
    assert FuseElementwise().run(graph, rw)
    assert [[n.op.name for n in node.body] for node in graph if node.body] == [["Conv", "Tanh", "Add"]]
    assert not SMALL.run(graph, rw)
    assert any("other readers" in miss for miss in rw.misses)
