"""Products and convolutions of u8 by constant i8 against integers: exact modulo 2^32, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.kernels import naive
from backend.kernels.test_widening import BLOCKS, CONVOLUTIONS, LAST, found, graph_of, modulo, whole
from parax.compiler.backend.byte_products import byte_features, multiplies_bytes, prefers_light
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.microkernels.whole import pair_weight, quads_of_columns
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.kernel_ir.loops import all_functions
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.rewrite import Rewriter
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

VNNI = [resolve_target(name) for name in ("x86-64-v4+avx512vnni", "x86-64-v3+avxvnni")]
MATRICES = resolve_target("x86-64-v4+amx-int8+amx-tile")
X86 = [target for target in TARGETS.values() if target.arch == "x86_64"]
QUADS = [i for i, (shape, _, _) in enumerate(CONVOLUTIONS) if shape[1] % 4 == 0]


def activations(*shape: int) -> np.ndarray:
    return whole(*shape, low=0, high=255).astype(np.uint8)


def weights(*shape: int, light: bool = True) -> np.ndarray:
    low, high = (-64, 64) if light else (-128, 127)
    return whole(*shape, low=low, high=high, seed=1).astype(np.int8)


def check_product(m: int, k: int, n: int, target: Target, light: bool = True, rows: str | None = None,
                  tiled: bool = True) -> None:  # fmt: skip
    a, b = activations(m, k), weights(k, n, light=light)
    wanted = modulo(a.astype(np.int64) @ b.astype(np.int64))
    for y in found(graph_of("ByteMatMul", a, [b], rows), {"x": a}, {rows: m} if rows else {}, [target], tiled):
        np.testing.assert_array_equal(y, wanted)


@thorough(30)
@given(m=st.integers(1, 40), k=st.integers(1, 40), n=st.integers(1, 150), symbolic=st.booleans())
def test_any_size(m: int, k: int, n: int, symbolic: bool) -> None:
    check_product(m, k, n, resolve_target("native"), rows="M" if symbolic else None)


@pytest.mark.parametrize("shape", BLOCKS, ids=str)
def test_blocks(shape: tuple[int, int, int]) -> None:
    check_product(*shape, resolve_target("native"))


@pytest.mark.parametrize("target", [*X86, *VNNI, MATRICES], ids=lambda target: target.name)
@pytest.mark.parametrize("shape", [(7, 9, 20), (13, 6, 70), (1, 34, 5), (6, 32, 33)], ids=str)
def test_products_of_every_target(target: Target, shape: tuple[int, int, int]) -> None:
    check_product(*shape, target)


@pytest.mark.parametrize("target", VNNI, ids=lambda target: target.name)
def test_vnni_takes_any_weights(target: Target) -> None:
    check_product(7, 23, 40, target, light=False)


@pytest.mark.parametrize("shape", [(33, 64, 20), (40, 1088, 17), (5, 130, 40), (70, 3, 33)], ids=str)
@pytest.mark.parametrize("rows", [None, "M"])
def test_products_by_matrix_registers(shape: tuple[int, int, int], rows: str | None) -> None:
    """Rows that are read in place, in one block of k or several, and rows that are copied."""
    check_product(*shape, MATRICES, light=False, rows=rows)


@pytest.mark.parametrize("layer", [
    ((1, 64, 6, 14), (40, 64, 3, 3)), ((2, 128, 5, 8), (17, 128, 2, 3)), ((1, 64, 5, 5), (20, 64, 1, 1)),
    ((1, 64, 4, 3), (20, 64, 3, 3)), ((2, 36, 5, 8), (17, 36, 3, 3)),
    ((2, 8, 5, 14), (17, 8, 3, 5)), ((1, 3, 6, 28), (40, 3, 3, 3)), ((2, 20, 5, 16), (17, 20, 2, 3)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("strides", [[1, 1], [2, 2]], ids=str)
@pytest.mark.parametrize("images", [None, "N"])
def test_convolutions_by_matrix_registers(layer: Any, strides: list[int], images: str | None) -> None:
    """Pixels that are read in a copy with padding around it, evenly spaced ones, and taps that are copied."""
    shape, filters = layer
    pads = [n // 2 for n in filters[2:]] * 2
    x, w = activations(*shape), weights(*filters, light=False)
    attributes = {"strides": strides, "pads": pads, "dilations": [1, 1]}
    wanted = padded_conv(x, w, None, 77, attributes)
    graph = graph_of("ByteConv", x, [w], images, LAST, margin=77, kernel_shape=filters[2:], **attributes)
    for y in found(graph, {"x": x}, {images: len(x)} if images else {}, [MATRICES]):
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(("shape", "filters", "served"), [
    ((1, 8, 5, 14), (17, 8, 3, 5), True), ((1, 8, 5, 14), (17, 8, 1, 1), False), ((1, 32, 5, 14), (17, 32, 1, 1), True),
    ((1, 8, 5, 7), (17, 8, 3, 3), False), ((1, 6, 5, 7), (17, 6, 3, 3), True),
])  # fmt: skip
def test_where_matrix_registers_would_be_half_empty_vectors_multiply(shape: Any, filters: Any, served: bool) -> None:
    target = resolve_target("x86-64-v4+amx-int8+amx-tile+avx512vnni")
    attributes = {"strides": [1, 1], "pads": [n // 2 for n in filters[2:]] * 2, "dilations": [1, 1]}
    x, w = activations(*shape), weights(*filters, light=False)
    graph = graph_of("ByteConv", x, [w], None, LAST, margin=77, kernel_shape=filters[2:], **attributes)
    (call,) = [call for _, call in Program(graph, target, ()).calls]
    assert any(o.opcode == "matrix_dot" for f in all_functions([call.func]) for o in f.walk()) == served
    for y in found(graph, {"x": x}, {}, [target]):
        np.testing.assert_array_equal(y, padded_conv(x, w, None, 77, attributes))


def test_plain_loops_serve_weights_that_would_saturate() -> None:
    check_product(7, 23, 40, TARGETS["x86-64-v3"], light=False, tiled=False)


def check_convolution(case: int, target: Target, margin: int = 0, bias: bool = True, images: str | None = None,
                      light: bool = True) -> None:  # fmt: skip
    shape, filters, given_ = CONVOLUTIONS[case]
    attributes = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], **given_}
    x, w = activations(*shape), weights(*filters, light=light)
    b = whole(filters[0], low=-(2**31), high=2**31 - 1, seed=2).astype(np.int32) if bias else None
    wanted = padded_conv(x, w, b, margin, attributes)
    graph = graph_of("ByteConv", x, [w, *([b] if b is not None else [])], images, LAST, margin=margin,
                     kernel_shape=list(filters[2:]), **attributes)  # fmt: skip
    for y in found(graph, {"x": x}, {images: len(x)} if images else {}, [target]):
        np.testing.assert_array_equal(y, wanted)


def padded_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, margin: int, attributes: Any) -> np.ndarray:
    """A convolution whose padding consists of a number."""
    top, left, bottom, right = attributes["pads"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=margin)
    start = None if b is None else b.astype(np.float64)
    return modulo(naive.conv(padded, w, start, **{**attributes, "pads": [0] * 4}, group=1))


@pytest.mark.parametrize("margin", [0, 117, 255])
@pytest.mark.parametrize("case", QUADS)
def test_convolutions(case: int, margin: int) -> None:
    check_convolution(case, resolve_target("native"), margin, bias=margin != 117)


@pytest.mark.parametrize("target", [*X86, *VNNI, MATRICES], ids=lambda target: target.name)
def test_convolutions_of_every_target(target: Target) -> None:
    check_convolution(0, target, 3, light=target in X86)


def test_convolutions_of_any_number_of_images() -> None:
    check_convolution(0, resolve_target("native"), 200, images="N")


@pytest.mark.parametrize("margin", [0, 9])
def test_plain_loops_know_what_padding_consists_of(margin: int) -> None:
    """Channels that are not innermost, and no quads."""
    x, w = activations(1, 3, 5, 5), weights(4, 3, 2, 2)
    graph = graph_of("ByteConv", x, [w], kernel_shape=[2, 2], pads=[1, 0, 1, 1], margin=margin)
    (y,) = found(graph, {"x": x}, {}, [resolve_target("native")], tiled=False)
    wanted = padded_conv(x, w, None, margin, {"strides": [1, 1], "dilations": [1, 1], "pads": [1, 0, 1, 1]})
    np.testing.assert_array_equal(y, wanted)


# -- which weights, and which products ---------------------------------------------------------------------------------
PAIRS = [([64, 64], 128), ([127, -128], 128), ([100, 29], 129), ([1, 127, 127], 128), ([-100, -29], 129),
         ([5, 3, 120], 120), ([1, 127, 2, 127], 129)]  # fmt: skip


@pytest.mark.parametrize(("column", "weight"), PAIRS)
def test_the_weight_of_pairs_is_what_one_instruction_adds(column: list[int], weight: int) -> None:
    columns = np.zeros((len(column), 3), np.int8)
    columns[:, 1] = column
    assert pair_weight(columns) == weight
    assert pair_weight(columns[:0]) == 0


def test_columns_are_packed_in_quads_of_rows() -> None:
    columns = np.arange(10, dtype=np.int8).reshape(5, 2)
    np.testing.assert_array_equal(quads_of_columns(columns), [[0, 2, 4, 6, 1, 3, 5, 7], [8, 0, 0, 0, 9, 0, 0, 0]])


@pytest.mark.parametrize(("target", "light", "kernel", "takes"), [
    ("x86-64-v3", True, 1, True), ("x86-64-v3", False, 1, False), ("x86-64-v3", True, 3, False),
    ("x86-64-v3+avxvnni", False, 3, True), ("x86-64-v4+avx512vnni", False, 1, True), ("aarch64", True, 1, False),
])  # fmt: skip
def test_which_convolutions_multiply_bytes(target: str, light: bool, kernel: int, takes: bool) -> None:
    """Weights that saturate do not, and those of 3 × 3 taps are Winograd's, but where a quad is one instruction."""
    w = weights(64, 32, kernel, kernel, light=light)
    node = graph_of("WideningConv", np.zeros((1, 32, 9, 9), np.int16), [w], layout=LAST).first
    assert multiplies_bytes([resolve_target(target)])(node) == takes
    assert multiplies_bytes([resolve_target(target), resolve_target("aarch64")])(node) is False


