"""Convolutions and products of bf16 tensors by matrix registers, against NumPy: sizes, strides, pads, groups, rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.interpreted import interpreted
from backend.kernels import naive
from backend.ways import EVERY, USUAL, Way
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.kernels.conv.matrices import LEAST_INPUTS
from parax.compiler.backend.microkernels.bf16 import MATRICES
from parax.compiler.backend.microkernels.whole import QUAD_MATRICES
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import BF16, TensorType, symbol
from parax.compiler.kernel_ir.loops import all_functions
from sampling import thorough

TARGET = resolve_target("x86-64-v4+amx-bf16+amx-tile")
RUNS = TARGET.supported_by(host_features())
U, V, LEAST = 2.0**-8, 2.0**-24, 2.0**-126
LAST = (0, 2, 3, 1)
MOST_INTERPRETED = 4_000_000  # multiply-adds


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(ml_dtypes.bfloat16)


def results(graph: Graph, feeds: dict[str, np.ndarray], work: int, symbols: dict[str, int] | None = None,
            ways: tuple[Way, ...] = USUAL, always: bool = True) -> list[np.ndarray]:  # fmt: skip
    """The output by the interpreter, where that does not take long, and by this machine, if it can; the same bits.
    `always`: matrix registers serve it, whatever its sizes."""
    program = Program(graph, TARGET, tuple(symbols or {}))
    (call,) = [call for _, call in program.calls]
    assert not always or any(o.opcode == "matrix_dot" for f in all_functions([call.func]) for o in f.walk())
    found = interpreted(program, feeds, symbols or {}) if work <= MOST_INTERPRETED else []
    if RUNS:
        found += program.run_all([(feeds, symbols or {})], ways)[0]
    if not found:
        pytest.skip("takes too long by the interpreter")
    assert len({y.tobytes() for y in found}) == 1
    return found


def convolution(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, batch: str | None,
                layout: tuple[int, ...] | None = LAST, **attributes: Any) -> Graph:  # fmt: skip
    """One layer of channels-last results; `batch` names the images' axis where it is a symbol."""
    graph = Graph("conv")
    shape = (symbol(batch), *x.shape[1:]) if batch else x.shape
    given = [graph.add_input("x", TensorType(BF16, shape, layout)), graph.add_constant(w)]
    node = graph.add_node(op("Conv", **attributes), [*given, *([graph.add_constant(b)] if b is not None else [])])
    node.output.type = node.output.tensor.with_layout(LAST)
    graph.set_outputs(node.outputs)
    return graph


def near(y: np.ndarray, exact: np.ndarray, sizes: np.ndarray, depth: int) -> None:
    """Sums of exact products in f32, in any order, rounded once more to bf16; denormals are zeros."""
    n = 2 * -(-depth // 2) + 2
    slack = n * V / (1 - n * V) * sizes
    assert (np.abs(y.astype(np.float64) - exact) <= slack + U * (np.abs(exact) + slack) + n * LEAST).all()


def check(x: tuple[int, ...], w: tuple[int, ...], *, bias: bool = True, batch: str | None = None,
          ways: tuple[Way, ...] = USUAL, always: bool = True, layout: tuple[int, ...] | None = LAST,
          **attributes: Any) -> None:  # fmt: skip
    data, weights, b = normal(*x), normal(*w, seed=1), normal(w[0], seed=2) if bias else None
    full = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1} | attributes
    wide = [v if v is None else v.astype(np.float64) for v in (data, weights, b)]
    exact = naive.conv(*wide, **full)
    sizes = naive.conv(*(v if v is None else np.abs(v) for v in wide), **full)
    graph = convolution(data, weights, b, batch, layout, **attributes)
    work = int(exact.size * np.prod(w[1:]))
    for y in results(graph, {"x": data}, work, {batch: len(data)} if batch else {}, ways, always):
        near(y, exact, sizes, int(np.prod(w[1:])))


