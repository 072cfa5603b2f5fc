"""Winograd convolutions against NumPy's direct ones: odd maps, pads, symbolic batch, fused tails, targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, op, run_node
from backend.kernels import naive
from backend.kernels.naive import normal
from backend.ways import EVERY
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.kernels.conv.conv import lower_conv
from parax.compiler.backend.kernels.conv.layer import ConvLayer
from parax.compiler.backend.kernels.conv.weights import ConvShape
from parax.compiler.backend.kernels.conv.winograd import lower as winograd
from parax.compiler.backend.kernels.conv.winograd.axes import axis_algorithm
from parax.compiler.backend.kernels.conv.winograd.plan import Plan
from parax.compiler.backend.kernels.conv.winograd.weights import transform_weights
from parax.compiler.backend.lowering import LowerContext, WeightStore
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops.contraction import Conv
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import sampled, thorough

LAST = (0, 2, 3, 1)


def force(monkeypatch: pytest.MonkeyPatch, outputs: tuple[int, int] | None = None) -> None:
    """The choice is the cost rule's; here a kernel itself is tested, on any size: tiles of `outputs`, or the first."""

    def variants(_: object, ctx: LowerContext, layer: ConvLayer) -> list[winograd.WinogradTiles]:
        offered = winograd.algorithms(layer.shape)
        axes = [a for a in offered if outputs in (None, (a[0].outputs, a[1].outputs))]
        return [winograd.WinogradTiles("forced", axes[0], share=0)]

    monkeypatch.setattr(winograd.WinogradAlgorithm, "variants", variants)


@pytest.fixture(autouse=True)
def always_winograd(monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)


def run(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, target: Target | None = None, computed: bool = False,
    **attributes: object,
) -> np.ndarray:  # fmt: skip
    operands = [x, w] if b is None else [x, w, b]
    constants = () if computed else range(1, len(operands))
    (y,) = run_node(op("Conv", **attributes), operands, constants=constants, layouts=[LAST], out_layouts=[LAST],
                    symbols={"N": 0}, target=target)
    return y


def assert_close(found: np.ndarray, expected: np.ndarray, bound: float = winograd.TILE_ERROR) -> None:
    """The documented bound, a share of the largest output."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()


ALGORITHMS = [((3, 3), 1, (4, 4)), ((3, 3), 1, (2, 2)), ((3, 3), 1, (3, 2)), ((3, 3), 2, (4, 4)), ((3, 3), 2, (2, 3)),
              ((1, 7), 1, (1, 3)), ((7, 1), 1, (2, 1)), ((5, 5), 1, (4, 4)), ((5, 5), 2, (2, 2)), ((3, 1), 1, (4, 1)),
              ((7, 7), 1, (2, 2)), ((6, 6), 1, (3, 3))]


@pytest.mark.parametrize("kernel, stride, outputs", sampled(ALGORITHMS, 3))
@thorough(8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_agrees_with_the_direct_sum(
    monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int], stride: int, outputs: tuple[int, int], data: st.DataObject
) -> None:
    n, cin, cout = (data.draw(st.sampled_from(sizes)) for sizes in ([1, 2, 3], [16, 32, 48], [16, 64, 80]))
    pads = data.draw(st.tuples(*(st.integers(0, size // 2 + 1) for size in (*kernel, *kernel))))
    h, w = (data.draw(st.integers(max(1, size - a - b), 13)) for size, a, b in zip(kernel, pads[:2], pads[2:]))
    bias = normal(cout, seed=2) if data.draw(st.booleans()) else None
    x, k = normal(n, cin, h, w), normal(cout, cin, *kernel, seed=1)
    strides = [stride, stride]
    force(monkeypatch, outputs)
    computed = data.draw(st.booleans())
    expected = naive.conv(x, k, bias, strides=strides, pads=list(pads), dilations=[1, 1], group=1)
    assert_close(run(x, k, bias, computed=computed, strides=strides, pads=list(pads)), expected)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("computed", [False, True], ids=["constant", "computed"])
def test_every_target(target: Target, stride: int, computed: bool) -> None:
    x, k = normal(2, 64, 9, 11), normal(80, 64, 3, 3, seed=1)
    expected = naive.conv(x, k, None, strides=[stride] * 2, pads=[1] * 4, dilations=[1, 1], group=1)
    assert_close(run(x, k, None, target, computed, strides=[stride] * 2, pads=[1] * 4), expected)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("images", [1, 3, 12])  # 9 tiles each: of one block, panels are transformed alone
def test_computed_weights_however_cores_share_the_items(target: Target, images: int) -> None:
    text = """graph @g(%x: f32[3,32,9,11]{0,2,3,1}, %w: f32[48,32,3,3], %b: f32[48]) {
  %y = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[3,48,9,11]{0,2,3,1}
  return %y
}"""
    graph = parse_graph(text.replace("f32[3,", f"f32[{images},"))
    assert isinstance(graph, Graph)
    x, w, b = normal(images, 32, 9, 11), normal(48, 32, 3, 3, seed=1), normal(48, seed=2)
    ((y,),) = Program(graph, target).run_all([({"x": x, "w": w, "b": b}, {})], EVERY)
    assert_close(y, naive.conv(x, w, b, strides=[1, 1], pads=[1] * 4, dilations=[1, 1], group=1))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kernel, stride, outputs", ALGORITHMS)
def test_many_channels_stay_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int], stride: int, outputs: tuple[int, int]
) -> None:
    x, k = normal(1, 512, 12, 12), normal(64, 512, *kernel, seed=1)
    pads = [size // 2 for size in (*kernel, *kernel)]
    strides = [stride, stride]
    force(monkeypatch, outputs)
    expected = naive.conv(x, k, None, strides=strides, pads=pads, dilations=[1, 1], group=1)
    small = max(outputs) == 2 and min(kernel) <= 5
    for computed in (False, True):
        found = run(x, k, None, computed=computed, strides=strides, pads=pads)
        assert_close(found, expected, winograd.SMALL_TILE_ERROR if small else winograd.TILE_ERROR)


@pytest.mark.parametrize("kernel", [(7, 7), (6, 6), (7, 3), (5, 6), (8, 8), (1, 7)])
def test_whatever_is_offered_keeps_the_bound(monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int]) -> None:
    x, k, pads = normal(1, 128, 12, 12), normal(32, 128, *kernel, seed=1), [size // 2 for size in (*kernel, *kernel)]
    expected = naive.conv(x, k, None, strides=[1, 1], pads=pads, dilations=[1, 1], group=1)
    offered = winograd.algorithms(shape_of(x.shape, k.shape, strides=[1, 1], pads=pads))
    assert offered or kernel == (8, 8)
    for axes in sorted(offered, key=lambda pair: -pair[0].points * pair[1].points)[:2]:
        force(monkeypatch, (axes[0].outputs, axes[1].outputs))
        assert_close(run(x, k, None, strides=[1, 1], pads=pads), expected)


def test_tail_reads_residual_and_per_channel_operands() -> None:
    graph = parse_graph("""
