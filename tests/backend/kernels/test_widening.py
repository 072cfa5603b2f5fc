"""Products and convolutions of i16 by constant i8 and i16 against integers: exact modulo 2^32, on every target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Feeds, Program, op
from backend.interpreted import interpreted
from backend.kernels import naive
from backend.ways import USUAL
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.kernels.conv.weights import ConvShape
from parax.compiler.backend.kernels.conv.winograd import whole as whole_winograd
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops.geometry import window_geometry
from parax.compiler.ir.types import DType, TensorType, symbol
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

HOST = resolve_target("native")
BLOCKS = [(1, 301, 100), (3, 5001, 40), (200, 64, 24), (97, 1026, 130), (49, 65, 321)]
LAST = (0, 2, 3, 1)


def whole(*shape: int, low: int, high: int, seed: int = 0) -> np.ndarray:
    """Whole numbers of which a third are the least and the greatest."""
    rng = np.random.default_rng((seed, *shape))
    x = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 1 / 3, rng.choice([low, high], shape), x)


def activations(*shape: int) -> np.ndarray:
    return whole(*shape, low=-255, high=255).astype(np.int16)


def weights(*shape: int, dtype: str = "int8") -> np.ndarray:
    low, high = (-128, 127) if dtype == "int8" else (-255, 255)
    return whole(*shape, low=low, high=high, seed=1).astype(dtype)


def modulo(x: np.ndarray) -> np.ndarray:
    """Whole numbers in f64 or i64 as i32."""
    return (x.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def graph_of(name: str, x: np.ndarray, constants: list[np.ndarray], rows: str | None = None, layout: Any = None,
             **attributes: Any) -> Graph:  # fmt: skip
    """One node; `rows` names x's first axis where it is a symbol."""
    graph = Graph("product")
    shape = (symbol(rows), *x.shape[1:]) if rows else x.shape
    given_ = [graph.add_input("x", TensorType(DType.from_numpy(x.dtype), shape, layout))]
    node = graph.add_node(op(name, domain="parax", **attributes), [*given_, *map(graph.add_constant, constants)])
    if layout:
        node.output.type = node.output.tensor.with_layout(layout)
    graph.set_outputs(node.outputs)
    return graph


def found(graph: Graph, feeds: Feeds, symbols: dict[str, int], targets: list[Target], tiled: bool = True) -> Any:
    """What each target computes: this machine runs its own, others' kernels are interpreted."""
    for target in targets:
        program = Program(graph, target, tuple(symbols))
        assert any("tile" in name for _, call in program.calls for name in call.func.callees) == tiled
        runs = target.supported_by(host_features())
        yield (program.run_all([(feeds, symbols)], USUAL)[0] if runs else interpreted(program, feeds, symbols))[0]


def check_product(a: np.ndarray, b: np.ndarray, rows: str | None = None, targets: list[Target] | None = None) -> None:
    wanted = modulo(a.astype(np.int64) @ b.astype(np.int64))
    for y in found(graph_of("WideningMatMul", a, [b], rows), {"x": a}, {rows: len(a)} if rows else {},
                   targets or [HOST]):  # fmt: skip
        assert y.dtype == np.int32
        np.testing.assert_array_equal(y, wanted)


@thorough(40)
@given(m=st.integers(1, 40), k=st.integers(1, 40), n=st.integers(1, 150), symbolic=st.booleans(),
       dtype=st.sampled_from(["int8", "int16"]))  # fmt: skip
def test_any_size(m: int, k: int, n: int, symbolic: bool, dtype: str) -> None:
    check_product(activations(m, k), weights(k, n, dtype=dtype), "M" if symbolic else None)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("shape", BLOCKS, ids=str)
def test_blocks(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    check_product(activations(m, k), weights(k, n, dtype=dtype))


@pytest.mark.parametrize("a", [(16,), (2, 3, 20, 16), (1, 1, 16), (5, 1, 17)], ids=str)
def test_several_axes_of_rows(a: tuple[int, ...]) -> None:
    check_product(activations(*a), weights(a[-1], 30))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("shape", [(7, 9, 20), (13, 6, 70), (1, 33, 5)], ids=str)
def test_products_of_every_target(target: Target, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check_product(activations(m, k), weights(k, n), targets=[target])


def test_sums_beyond_i32_are_modulo_two_to_the_32() -> None:
    """66,000 times 255 · 127 is just below 2^31, 66,400 times is above."""
    a, b = np.full((3, 66_400), 255, np.int16), np.full((66_400, 9), 127, np.int8)
    assert 66_400 * 255 * 127 > 2**31 > 66_000 * 255 * 127
    b[66_000:, 0] = 0
    check_product(a, b)


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]] = [
    ((2, 8, 9, 7), (13, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 34, 9, 9), (70, 34, 1, 1), {}),
    ((1, 10, 15, 15), (24, 10, 5, 5), {"pads": [2, 1, 0, 2], "strides": [2, 3]}),
    ((1, 20, 11, 12), (9, 20, 3, 2), {"dilations": [2, 3], "pads": [0, 1, 2, 0]}),
    ((1, 64, 14, 14), (40, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 11, 12), (24, 4, 3, 5), {"strides": [2, 3]}),  # a line of a filter is one run
    ((2, 4, 30, 31), (70, 4, 7, 7), {"strides": [2, 2], "pads": [3, 0, 1, 0], "dilations": [2, 1]}),
    ((3, 12, 5, 9), (8, 12, 1, 3), {}),
]


