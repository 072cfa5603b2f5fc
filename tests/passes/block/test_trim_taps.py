"""Taps that meet padding alone: which go, which stay, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.block.trim_taps import TrimTaps
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass


def conv(x: str, w: str, attributes: str, group: int = 1) -> str:
    return f"""graph @g(%x: f32[{x}]) {{
        %w = const f32[{w}] "w"\n %y = Conv(%x, %w) {{{attributes}, group={group}}}\n return %y\n}}"""


def cut(x: str, w: str, attributes: str, group: int = 1) -> str:
    return conv(x, w, attributes, group).replace('"w"', '"part of w"')


def test_a_dilation_of_the_images_size_leaves_the_middle() -> None:
    check_pass(TrimTaps(), conv("N,3,4,4", "5,3,3,3", "dilations=[6,4], pads=[6,4,6,4]"),
               cut("N,3,4,4", "5,3,1,1", "kernel_shape=[1,1], pads=[0,0,0,0]"))


def test_an_image_of_one_pixel_meets_the_middle_of_each_channels_filter() -> None:
    check_pass(TrimTaps(), conv("N,6,1,1", "6,1,3,3", "auto_pad=\"SAME_UPPER\"", 6),
               cut("N,6,1,1", "6,1,1,1", "kernel_shape=[1,1], pads=[0,0,0,0]", 6))


def test_each_axis_and_each_side_is_its_own() -> None:
    check_pass(TrimTaps(), conv("N,3,1,9", "5,3,4,3", "dilations=[2,1], pads=[2,1,4,1], strides=[1,2]"),
               cut("N,3,1,9", "5,3,1,3",
                   "kernel_shape=[1,3], pads=[0,1,0,1], strides=[1,2]"))  # fmt: skip
    check_pass(TrimTaps(), conv("N,2,3", "4,2,7", "pads=[4,1]"),
               cut("N,2,3", "4,2,4", "kernel_shape=[4], pads=[1,1]"))


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_weights_of_other_types_keep_theirs(dtype: str) -> None:  # ONNX Runtime has no Conv of f64
    before, after = conv("N,3,2,2", "5,3,3,3", "dilations=[2,2], pads=[2,2,2,2]"), cut(
        "N,3,2,2", "5,3,1,1", "kernel_shape=[1,1], pads=[0,0,0,0]")  # fmt: skip
    check_pass(TrimTaps(), before.replace("f32", dtype), after.replace("f32", dtype), evaluate=dtype != "f64")


@pytest.mark.parametrize(("text", "reason"), [
    (conv("N,3,4,4", "5,3,3,3", "pads=[1,1,1,1]"), "every tap meets"),
    (conv("N,3,H,H", "5,3,3,3", "dilations=[6,6], pads=[6,6,6,6]"), "a size is open"),
    ("graph @g(%x: f32[N,3,1,1], %w: f32[5,3,3,3]) {\n %y = Conv(%x, %w) {pads=[1,1,1,1]}\n return %y\n}",
     "no constant"),
    (conv("N,3,1,H", "5,3,3,3", "auto_pad=\"SAME_UPPER\", strides=[1,2]"), "padding is that of an open size"),
    (conv("N,3,1", "5,3,1", "pads=[1,0], strides=[2]"), "every tap meets"),  # of an image that no window reads
])  # fmt: skip
def test_kernels_that_stay(text: str, reason: str) -> None:
    check_pass(TrimTaps(), text, None, refuses=reason, symbols={"N": 2, "H": 9})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_is_left_computes_the_same(data: st.DataObject) -> None:
    """Against every window by its definition, also where only some of the taps can go."""
    size, kernel = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 5))
    stride, dilation = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    begin, end = data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13))
    if size + begin + end < (kernel - 1) * dilation + 1:
        return
    attributes = f"pads=[{begin},{end}], strides=[{stride}], dilations=[{dilation}]"
    graph = parse_graph(conv(f"2,3,{size}", f"4,3,{kernel}", attributes))
    x = np.random.default_rng(0).standard_normal((2, 3, size)).astype(np.float32)
    w = next(v.data for v in graph.values() if v.name == "w")
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (begin, end)))
    outputs = (padded.shape[2] - (kernel - 1) * dilation - 1) // stride + 1
    expected = np.zeros((2, 4, outputs))
    for tap in range(kernel):
        expected += np.einsum("nci,mc->nmi", padded[:, :, tap * dilation :][:, :, : outputs * stride : stride],
                              np.asarray(w)[:, :, tap])  # fmt: skip
    if TrimTaps().run(graph, Rewriter(graph)):
        assert not TrimTaps().run(graph, Rewriter(graph))
    (found,) = oracle(to_onnx(graph), best_kind())({"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
