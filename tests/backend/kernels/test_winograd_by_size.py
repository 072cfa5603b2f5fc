"""Convolutions of images whose size only a run knows: both ways, on both sides of the size that parts them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from backend.harness import Program, host_targets
from backend.kernels import naive
from backend.kernels.naive import normal
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.kernels.conv.conv import lower_conv
from parax.compiler.backend.kernels.conv.weights import ConvShape
from parax.compiler.backend.kernels.conv.winograd import by_size
from parax.compiler.backend.kernels.conv.winograd.by_size import Choice, choice_of
from parax.compiler.backend.kernels.conv.winograd.lower import TILE_ERROR
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.call_rows import CallRows
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target

ODD = 7
ANY_SIDE = CallRows((("H", 2, 64), ("W", 2, 64)))


def convolution(channels: int, h: str = "H", w: str = "W") -> tuple[Graph, np.ndarray]:
    """A layer of channels last with a Relu behind it, and its weights."""
    weights = normal(channels, channels, 3, 3) / 8
    shape = f"f32[N,{channels},{h},{w}]{{0,2,3,1}}"
    graph = parse_graph(f"""graph @g(%x: {shape}) {{
        %w = const f32[{channels},{channels},3,3] "w"
        %y = Conv(%x, %w) {{kernel_shape=[3,3], pads=[1,1,1,1]}} : {shape}
        %r = Relu(%y) : {shape}
        return %r
        }}""", {"w": weights})
    return graph, weights


def chosen(channels: int, target: Target, calls: CallRows | None = None, w: str = "W") -> Choice:
    """The two ways of a layer."""
    graph, _ = convolution(channels, w=w)
    context = LowerContext(target, ("N", "H", "W"), WeightStore(), **({} if calls is None else {"calls": calls}))
    return choice_of(context, ConvShape.of(Fusion.of(next(n for n in graph if n.op.name == "Conv"))))


def test_wide_layers_of_small_images_are_computed_directly() -> None:
    choice = chosen(512, host_targets()[0], ANY_SIDE)
    assert choice.large is not None
    assert choice.large != choice.small
    assert choice.threshold > 1


def test_bounds_of_a_size_count() -> None:
    large = chosen(128, host_targets()[0], CallRows((("H", 400, 900), ("W", 400, 900))))
    small = chosen(512, host_targets()[0], CallRows((("H", 1, 2), ("W", 1, 2))))
    assert large.large == large.small != small.small
    assert small.small == small.large


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("channels", [128, 192])
def test_both_ways_give_the_sum(target: Target, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces and orders in which cores may share the work are tried by the harness."""
    graph, weights = convolution(channels)
    monkeypatch.setattr(by_size, "SIDES", (4, 8, 32))
    choice = chosen(channels, target)
    edge = -(-choice.threshold // ODD)
    sides = {1, 2, edge - 1, edge, edge + 1} - {0}
    assert choice.large != choice.small
    program = Program(graph, target, ("N", "H", "W"))
    for n, (h, w) in itertools.product((1, 3), itertools.product(sorted(sides), (ODD,))):
        x = normal(n, channels, h, w)
        (found,) = program.run({"x": x}, {"N": n, "H": h, "W": w})
        expected = np.maximum(naive.conv(x, weights, None, (1, 1), (1, 1, 1, 1), (1, 1), 1), 0)
        assert np.abs(found - expected).max() <= TILE_ERROR * max(np.abs(expected).max(), 1)


def test_an_images_bits_do_not_depend_on_the_batch() -> None:
    graph, _ = convolution(128)
    program = Program(graph, None, ("N", "H", "W"))
    for side in (3, 8, 15, 40):
        x = normal(3, 128, side, side)
        (together,) = program.run({"x": x}, {"N": 3, "H": side, "W": side})
        for i in range(3):
            (alone,) = program.run({"x": x[i : i + 1]}, {"N": 1, "H": side, "W": side})
            assert alone.tobytes() == together[i : i + 1].tobytes()


def test_a_size_that_is_known_needs_one_way() -> None:
    graph, _ = convolution(128, "14", "14")
    conv = next(n for n in graph if n.op.name == "Conv")
    call = lower_conv(LowerContext(host_targets()[0], ("N",), WeightStore()), conv)
    assert "by_size" not in call.func.name
