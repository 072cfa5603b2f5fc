"""Products of bf16 by what only a run knows, as a training step's: within the bound, everywhere."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.interpreted import interpreted
from backend.kernels import naive
from backend.kernels.test_bf16_operators import CONVOLUTIONS, EVERY_TARGET, EXTENDED, HOST, LAST, OTHERS, bound, half
from backend.ways import EVERY, USUAL, Way
from parax.compiler.backend.host import host_features
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import BF16, F32, TensorType
from parax.compiler.targets.target import Target
from sampling import thorough

PAIRS, MATRICES = EXTENDED
ROWS, COLUMNS = (0, 1), (1, 0)
"""Orders in memory: rows in one piece, or columns."""


def computed(name: str, arrays: list[np.ndarray], layouts: list[Any], target: Target = HOST,
             ways: tuple[Way, ...] = USUAL, out: Any = None, **attributes: Any) -> np.ndarray:  # fmt: skip
    """What a target computes of operands that are all given at run time."""
    graph = Graph("product")
    types = [TensorType(F32 if a.dtype == np.float32 else BF16, a.shape, order)
             for a, order in zip(arrays, layouts, strict=True)]  # fmt: skip
    inputs = [graph.add_input(f"x{i}", t) for i, t in enumerate(types)]
    node = graph.add_node(op(name, domain="parax", **attributes), inputs)
    node.output.type = node.output.tensor.with_layout(out)
    graph.set_outputs(node.outputs)
    program = Program(graph, target)
    text = "".join(str(f) for _, call in program.calls for f in (call.func, *call.func.callees.values()))
    served = name == "Bf16MatMul" or (layouts[0] == LAST and arrays[0].shape[1] == arrays[1].shape[1] >= 8)
    assert ("dot_bf16" in text) == (served and "avx512bf16" in target.abilities and "amx-bf16" not in target.abilities)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    runs = target.supported_by(host_features())
    found: np.ndarray = (program.run_all([(feeds, {})], ways)[0] if runs else interpreted(program, feeds, {}))[0]
    assert found.dtype == np.float32
    return found


def check(a: np.ndarray, b: np.ndarray, orders: tuple[Any, Any] = (ROWS, ROWS), **how: Any) -> None:
    """Of matrices in the last two axes, each of which may lie by columns."""
    layouts = [(*range(x.ndim - 2), *(x.ndim - 2 + i for i in order)) for x, order in zip((a, b), orders)]
    y = computed("Bf16MatMul", [a, b], layouts, **how)
    a, b = a.astype(np.float64), b.astype(np.float64)
    sizes, denormals = np.abs(a) @ np.abs(b), np.abs(a).sum(-1, keepdims=True) + np.abs(b).sum(-2, keepdims=True)
    assert (np.abs(y - a @ b) <= bound(sizes, denormals, a.shape[-1])).all()


orders = st.tuples(st.sampled_from([ROWS, COLUMNS]), st.sampled_from([ROWS, COLUMNS]))


@thorough(40)
@given(m=st.integers(1, 40), k=st.integers(1, 40), n=st.integers(1, 150), orders=orders)
@example(m=7, k=1, n=17, orders=(COLUMNS, COLUMNS))
@example(m=13, k=33, n=64, orders=(COLUMNS, ROWS))
def test_any_size(m: int, k: int, n: int, orders: tuple[Any, Any]) -> None:
    check(half(m, k), half(k, n, seed=1), orders)


@pytest.mark.parametrize("orders", [(ROWS, ROWS), (ROWS, COLUMNS), (COLUMNS, ROWS)], ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 301, 100), (3, 5001, 40), (900, 64, 24), (97, 1026, 130), (400, 255, 321), (25, 513, 600)], ids=str
)
def test_blocks(shape: tuple[int, int, int], orders: tuple[Any, Any]) -> None:
    """Of rows and of k; parts of B that are copied at a time, whole and not."""
    m, k, n = shape
    check(half(m, k), half(k, n, seed=1), orders)


@pytest.mark.parametrize("shapes", [((2, 3, 20, 16), (2, 3, 16, 9)), ((3, 5, 7), (3, 7, 20)), ((2, 4, 10), (10, 33)),
                                    ((9, 10), (2, 10, 33)), ((2, 1, 5, 6), (1, 3, 6, 40))], ids=str)  # fmt: skip
@pytest.mark.parametrize("orders", [(ROWS, ROWS), (ROWS, COLUMNS), (COLUMNS, COLUMNS)], ids=str)
def test_batches(shapes: tuple[tuple[int, ...], ...], orders: tuple[Any, Any]) -> None:
    check(half(*shapes[0]), half(*shapes[1], seed=1), orders)


@pytest.mark.parametrize("orders", [(ROWS, ROWS), (COLUMNS, COLUMNS)], ids=str)
@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
def test_every_target(target: Target, orders: tuple[Any, Any]) -> None:
    check(half(13, 7), half(7, 70, seed=1), orders, target=target)


@pytest.mark.parametrize("orders", [(ROWS, ROWS), (COLUMNS, COLUMNS)], ids=str)
def test_every_way_of_sharing_gives_the_same_bits(orders: tuple[Any, Any]) -> None:
    check(half(800, 300), half(300, 200, seed=1), orders, ways=EVERY)


@pytest.mark.parametrize("k", [1, 2, 31, 257])
@pytest.mark.parametrize("orders", [(ROWS, ROWS), (COLUMNS, ROWS)], ids=str)
@pytest.mark.parametrize("target", [HOST, PAIRS], ids=lambda t: t.name)
def test_infinities_and_nan_are_where_they_belong(k: int, orders: tuple[Any, Any], target: Target) -> None:
    """Also in the last of an odd number of inputs, beside the zero that fills up its pair."""
    a, b = half(9, k), (np.abs(half(k, 20, seed=1).astype(np.float32)) + 1).astype(ml_dtypes.bfloat16)
    a[1, k - 1], a[4, 0], a[6, k - 1] = np.inf, -np.inf, np.nan
    b[0, 5], b[k - 1, 19] = np.inf, np.nan
    with np.errstate(all="ignore"):
        wanted = (a.astype(np.float64)[:, :, None] * b.astype(np.float64)[None]).sum(1)
    y = computed("Bf16MatMul", [a, b], list(orders), target)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.where(np.isinf(y), y, 0), np.where(np.isinf(wanted), wanted, 0))


MORE: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]] = [
    ((3, 16, 20, 21), (70, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 8, 17, 19), (5, 8, 16, 17), {}),  # taps that leave room for one pair of channels at a time
    ((2, 300, 5, 5), (40, 300, 1, 1), {"strides": [2, 2]}),
]


def check_convolution(case: tuple[Any, ...], bias: bool = False, target: Target = HOST, layout: Any = LAST) -> None:
    shape, filters, given_ = case
    attributes = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": shape[1] // filters[1], **given_}
    x, w, b = half(*shape), half(*filters, seed=1), half(filters[0], seed=2).astype(np.float32)
    arrays = [x, w, *([b] if bias else [])]
    y = computed("Bf16Conv", arrays, [layout, *[None] * (len(arrays) - 1)], target, out=layout,
                 kernel_shape=list(filters[2:]), **attributes)  # fmt: skip
    exact, sizes = (naive.conv(f(x.astype(np.float64)), f(w.astype(np.float64)), f(b) if bias else None,
                               **attributes) for f in (lambda v: v, np.abs))  # fmt: skip
    assert (np.abs(y - exact) <= bound(sizes, 10.0 * w[0].size, w[0].size)).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", [*CONVOLUTIONS, *MORE], ids=str)
def test_convolutions(case: tuple[Any, ...], bias: bool) -> None:
    check_convolution(case, bias)


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
def test_convolutions_of_every_target(target: Target) -> None:
    check_convolution(CONVOLUTIONS[0], target=target)


@pytest.mark.parametrize("layout", [None, LAST], ids=str)
@pytest.mark.parametrize("case", [*OTHERS, CONVOLUTIONS[0]], ids=str)
def test_other_convolutions_are_widened(case: tuple[Any, ...], layout: Any) -> None:
    """Few channels, groups, channels that do not lie side by side."""
    check_convolution(case, layout=layout)