@thorough(20)
@given(
    data=st.data(), n=st.integers(1, 2), cin=st.sampled_from([16, 17, 31, 32, 33, 64]),
    cout=st.sampled_from([1, 5, 16, 31, 70]), kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    bias=st.booleans(), batch=st.sampled_from([None, "N"]),
)  # fmt: skip
def test_any_size(data: st.DataObject, n: int, cin: int, cout: int, kernel: tuple[int, int], bias: bool,
                  batch: str | None) -> None:  # fmt: skip
    strides = [data.draw(st.integers(1, 2)) for _ in kernel]
    dilations = [data.draw(st.integers(1, 2)) for _ in kernel]
    pads = [data.draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    size = [(k - 1) * d + data.draw(st.integers(1, 5)) for k, d in zip(kernel, dilations)]
    check((n, cin, *size), (cout, cin, *kernel), bias=bias, batch=batch, strides=strides, dilations=dilations,
          pads=pads)  # fmt: skip


@pytest.mark.parametrize("batch", [None, "N"])
def test_groups(batch: str | None) -> None:
    check((2, 40, 5, 4), (30, 20, 3, 2), group=2, pads=[1, 0, 1, 1], batch=batch)


@pytest.mark.parametrize("pixels", [(7, 7), (14, 14), (28, 3)], ids=str)
def test_pixels_of_real_layers(pixels: tuple[int, int]) -> None:
    check((1, 64, *pixels), (48, 64, 3, 3), pads=[1] * 4)
    check((2, 96, *pixels), (40, 96, 1, 1))


@thorough(20)
@given(data=st.data(), kernel=st.tuples(st.integers(1, 3), st.integers(1, 4)), batch=st.sampled_from([None, "N"]),
       cin=st.sampled_from([2, 3, 6, 8, 10, 12, 15, 16, 20, 22, 32, 34, 48, 64]))  # fmt: skip
def test_pixels_read_where_they_are(data: st.DataObject, kernel: tuple[int, int], cin: int, batch: str | None) -> None:
    """Rows of 4 to 32 output pixels that parts of 4 to 16 divide, or not, with padding or without, by taps or lines."""
    strides, dilations = ([data.draw(st.integers(1, 2)) for _ in kernel] for _ in range(2))
    pads = [data.draw(st.integers(0, 2)) for _ in range(4)]
    output = [data.draw(st.integers(1, 5)), data.draw(st.sampled_from([4, 5, 12, 13, 17, 18, 32]))]
    size = [(o - 1) * s + (k - 1) * d + 1 - pads[i] - pads[i + 2]
            for i, (o, s, k, d) in enumerate(zip(output, strides, kernel, dilations))]  # fmt: skip
    if min(size) < 1:
        return
    check((data.draw(st.integers(1, 2)), cin, *size), (data.draw(st.sampled_from([3, 40])), cin, *kernel), batch=batch,
          always=cin >= LEAST_INPUTS, strides=strides, dilations=dilations, pads=pads)  # fmt: skip


@thorough(25)
@given(data=st.data(), cin=st.integers(1, 7), kernel=st.tuples(st.integers(1, 7), st.integers(2, 7)),
       layout=st.sampled_from([None, LAST, (0, 2, 1, 3)]), batch=st.sampled_from([None, "N"]))  # fmt: skip
def test_images(data: st.DataObject, cin: int, kernel: tuple[int, int], layout: tuple[int, ...] | None,
                batch: str | None) -> None:  # fmt: skip
    strides, dilations = [data.draw(st.integers(1, 3)) for _ in kernel], [data.draw(st.integers(1, 2)), 1]
    pads = [data.draw(st.integers(0, 3)) for _ in range(4)]
    output = [data.draw(st.integers(1, 5)), data.draw(st.sampled_from([12, 13, 16, 28, 32, 39]))]
    size = [(o - 1) * s + (k - 1) * d + 1 - pads[i] - pads[i + 2]
            for i, (o, s, k, d) in enumerate(zip(output, strides, kernel, dilations))]  # fmt: skip
    if min(size) < 1:
        return
    check((data.draw(st.integers(1, 2)), cin, *size), (data.draw(st.sampled_from([16, 17, 70])), cin, *kernel),
          batch=batch, layout=layout, always=cin > 1, strides=strides, dilations=dilations, pads=pads)  # fmt: skip


@pytest.mark.parametrize(("x", "w"), [
    ((1, 3, 30, 23), (15, 3, 3, 3)), ((1, 3, 30, 22), (16, 3, 3, 3)), ((1, 3, 30, 32), (16, 3, 3, 1)),
], ids=str)  # fmt: skip
def test_images_that_would_not_fill_registers(x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """Of few results, of rows of 20 pixels, which halves of 10 alone divide, and of filters of one column."""
    check(x, w, always=False)
    graph = convolution(normal(*x), normal(*w), None, None)
    functions = all_functions([call.func for _, call in Program(graph, TARGET, ()).calls])
    assert not any(o.opcode == "matrix_dot" for f in functions for o in f.walk())


@pytest.mark.parametrize(("channels", "kernel"), [(3, 3), (1, 5), (8, 5), (2, 7), (12, 3), (6, 1), (22, 3), (48, 3)])
@pytest.mark.parametrize("special", [np.inf, np.nan], ids=str)
def test_what_is_beside_a_line_is_not_multiplied(channels: int, kernel: int, special: float) -> None:
    x, w = normal(1, channels, 5, 16), np.abs(normal(20, channels, 3, kernel)) + ml_dtypes.bfloat16(1)
    x[0, :, 2, 9] = special
    graph = convolution(x, w, None, None, pads=[1, kernel // 2] * 2)
    reached = range(9 - kernel // 2, 9 + kernel // 2 + 1)
    for y in results(graph, {"x": x}, 0):
        wrong = ~np.isfinite(y.astype(np.float32))
        assert wrong[:, :, 1:4, reached].all() and wrong.sum() == 20 * 3 * len(reached)


@pytest.mark.parametrize("x", [(1, 32, 13, 12), (1, 32, 20, 16), (3, 32, 9, 7)], ids=str)
def test_every_way_of_sharing_gives_the_same_bits(x: tuple[int, ...]) -> None:
    check(x, (40, 32, 1, 1), ways=EVERY)
    check(x, (200, 32, 3, 3), pads=[1] * 4, ways=EVERY)
    for channels, always in ((18, True), (3, x[3] >= 12)):
        check((x[0], channels, *x[2:]), (200, channels, 3, 3), pads=[1] * 4, ways=EVERY, always=always)
    check(x, (200, 32, 1, 1), ways=EVERY)


@pytest.mark.parametrize("channels", [33, 34])
def test_infinities_and_nan_stay_in_their_pixels(channels: int) -> None:
    """In copies, and where they are."""
    x, w = normal(1, channels, 4, 9), np.abs(normal(20, channels, 1, 1)) + ml_dtypes.bfloat16(1)
    x[0, 32, 1, 2], x[0, 0, 3, 3], x[0, 5, 0, 8] = np.inf, np.nan, -np.inf
    for y in results(convolution(x, w, None, None), {"x": x}, 0):
        assert (y[0, :, 1, 2] == np.inf).all() and np.isnan(y[0, :, 3, 3]).all() and (y[0, :, 0, 8] == -np.inf).all()
        assert np.isfinite(y.astype(np.float32)).sum() == y.size - 3 * 20


@thorough(15)
@given(m=st.integers(1, 70), k=st.integers(1, 80), n=st.integers(1, 90), symbolic=st.booleans())
def test_products_of_bf16_tensors(m: int, k: int, n: int, symbolic: bool) -> None:
    check_product(m, k, n, symbolic)


def check_product(m: int, k: int, n: int, symbolic: bool = False) -> None:
    a, b = normal(m, k), normal(k, n, seed=1)
    graph = Graph("product")
    x = graph.add_input("a", TensorType(BF16, (symbol("M") if symbolic else m, k)))
    graph.set_outputs(graph.add_node(op("MatMul"), [x, graph.add_constant(b)]).outputs)
    wide = [v.astype(np.float64) for v in (a, b)]
    for y in results(graph, {"a": a}, m * k * n, {"M": m} if symbolic else {}):
        near(y, wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1]), k)


@pytest.mark.parametrize("size", [(40, 1056, 20), (33, 416, 40), (70, 384, 17), (1, 2048, 40)], ids=str)
def test_blocks_of_k_go_on_where_the_last_one_ended(size: tuple[int, int, int]) -> None:
    m, k, n = size
    check_product(m, k, n)
    check((1, k, 5, 7), (n, k, 1, 1))


@pytest.mark.parametrize("depth", [1, 2, 31, 33, 34, 50, 65, 96, 97])
def test_steps_are_filled_as_evenly_as_a_depth_allows(depth: int) -> None:
    for emitter, each, most in ((MATRICES, 2, 32), (QUAD_MATRICES, 4, 64)):
        own, whole = emitter.for_depth(depth), emitter.dividing(depth)
        steps = -(-depth // own.k_step)
        assert own.k_step == own.width * each <= most and steps == -(-depth // most)
        assert steps * own.k_step - depth < each * steps
        assert (whole is None) == bool(depth % each) and (whole is None or depth % whole.k_step == 0)


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3", "x86-64-v4+avx512bf16"])
def test_without_the_registers_other_kernels_serve(target: str) -> None:
    graph = convolution(normal(1, 32, 5, 5), normal(16, 32, 3, 3), None, None)
    for _, call in Program(graph, resolve_target(target)).calls:
        assert not any(o.opcode.startswith("matrix") for f in all_functions([call.func]) for o in f.walk())