def check_convolution(case: int, dtype: str = "int8", bias: bool = True, images: str | None = None,
                      target: Target = HOST) -> None:  # fmt: skip
    shape, filters, given_ = CONVOLUTIONS[case]
    attributes = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], **given_}
    x, w = activations(*shape), weights(*filters, dtype=dtype)
    b = whole(filters[0], low=-(2**31), high=2**31 - 1, seed=2).astype(np.int32) if bias else None
    wanted = modulo(naive.conv(x, w, None if b is None else b.astype(np.float64), **attributes, group=1))
    graph = graph_of("WideningConv", x, [w, *([b] if b is not None else [])], images, LAST,
                     kernel_shape=list(filters[2:]), **attributes)  # fmt: skip
    for y in found(graph, {"x": x}, {images: len(x)} if images else {}, [target]):
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", range(len(CONVOLUTIONS)))
def test_convolutions(case: int, bias: bool, dtype: str) -> None:
    check_convolution(case, dtype, bias)


@pytest.mark.parametrize("case", [0, 1])
def test_convolutions_of_any_number_of_images(case: int) -> None:
    check_convolution(case, images="N")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_convolutions_of_every_target(target: Target) -> None:
    check_convolution(0, target=target)


def test_plain_loops_serve_what_no_tile_does() -> None:
    """Channels that are not innermost, and are odd."""
    x, w = activations(1, 3, 5, 5), weights(4, 3, 2, 2)
    graph = graph_of("WideningConv", x, [w], kernel_shape=[2, 2])
    (y,) = found(graph, {"x": x}, {}, [HOST], tiled=False)
    np.testing.assert_array_equal(y, modulo(naive.conv(x, w, None, [1, 1], [0] * 4, [1, 1], 1)))


def test_a_line_is_one_run_of_a_signal() -> None:
    """Whose images are longer than their results, so that no table of rows may do without them."""
    x, w = activations(3, 8, 21), weights(5, 8, 4, dtype="int8")
    graph = graph_of("WideningConv", x, [w], "N", (0, 2, 1), kernel_shape=[4])
    for y in found(graph, {"x": x}, {"N": 3}, [HOST]):
        np.testing.assert_array_equal(y, modulo(naive.conv(x, w, None, [1], [0, 0], [1], 1)))


@pytest.mark.parametrize(
    ("target", "channels", "size", "pads", "extreme"),
    [("native", 32, (8, 8), (1, 1, 1, 1), False), ("native", 32, (5, 7), (0, 2, 1, 0), False),
     ("native", 32, (6, 3), (1, 1, 1, 1), True), ("x86-64-v2", 16, (5, 7), (0, 2, 1, 0), False),
     ("x86-64-v4", 32, (3, 4), (1, 1, 1, 1), True)], ids=str)  # fmt: skip
def test_winograd_of_whole_numbers_is_exact(
    monkeypatch: pytest.MonkeyPatch, target: str, channels: int, size: tuple[int, int], pads: tuple[int, ...],
    extreme: bool,
) -> None:  # fmt: skip
    """Any size and margin; the greatest transforms that there are; of two images, also where that is not known."""
    monkeypatch.setattr(whole_winograd.WholeWinogradAlgorithm, "max_share", math.inf)
    dtype = "int16" if extreme else "int8"
    x, w = activations(2, channels, *size), weights(channels, channels, 3, 3, dtype=dtype)
    if extreme:
        x[:], w[:] = 255 * (-1) ** np.indices(size).sum(axis=0), -255
    b = whole(channels, low=-(2**31), high=2**31 - 1, seed=2).astype(np.int32)
    wanted = modulo(naive.conv(x, w, b.astype(np.float64), [1, 1], pads, [1, 1], 1))
    for images in (None, "N"):
        graph = graph_of("WideningConv", x, [w, b], images, LAST, kernel_shape=[3, 3], pads=list(pads))
        symbols = {images: 2} if images else {}
        program = Program(graph, resolve_target(target), tuple(symbols))
        assert any("winograd_product" in name for _, call in program.calls for name in call.func.callees)
        for y in found(graph, {"x": x}, symbols, [resolve_target(target)], tiled=False):
            np.testing.assert_array_equal(y, wanted)


def test_winograd_is_left_out_where_four_times_an_output_leaves_i32() -> None:
    """4 · 255 · 9 · 255 · channels."""
    for channels, holds in ((896, True), (928, False)):
        w = np.full((1, channels, 3, 3), -255, np.int16)
        graph = graph_of("WideningConv", np.zeros((1, channels, 4, 4), np.int16), [w], layout=LAST, kernel_shape=[3, 3])
        geometry = ConvShape.of(Fusion.of(graph.first)).geometry
        assert whole_winograd.is_filtered(geometry, np.repeat(w, 16, axis=0), HOST, 1) == holds
        assert (4 * 255 * 255 * 9 * channels < 2**31) == holds


@pytest.mark.parametrize(("images", "size", "holds"), [(1, 7, False), (2, 7, True), (1, 14, True)])
def test_many_weights_are_transformed_for_enough_pixels(images: int, size: int, holds: bool) -> None:
    w = np.ones((512, 512, 3, 3), np.int8)
    geometry = window_geometry((size, size), (3, 3), pads=(1, 1, 1, 1))
    assert whole_winograd.is_filtered(geometry, w, HOST, images) == holds
