"""Depthwise and pointwise convolutions in one kernel against the two apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, default_target, host_targets, run_graph
from backend.kernels.naive import check, conv, normal
from parax.compiler.backend.kernels.conv.separable import MOST_PIXELS, band_rows
from parax.compiler.backend.kernels.conv.spatial import SpatialAxis
from parax.compiler.backend.kernels.matmul.blocking import plan_product
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.types import F32, Dim, TensorType, symbol
from parax.compiler.passes.block.fuse_depthwise import FuseDepthwise
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.rewrite import Rewriter
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

LAST = (0, 2, 3, 1)


def last(v: Value) -> Value:
    """The value, channels-last."""
    v.type = v.tensor.with_layout(LAST)
    return v


def block(
    n: Dim, channels: int, size: tuple[Dim, Dim], outputs: int, kernel: tuple[int, int], *, biased: bool = True,
    relu: bool = True, residual: bool = False, **attributes: Any,
) -> tuple[Graph, dict[str, np.ndarray]]:  # fmt: skip
    """The fused graph and its weights."""
    graph = Graph("separable")
    x = graph.add_input("x", TensorType(F32, (n, channels, *size), LAST))
    weights = {"w": normal(channels, 1, *kernel, seed=1), "v": normal(outputs, channels, 1, 1, seed=2)}
    if biased:
        weights |= {"b": normal(channels, seed=3), "c": normal(outputs, seed=4)}
    g, consts = GraphBuilder(graph), {name: graph.add_constant(a, name) for name, a in weights.items()}
    d = last(g.Conv(x, consts["w"], consts.get("b"), group=channels, **attributes))
    d = last(g.Relu(d)) if relu else d
    y = last(g.Conv(d, consts["v"], consts.get("c")))
    if residual:
        y = last(g.Add(y, graph.add_input("r", y.tensor)))
    graph.set_outputs([last(g.Relu(y)) if relu else y])
    rw = Rewriter(graph)
    FuseElementwise().run(graph, rw)
    assert FuseDepthwise(least_pixels=1, cache_nbytes=math.inf).run(graph, rw), rw.misses
    assert len(graph) == 1
    return graph, weights


def run_block(
    n: int, channels: int, size: tuple[int, int], outputs: int, kernel: tuple[int, int], *, static: bool = False,
    target: Target | None = None, biased: bool = True, relu: bool = True, residual: bool = False, fp: Fp = Fp.DEFAULT,
    open_sizes: str = "", **attributes: Any,
) -> None:  # fmt: skip
    """`static`: all sizes are known; `open_sizes`: those of an image that are not known either, of H and W."""
    own = dict(zip("HW", size))
    height, width = (symbol(name) if name in open_sizes else own[name] for name in "HW")
    graph, w = block(n if static else symbol("N"), channels, (height, width), outputs, kernel, biased=biased, relu=relu,
                     residual=residual, **attributes)  # fmt: skip
    feeds = {"x": normal(n, channels, *size)}
    full = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], **attributes}
    d = conv(feeds["x"], w["w"], w.get("b"), group=channels, **full)
    d = np.maximum(d, 0) if relu else d
    y = conv(d, w["v"], w.get("c"), [1, 1], [0] * 4, [1, 1], 1)
    if residual:
        feeds["r"] = normal(*y.shape, seed=5)
        y = y + feeds["r"]
    symbols = {"N": n, **{name: own[name] for name in open_sizes}}
    (found,) = run_graph(graph, feeds, {} if static else symbols, target, fp=fp)
    check(found, np.maximum(y, 0) if relu else y, channels * kernel[0] * kernel[1])
    if open_sizes:
        known, _ = block(n, channels, size, outputs, kernel, biased=biased, relu=relu, residual=residual, **attributes)
        np.testing.assert_array_equal(found, run_graph(known, feeds, {}, target, fp=fp)[0])


@thorough(40)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    channels=st.sampled_from([3, 8, 16, 19, 40]),
    outputs=st.sampled_from([1, 5, 16, 70]),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    biased=st.booleans(),
    relu=st.booleans(),
    residual=st.booleans(),
    static=st.booleans(),
)
def test_any_block(
    data: st.DataObject, n: int, channels: int, outputs: int, kernel: tuple[int, int], biased: bool, relu: bool,
    residual: bool, static: bool,
) -> None:  # fmt: skip
    strides, dilations = (data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    size = data.draw(st.integers(9, 14)), data.draw(st.integers(9, 17))
    run_block(n, channels, size, outputs, kernel, static=static, biased=biased, relu=relu, residual=residual,
              strides=strides, dilations=dilations, pads=pads)  # fmt: skip


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("stride", [1, 2])
def test_targets(target: Target, stride: int) -> None:
    run_block(2, 40, (14, 14), 72, (3, 3), target=target, residual=True, strides=[stride] * 2, pads=[1] * 4)


@thorough(25)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    channels=st.sampled_from([8, 19, 40]),
    outputs=st.sampled_from([5, 70]),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    residual=st.booleans(),
    target=st.sampled_from(host_targets()),
    open_sizes=st.sampled_from(["HW", "HW", "H", "W"]),
)
def test_images_of_a_size_that_only_a_run_knows(
    data: st.DataObject, n: int, channels: int, outputs: int, kernel: tuple[int, int], residual: bool, target: Target,
    open_sizes: str,
) -> None:
    strides, dilations = (data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    least = [(kernel[i] - 1) * dilations[i] + 1 for i in range(2)]
    size = data.draw(st.integers(least[0], least[0] + 30)), data.draw(st.integers(least[1], least[1] + 40))
    run_block(n, channels, size, outputs, kernel, residual=residual, target=target, open_sizes=open_sizes,
              strides=strides, dilations=dilations, pads=pads)  # fmt: skip


@pytest.mark.parametrize("size", [(3, 1100), (700, 3), (61, 90)])
def test_large_images_of_a_size_that_only_a_run_knows(size: tuple[int, int]) -> None:
    """A row may be longer than a band; bands of several rows leave a rest."""
    run_block(1, 24, size, 8, (3, 3), open_sizes="HW", pads=[1] * 4)


def test_one_call_does_both() -> None:
    graph, _ = block(symbol("N"), 16, (14, 14), 24, (3, 3), pads=[1] * 4)
    ((_, call),) = Program(graph, default_target(), ("N",)).calls
    assert call.func.name.startswith("separable")


@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.parametrize(("size", "stride", "channels", "outputs"),
                         [(112, 1, 32, 64), (112, 2, 96, 24), (56, 1, 128, 128), (28, 2, 256, 512), (14, 1, 512, 512)])
def test_bands_fit_the_cache_and_feed_two_cores(
    name: str, size: int, stride: int, channels: int, outputs: int
) -> None:  # fmt: skip
    ctx = LowerContext(TARGETS[name], ("N",), WeightStore(), cores=(1, 2))
    line = SpatialAxis(3, stride, 1, 1, size, size // stride)
    pixels = line.output * line.output
    p = plan_product(ctx, 1, symbol("N") * pixels, outputs, 1, channels, segment=pixels)
    n = band_rows(ctx, p, line, line, channels)
    assert n * line.output <= MOST_PIXELS and n * line.output * channels * 4 <= ctx.target.l2_nbytes // 4
    assert isinstance(line.output, int) and -(-line.output // n) >= 2


def test_more_cores_get_more_bands() -> None:
    line = SpatialAxis(3, 1, 1, 1, 14, 14)

    def bands(cores: tuple[int, ...]) -> int:
        ctx = LowerContext(TARGETS["x86-64-v4"], ("N",), WeightStore(), cores=cores)
        p = plan_product(ctx, 1, symbol("N") * 196, 512, 1, 512, segment=196)
        return -(-14 // band_rows(ctx, p, line, line, 512))

    assert bands((1, 2)) == 2 and bands((1, 2, 4, 8)) > 2