@pytest.mark.parametrize(("targets", "shape", "kernel", "prefers"), [
    (["x86-64-v3"], (64, 32), 1, True), (["x86-64-v3"], (64, 32), 3, False), (["x86-64-v3"], (64, 6), 1, False),
    (["x86-64-v4+avx512vnni"], (64, 32), 1, False), (["x86-64-v3", "aarch64"], (64, 32), 1, False),
])  # fmt: skip
def test_where_light_weights_are_worth_their_rounding(targets: list[str], shape: tuple[int, int], kernel: int,
                                                      prefers: bool) -> None:  # fmt: skip
    """Not where Winograd's algorithm serves, channels are no quads, or a quad is one instruction."""
    graph = Graph("float")
    x = graph.add_input("x", TensorType(F32, (1, shape[1], 9, 9)))
    w = graph.add_constant(np.ones((*shape, kernel, kernel), np.float32))
    node = graph.add_node(op("Conv"), [x, w])
    assert prefers_light([resolve_target(name) for name in targets])(node) == prefers


# -- results that are bytes again --------------------------------------------------------------------------------------
def rounded(m: int, k: int, n: int, to: str, zero: int, division: bool) -> tuple[Graph, dict[str, np.ndarray], Any]:
    """Sums that a factor for each column scales, with bytes added and rounded to bytes; operands; what comes out."""
    a, w = activations(m, k), weights(k, n)
    z = whole(m, n, low=0, high=255, seed=3).astype(np.uint8)
    factor = (np.float32(0.004) * (1 + np.arange(n, dtype=np.float32) / n)).astype(np.float32)
    text = f"""graph @g(%x: u8[{m},{k}], %z: u8[{m},{n}]) {{
        %w = const i8[{k},{n}] {w.reshape(-1).tolist()}
        %f = const f32[{n}] {factor.tolist()}
        %s = const f32[] [{0.37 if division else 2.7}]
        %p = const {to}[] [{zero}]
        %1 = parax::ByteMatMul(%x, %w)
        %2 = Cast(%1) {{to=f32}}
        %3 = Mul(%2, %f)
        %4 = Cast(%z) {{to=f32}}
        %5 = Add(%3, %4)
        %6 = {"Div" if division else "Mul"}(%5, %s)
        %y = parax::RoundTo(%6, %p) {{to={to}}}
        return %y
        }}"""
    graph = parse_graph(text, {})
    assert FuseElementwise().run(graph, Rewriter(graph))
    scaled = (a.astype(np.int64) @ w.astype(np.int64)).astype(np.float32) * factor + z.astype(np.float32)
    steps = scaled / np.float32(0.37) if division else scaled * np.float32(2.7)
    limits = np.iinfo(np.dtype("uint8" if to == "u8" else "int8"))
    return graph, {"x": a, "z": z}, np.clip(np.rint(steps) + zero, limits.min, limits.max).astype(limits.dtype)


@pytest.mark.parametrize("division", [False, True])
@pytest.mark.parametrize(("to", "zero"), [("u8", 0), ("u8", 131), ("i8", -7)])
@pytest.mark.parametrize("target", [resolve_target("native"), *VNNI], ids=lambda target: target.name)
def test_sums_become_bytes(target: Target, to: str, zero: int, division: bool) -> None:
    """Panels of four registers of columns, and narrower ones beside them."""
    for m, k, n in ((13, 8, 64), (7, 20, 128), (6, 5, 150)):
        graph, feeds, wanted = rounded(m, k, n, to, zero, division)
        for y in found(graph, feeds, {}, [target]):
            np.testing.assert_array_equal(y, wanted)


@thorough(20)
@given(m=st.integers(1, 30), k=st.integers(1, 20), n=st.integers(1, 200), to=st.sampled_from(["u8", "i8"]))
def test_bytes_of_any_size(m: int, k: int, n: int, to: str) -> None:
    graph, feeds, wanted = rounded(m, k, n, to, 3, True)
    for y in found(graph, feeds, {}, [resolve_target("native", byte_features())]):
        np.testing.assert_array_equal(y, wanted)