graph @g(%x: f32[N,16,6,7]{0,2,3,1}, %r: f32[N,16,6,7]{0,2,3,1}, %s: f32[16,1,1]) {
  %w = const f32[16,16,3,3] "w"
  %y = fused<Conv>(%x, %w, %r, %s) : f32[N,16,6,7]{0,2,3,1}
    body(%x: f32[N,16,6,7]{0,2,3,1}, %w: f32[16,16,3,3], %r: f32[N,16,6,7]{0,2,3,1}, %s: f32[16,1,1]) {
      %1 = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,16,6,7]{0,2,3,1}
      %2 = Mul(%1, %s) : f32[N,16,6,7]{0,2,3,1}
      %3 = Add(%2, %r) : f32[N,16,6,7]{0,2,3,1}
      %y = Relu(%3) : f32[N,16,6,7]{0,2,3,1}
      return %y
    }
  return %y
}
""", {"w": normal(16, 16, 3, 3, seed=3)})
    assert isinstance(graph, Graph)
    x, r, s = normal(3, 16, 6, 7), normal(3, 16, 6, 7, seed=1), normal(16, 1, 1, seed=2)
    (y,) = Program(graph, None, ("N",)).run({"x": x, "r": r, "s": s}, {"N": 3}, 3)
    conv = naive.conv(x, normal(16, 16, 3, 3, seed=3), None, strides=[1, 1], pads=[1] * 4, dilations=[1, 1], group=1)
    assert_close(y, np.maximum(conv * s + r, 0))


def shape_of(x: tuple[int, ...], w: tuple[int, ...], **attributes: object) -> ConvShape:
    x_dims, w_dims = (",".join(map(str, dims)) for dims in (x, w))
    graph = parse_graph(f'graph @g(%x: f32[{x_dims}]) {{\n  %w = const f32[{w_dims}] "w"\n  return %x\n}}')
    value = graph.inputs[0]
    value.type = value.tensor.with_layout(LAST)
    node = graph.add_node(Conv(**attributes), [value, graph.value("w")])
    return ConvShape.of(Fusion.of(node))


@pytest.mark.parametrize("attributes", [{"strides": [3, 3]}, {"dilations": [2, 2]}, {"group": 2}])
def test_does_not_apply(attributes: dict[str, object]) -> None:
    w = (32, 32 // int(attributes.get("group", 1)), 3, 3)  # type: ignore[call-overload]
    assert not winograd.applies(shape_of((1, 32, 14, 14), w, pads=[1] * 4, **attributes), host_targets()[0])


@pytest.mark.parametrize(("size", "serves"), [(1e37, True), (3.3e38, False), (np.inf, False), (np.nan, False)])
def test_applies_to_weights_whose_transforms_are_finite(size: float, serves: bool) -> None:
    s = shape_of((1, 32, 14, 14), (32, 32, 5, 5), pads=[2] * 4)
    s.w.data = np.full((32, 32, 5, 5), size, np.float32)
    assert winograd.applies(s, host_targets()[0]) == serves


def test_weight_transform_is_exact_on_a_delta() -> None:
    w = np.zeros((1, 1, 3, 3), np.float32)
    w[0, 0, 2, 2] = 1  # the corner of G g Gᵀ picks the last column of G
    f43 = axis_algorithm(4, 3)
    plan = Plan((f43, f43), (1, 1), 1, 1, 16, 1, 1)
    result = np.zeros((1, 36, 1, 16), np.float32)
    transform_weights(w, plan, result)
    u = result[0, :, 0, 0].reshape(6, 6)
    column = np.array([0, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1])
    np.testing.assert_allclose(u, np.outer(column, column), rtol=1e-6)




def test_strict_floating_point_forbids_it() -> None:
    graph = parse_graph('graph @g(%x: f32[1,64,14,14]{0,2,3,1}) {\n  %w = const f32[64,64,3,3] "w"\n'
                        "  %y = Conv(%x, %w) {pads=[1,1,1,1]} : f32[1,64,14,14]{0,2,3,1}\n  return %y\n}")
    names = []
    for fp in (Fp.DEFAULT, Fp.STRICT):
        context = LowerContext(host_targets()[0], (), WeightStore(), fp=fp)
        call = lower_conv(context, next(iter(graph)))
        names.append(call.func.name.partition("_")[0])
    assert names == ["winograd", "conv"]
