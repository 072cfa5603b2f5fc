"""Grouped 1×1 convolutions in quads of channels against NumPy, and which layers they are chosen for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_graph
from backend.kernels.naive import normal
from backend.kernels.test_conv import run_conv
from backend.kernels.test_conv_narrow import choice, layer
from backend.kernels.test_fused_tails import fused
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.kernels.conv import quads
from parax.compiler.backend.kernels.conv.weights import ConvShape
from parax.compiler.backend.lowering import KernelCall, LowerContext
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import F16, F32, DType, TensorType
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

WIDE = [t for t in TARGETS.values() if t.f32_lanes >= 8]


@thorough(60)
@given(
    n=st.integers(1, 3),
    group=st.integers(2, 5),
    cin=st.integers(2, 21),
    cout=st.integers(1, 20),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    bias=st.booleans(),
    symbols=st.sampled_from([{}, {"N": 0}]),
    target=st.sampled_from(host_targets()),
)
def test_any_groups(
    n: int,
    group: int,
    cin: int,
    cout: int,
    size: tuple[int, int],
    bias: bool,
    symbols: dict[str, int],
    target: Target,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quads.QuadsAlgorithm, "cost", lambda *_: 0.0)  # whatever the other kernels would take
        served = patched(patch)
        shapes = (n, group * cin, *size), (group * cout, cin, 1, 1)
        run_conv(*shapes, bias=bias, symbols=symbols, target=target, group=group)
        assert len(served) == (target.f32_lanes >= 8)


def patched(patch: pytest.MonkeyPatch) -> list[quads.Quads]:
    """A list that is filled with the tiles of the layers that are served."""
    served: list[quads.Quads] = []

    def lower(ctx: LowerContext, fusion: Fusion, s: ConvShape, q: quads.Quads) -> KernelCall:
        served.append(q)
        return usual(ctx, fusion, s, q)

    usual = quads.lower_quads
    patch.setattr(quads, "lower_quads", lower)
    return served


def with_tail(dtype: DType) -> Graph:
    """A number for each channel and an addend for each element of the result, rounded to `dtype`."""
    graph, y = layer(op("Conv", group=4), (2, 84, 7, 5), (44, 21, 1, 1))
    g = GraphBuilder(graph)
    each = graph.add_input("each", TensorType(F32, (44, 1, 1)))
    other = graph.add_input("other", y.tensor)
    graph.set_outputs([g.Cast(g.Relu(g.Add(g.Mul(y, each), other)), to=dtype)])
    return graph


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_the_tail_sees_each_element(target: Target, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    served = patched(monkeypatch)
    feeds = {"x": normal(2, 84, 7, 5), "each": normal(44, 1, 1, seed=3), "other": normal(2, 44, 7, 5, seed=4)}
    (separate,) = run_graph(with_tail(dtype), feeds, target=target)
    (together,) = run_graph(fused(with_tail(dtype)), feeds, target=target)
    assert len(served) == 2 * (target.f32_lanes >= 8)
    np.testing.assert_allclose(together, separate, rtol=1e-3 if dtype == F16 else 1e-6, atol=1e-6)


@pytest.mark.parametrize("target", WIDE, ids=lambda t: t.name)
@pytest.mark.parametrize("channels, group, expected", [
    ((240, 60), 3, "quads"),
    ((272, 68), 4, "quads"),
    ((384, 96), 8, "quads"),
    ((64, 48), 4, "quads"),
    ((256, 128), 4, "direct"),
], ids=str)  # fmt: skip
def test_groups_that_fill_no_register_are_in_quads(
    target: Target, channels: tuple[int, int], group: int, expected: str
) -> None:
    cin, cout = channels
    assert choice(op("Conv", group=group), (1, cin, 28, 28), (cout, cin // group, 1, 1), target) == expected


def test_other_kernels_take_what_has_no_groups_or_windows() -> None:
    target = WIDE[-1]
    assert choice(op("Conv"), (1, 240, 28, 28), (20, 240, 1, 1), target) != "quads"
    assert choice(op("Conv", group=3, pads=[1, 1, 1, 1]), (1, 240, 28, 28), (60, 80, 3, 3), target) != "quads"
