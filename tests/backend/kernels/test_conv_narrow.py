"""Convolutions with pixels along the registers against NumPy, and which layers they are chosen for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_graph
from backend.kernels.naive import normal
from backend.kernels.test_conv import run_conv
from backend.kernels.test_conv_transpose import SYMBOLS, run_transposed, transposed
from backend.kernels.test_fused_tails import fused
from parax.compiler.backend.algorithm import candidates
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.kernels.conv import conv, pixel_vectorised, transpose
from parax.compiler.backend.kernels.conv.layer import ConvLayer
from parax.compiler.backend.kernels.conv.pixel_shape import Narrow, narrow_conv, transposed_phases
from parax.compiler.backend.kernels.conv.weights import ConvShape
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops.base import Operator
from parax.compiler.ir.types import F16, F32, DType, TensorType
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

LAST = (0, 2, 3, 1)


@pytest.fixture
def always() -> Iterator[list[Narrow]]:
    """Every layer that can be served is; the list is filled with those that were."""
    served: list[Narrow] = []

    def share(n: Narrow, target: Target, lanes: int, merged: int = 1) -> float:
        served.append(n)
        return 0.0

    with pytest.MonkeyPatch.context() as patch:
        whatever_it_takes(patch)
        patch.setattr(pixel_vectorised, "share", share)
        yield served


def whatever_it_takes(patch: pytest.MonkeyPatch) -> None:
    """All layers that the loops can do are done with pixels along registers."""
    patch.setattr(pixel_vectorised, "has_sizes", lambda n, target: pixel_vectorised.plan(n, target) is not None)
    patch.setattr(pixel_vectorised, "share", lambda n, target, lanes, merged=1: 0.0)


@thorough(40)
@given(
    data=st.data(),
    n=st.integers(1, 2),
    group=st.integers(1, 3),
    cin=st.sampled_from([1, 3, 8, 17, 20]),
    cout=st.sampled_from([1, 2, 3, 5, 16, 21]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    bias=st.booleans(),
    symbols=st.sampled_from([{}, {"N": 0}]),
    target=st.sampled_from(host_targets()),
)
def test_any_convolution(
    data: st.DataObject,
    n: int,
    group: int,
    cin: int,
    cout: int,
    kernel: tuple[int, int],
    bias: bool,
    symbols: dict[str, int],
    target: Target,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whatever_it_takes(patch)
        h, w = data.draw(st.integers(8, 12)), data.draw(st.integers(10, 40))
        run_conv(
            (n, group * cin, h, w),
            (group * cout, cin, *kernel),
            bias=bias,
            symbols=symbols,
            target=target,
            dilations=data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)),
            pads=data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4)),
            group=group,
        )


@thorough(40)
@given(
    case=transposed([1, 4, 17], [1, 2, 3, 13, 21], widest=20, symbols=SYMBOLS[:2]),
    target=st.sampled_from(host_targets()),
)
def test_any_transposed_convolution(case: dict[str, Any], target: Target) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whatever_it_takes(patch)
        run_transposed(**case, target=target)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_lines_that_fill_no_register(target: Target, always: list[Narrow]) -> None:
    """Signals, images flattened to long lines, more outputs than a tile holds, and filters wider than the image."""
    run_transposed((1, 5, 9), (5, 2, 3), strides=[2], target=target)
    run_conv((2, 20, 8, 12), (6, 10, 1, 1), group=2, target=target)
    run_conv((1, 12, 4, 5), (64, 12, 3, 3), pads=[1, 1, 1, 1], target=target)
    run_conv((1, 4, 3, 4), (2, 4, 5, 9), pads=[2, 4, 2, 4], target=target)
    assert len(always) == 4


def layer(operator: Operator, x: tuple[int, ...], w: tuple[int, ...]) -> tuple[Graph, Value]:
    """A channels-last convolution of constant weights, and its result."""
    graph = Graph("layer")
    value = graph.add_input("x", TensorType(F32, x, LAST))
    node = graph.add_node(operator, [value, graph.add_constant(normal(*w, seed=1))])
    node.outputs[0].type = node.output.tensor.with_layout(LAST)
    return graph, node.output


def with_tail(dtype: DType) -> Graph:
    """Three channels, each times its own number, plus one number, through an operator that is costly to copy."""
    graph, y = layer(op("Conv", pads=[1, 1, 1, 1]), (2, 8, 6, 20), (3, 8, 3, 3))
    g = GraphBuilder(graph)
    each = graph.add_input("each", TensorType(F32, (3, 1, 1)))
    one = graph.add_input("one", TensorType(F32, ()))
    graph.set_outputs([g.Cast(g.Tanh(g.Add(g.Mul(y, each), one)), to=dtype)])
    return graph


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_the_tail_sees_each_channel(target: Target, dtype: DType, always: list[Narrow]) -> None:
    feeds = {"x": normal(2, 8, 6, 20), "each": normal(3, 1, 1, seed=3), "one": np.array(0.25, np.float32)}
    (separate,) = run_graph(with_tail(dtype), feeds, target=target)
    always.clear()
    (together,) = run_graph(fused(with_tail(dtype)), feeds, target=target)
    assert len(always) == 1
    np.testing.assert_allclose(together, separate, rtol=1e-3 if dtype == F16 else 1e-6, atol=1e-6)


def choice(operator: Operator, x: tuple[int, ...], w: tuple[int, ...], target: Target) -> str:
    """The name of the algorithm that comes first."""
    _, y = layer(operator, x, w)
    fusion = Fusion.of(y.producer)
    ctx = LowerContext(target, (), WeightStore())
    if operator.name == "Conv":
        return next(iter(candidates(conv.ALGORITHMS, ctx, ConvLayer(fusion, ConvShape.of(fusion)))))
    own = transpose.TransposedLayer(fusion, transpose.Transposed.of(fusion))
    return next(iter(candidates(transpose.ALGORITHMS, ctx, own)))


SAME = {"pads": [1, 1, 1, 1]}
UP = {"strides": [2, 2], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("operator, x, w, expected", [
    (op("ConvTranspose", **UP), (1, 64, 64, 64), (64, 3, 4, 4), "narrow"),
    (op("ConvTranspose", **UP), (1, 128, 32, 32), (128, 64, 4, 4), "phases"),
    (op("Conv", pads=[4, 4, 4, 4]), (1, 32, 180, 180), (3, 32, 9, 9), "narrow"),
    (op("Conv"), (1, 256, 7, 7), (16, 256, 1, 1), "direct"),
    (op("Conv", **UP), (1, 64, 64, 64), (3, 64, 4, 4), "direct"),
    (op("Conv", group=32, **SAME), (1, 128, 56, 56), (128, 4, 3, 3), "groups"),
], ids=["image", "many channels", "image of a filter", "small map", "stride 2", "ResNeXt"])  # fmt: skip
def test_layers_with_few_outputs_are_narrow(
    target: Target, operator: Operator, x: tuple[int, ...], w: tuple[int, ...], expected: str
) -> None:
    assert choice(operator, x, w, target) == expected


def test_phases_of_a_stride_share_the_taps() -> None:
    """With stride 2 and a pad of 1, even outputs read the inputs of taps 3 and 1, odd ones those of taps 2 and 0."""
    even, odd = transposed_phases(kernel=4, stride=2, dilation=1, pad=1)
    assert (even.taps, even.shifts) == ((3, 1), (-1, 0))
    assert (odd.taps, odd.shifts) == ((2, 0), (0, 1))


def test_images_without_windows_are_cut_into_longer_lines() -> None:
    _, y = layer(op("Conv"), (1, 8, 14, 16), (2, 8, 1, 1))
    fusion = Fusion.of(y.producer)
    narrow = narrow_conv(fusion, ConvShape.of(fusion))
    assert narrow is not None and (narrow.height, narrow.width) == (1, 224)
