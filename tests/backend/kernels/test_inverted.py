"""Inverted residual blocks in one kernel against their three convolutions apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, default_target, host_targets, run_graph
from backend.kernels.naive import check, conv, normal
from backend.kernels.test_separable import LAST, last
from parax.compiler.backend.kernels.conv.inverted import band_rows, rows_under
from parax.compiler.backend.kernels.conv.spatial import SpatialAxis
from parax.compiler.backend.kernels.matmul.blocking import plan_product, static
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import F32, Dim, TensorType, symbol
from parax.compiler.passes.block.fuse_depthwise import FuseDepthwise
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.block.fuse_expansion import FuseExpansion
from parax.compiler.passes.rewrite import Rewriter
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

ONE = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}


def block(
    n: Dim, sizes: tuple[int, int, int], size: tuple[Dim, Dim], kernel: tuple[int, int], *, biased: bool = True,
    relu: bool = True, residual: bool = False, **attributes: Any,
) -> tuple[Graph, dict[str, np.ndarray]]:  # fmt: skip
    """The fused graph of a block with `sizes` channels before, between and after, and its weights."""
    inputs, between, outputs = sizes
    graph = Graph("inverted")
    x = graph.add_input("x", TensorType(F32, (n, inputs, *size), LAST))
    weights = {"u": normal(between, inputs, 1, 1, seed=1), "w": normal(between, 1, *kernel, seed=2),
               "v": normal(outputs, between, 1, 1, seed=3)}  # fmt: skip
    if biased:
        weights |= {"a": normal(between, seed=4), "b": normal(between, seed=5), "c": normal(outputs, seed=6)}
    g, consts = GraphBuilder(graph), {name: graph.add_constant(a, name) for name, a in weights.items()}
    e = last(g.Conv(x, consts["u"], consts.get("a")))
    e = last(g.Relu(e)) if relu else e
    d = last(g.Conv(e, consts["w"], consts.get("b"), group=between, **attributes))
    d = last(g.Relu(d)) if relu else d
    y = last(g.Conv(d, consts["v"], consts.get("c")))
    graph.set_outputs([last(g.Add(y, x)) if residual else y])
    rw = Rewriter(graph)
    FuseElementwise().run(graph, rw)
    assert FuseDepthwise(least_pixels=1, cache_nbytes=math.inf).run(graph, rw), rw.misses
    assert FuseExpansion(least_nbytes=1).run(graph, rw), rw.misses
    assert len(graph) == 1
    return graph, weights


def run_block(
    n: int, sizes: tuple[int, int, int], size: tuple[int, int], kernel: tuple[int, int], *, static: bool = False,
    target: Target | None = None, biased: bool = True, relu: bool = True, residual: bool = False,
    open_sizes: str = "", **attributes: Any,
) -> None:  # fmt: skip
    """`static`: all sizes are known; `open_sizes`: those of an image that are not known either, of H and W."""
    own = dict(zip("HW", size))
    height, width = (symbol(name) if name in open_sizes else own[name] for name in "HW")
    graph, w = block(n if static else symbol("N"), sizes, (height, width), kernel, biased=biased, relu=relu,
                     residual=residual, **attributes)  # fmt: skip
    x = normal(n, sizes[0], *size)

    def act(a: np.ndarray) -> np.ndarray:
        return np.maximum(a, 0) if relu else a

    e = act(conv(x, w["u"], w.get("a"), **ONE))
    d = act(conv(e, w["w"], w.get("b"), **{**ONE, **attributes, "group": sizes[1]}))
    y = conv(d, w["v"], w.get("c"), **ONE)
    symbols = {"N": n, **{name: own[name] for name in open_sizes}}
    (found,) = run_graph(graph, {"x": x}, {} if static else symbols, target)
    check(found, y + x if residual else y, sizes[0] * sizes[1] * kernel[0] * kernel[1])
    if open_sizes:
        known, _ = block(n, sizes, size, kernel, biased=biased, relu=relu, residual=residual, **attributes)
        np.testing.assert_array_equal(found, run_graph(known, {"x": x}, {}, target)[0])


@pytest.mark.slow
@thorough(40)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    inputs=st.sampled_from([1, 3, 8, 19]),
    between=st.sampled_from([20, 32, 83]),
    outputs=st.sampled_from([1, 5, 13]),  # padding may make the result half as large again as the tensor between
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    biased=st.booleans(),
    relu=st.booleans(),
    static=st.booleans(),
)
def test_any_block(
    data: st.DataObject, n: int, inputs: int, between: int, outputs: int, kernel: tuple[int, int], biased: bool,
    relu: bool, static: bool,
) -> None:  # fmt: skip
    strides, dilations = (data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))
    size = data.draw(st.integers(9, 23)), data.draw(st.integers(9, 17))
    run_block(n, (inputs, between, outputs), size, kernel, static=static, biased=biased, relu=relu,
              strides=strides, dilations=dilations, pads=pads)  # fmt: skip


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("stride", [1, 2])
def test_targets(target: Target, stride: int) -> None:
    run_block(2, (16, 72, 16), (28, 28), (3, 3), target=target, residual=stride == 1,
              strides=[stride] * 2, pads=[1] * 4)  # fmt: skip


@thorough(20)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    inputs=st.sampled_from([3, 8, 19]),
    between=st.sampled_from([32, 83]),
    outputs=st.sampled_from([1, 5, 13]),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    target=st.sampled_from(host_targets()),
    open_sizes=st.sampled_from(["HW", "HW", "H", "W"]),
)
def test_images_of_a_size_that_only_a_run_knows(
    data: st.DataObject, n: int, inputs: int, between: int, outputs: int, kernel: tuple[int, int], target: Target,
    open_sizes: str,
) -> None:
    strides, dilations = (data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    least = [(kernel[i] - 1) * dilations[i] + 1 for i in range(2)]
    size = data.draw(st.integers(least[0], least[0] + 30)), data.draw(st.integers(least[1], least[1] + 40))
    run_block(n, (inputs, between, outputs), size, kernel, target=target, open_sizes=open_sizes,
              strides=strides, dilations=dilations, pads=pads)  # fmt: skip


@pytest.mark.parametrize("size", [(4, 1100), (700, 3), (61, 90)])
def test_large_images_of_a_size_that_only_a_run_knows(size: tuple[int, int]) -> None:
    """The rows under a band of one may be more than there is room for."""
    run_block(1, (8, 48, 8), size, (3, 3), residual=True, open_sizes="HW", pads=[1] * 4)


@pytest.mark.parametrize("pads", [[3, 1, 0, 1], [0, 0, 4, 0]])
def test_rows_that_meet_nothing_but_padding(pads: list[int]) -> None:
    run_block(2, (4, 20, 8), (9, 12), (2, 3), pads=pads)


def test_one_call_does_all_three() -> None:
    graph, _ = block(symbol("N"), (8, 48, 12), (14, 14), (3, 3), pads=[1] * 4)
    ((_, call),) = Program(graph, default_target(), ("N",)).calls
    assert call.func.name.startswith("inverted")


@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.parametrize(("size", "stride", "channels"),
                         [(112, 2, (16, 96, 24)), (56, 1, (24, 144, 24)), (56, 2, (24, 144, 32))])  # fmt: skip
def test_rings_fit_the_cache_and_bands_feed_four_cores(
    name: str, size: int, stride: int, channels: tuple[int, int, int]
) -> None:
    ctx = LowerContext(TARGETS[name], ("N",), WeightStore(), cores=(1, 2, 4))
    line = SpatialAxis(3, stride, 1, 1, size, size // stride)
    assert isinstance(line.output, int)
    pixels = line.output**2
    p = plan_product(ctx, 1, symbol("N") * pixels, channels[2], 1, channels[1], segment=pixels)
    n = band_rows(ctx, p, line, line, channels)
    assert static(rows_under(line, n)) * size * channels[1] * 4 <= ctx.target.l2_nbytes // 4
    assert -(-line.output // n) % 4 == 0
