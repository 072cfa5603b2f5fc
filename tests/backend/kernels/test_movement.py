"""Movement and sampling kernels on tensors stored channels last, and on every target that this machine runs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from parax.compiler.ir.ops.base import Operator
from parax.compiler.targets.target import Target

LAST = (0, 2, 3, 1)
X = np.random.default_rng(1).normal(size=(2, 12, 6, 10)).astype(np.float32)
GRID = np.random.default_rng(2).uniform(-1.2, 1.2, (2, 3, 7, 2)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


SCALES = np.array([1, 1, 2, 1.5], np.float32)
PADS = ints(0, 0, 1, 2, 0, 0, 3, 1)
CASES: list[tuple[Operator, list[Any]]] = [
    *((op("Pad", mode=mode), [X, PADS]) for mode in ("constant", "reflect", "edge", "wrap")),
    (op("Pad"), [X, ints(0, 1, 0, 0, 0, 3, 0, 0), np.array(2.5, np.float32)]),
    (op("Slice"), [X, ints(1, -1, 2), ints(9, -99, 9), ints(1, 2, 3), ints(2, -1, 3)]),
    *((op("Resize", mode=mode), [X, None, SCALES]) for mode in ("nearest", "linear", "cubic")),
    *((op("DepthToSpace", blocksize=2, mode=mode), [X]) for mode in ("DCR", "CRD")),
    (op("SpaceToDepth", blocksize=2), [X]),
    (op("Tile"), [X, ints(1, 2, 1, 2)]),
    (op("Expand"), [X[:, :, :1], ints(2, 12, 5, 10)]),
    (op("Transpose", perm=[3, 1, 0, 2]), [X]),
    (op("Gather", axis=1), [X, ints(3, -1, 0)]),
    (op("GatherElements", axis=1), [X, np.random.default_rng(3).integers(-12, 12, (2, 5, 6, 10))]),
    *((op("GridSample", mode=mode), [X, GRID]) for mode in ("nearest", "linear", "cubic")),
    (op("Trilu", upper=0), [X]),
]


def run(operator: Operator, inputs: list[Any], target: Target | None = None, **layouts: Any) -> np.ndarray:
    parameters = [i for i, x in enumerate(inputs) if i and x is not None and operator.name not in
                  ("Gather", "GatherElements", "GridSample")]
    return run_node(operator, inputs, constants=parameters, target=target, **layouts)[0]


@pytest.mark.sample(5)
@pytest.mark.parametrize("operator, inputs", CASES, ids=lambda p: str(p)[:50] if isinstance(p, Operator) else "")
@pytest.mark.parametrize("layouts", [(LAST, LAST), (LAST, None), (None, LAST)], ids=["last", "from last", "to last"])
def test_layouts_do_not_matter(operator: Operator, inputs: list[Any], layouts: tuple[Any, Any]) -> None:
    given, wanted = layouts
    found = run(operator, inputs, layouts=[given], out_layouts=[wanted])
    np.testing.assert_allclose(found, run(operator, inputs, out_layouts=[None]), 1e-6, 1e-6)


@pytest.mark.sample(5)
@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("operator, inputs", CASES, ids=lambda p: str(p)[:50] if isinstance(p, Operator) else "")
def test_targets_agree(operator: Operator, inputs: list[Any], target: Target) -> None:
    np.testing.assert_allclose(run(operator, inputs, target), run(operator, inputs), 1e-5, 1e-5)


@pytest.mark.sample(5)
@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.float16, ml_dtypes.bfloat16, np.uint16, np.float32,
                                   np.int64], ids=lambda d: np.dtype(d).name)  # fmt: skip
@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (16, 16), (17, 33), (2, 35, 15), (33, 2, 48)], ids=str)
def test_bits_of_every_size_are_turned(shape: tuple[int, ...], dtype: Any, target: Target) -> None:
    """Whole blocks, and parts of them, of axes whose neighbours lie side by side on one side each."""
    bits = np.random.default_rng(len(shape)).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    x = (bits % 2 if dtype is np.bool_ else bits).view(dtype)[..., 0]
    rank = len(shape)
    for perm in {tuple(reversed(range(rank))), (rank - 1, *range(rank - 1))}:
        found = run(op("Transpose", perm=list(perm)), [x], target)
        assert found.dtype == x.dtype and found.tobytes() == np.ascontiguousarray(x.transpose(perm)).tobytes()


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@given(st.data())
def test_bytes_of_an_image_become_quads(target: Target, data: st.DataObject) -> None:
    """Planes of bytes in, whole pixels of four out; the image's edges may be cropped."""
    n, channels, rows, columns = (data.draw(st.integers(1, most)) for most in (2, 3, 5, 40))
    first = data.draw(st.integers(0, 4 - channels))
    edges = [data.draw(st.integers(-1 if size > 2 else 0, 3)) for size in (rows, columns, rows, columns)]
    widths = ints(0, first, *edges[:2], 0, 4 - channels - first, *edges[2:])
    fill = np.array(data.draw(st.integers(-128, 127)), np.int8)
    x = np.random.default_rng(columns).integers(-128, 128, (n, channels, rows, columns)).astype(np.int8)
    found = run(op("Pad"), [x, widths, fill], target, out_layouts=[LAST])
    (top, left), (bottom, right) = ([max(0, -edge) for edge in pair] for pair in (edges[:2], edges[2:]))
    kept = x[:, :, top : rows - bottom, left : columns - right]
    around = [(max(0, a), max(0, b)) for a, b in zip(edges[:2], edges[2:], strict=True)]
    margins = [(0, 0), (first, 4 - channels - first), *around]
    np.testing.assert_array_equal(found, np.pad(kept, margins, constant_values=fill))


@pytest.mark.parametrize("kind", ["Gather", "GatherElements", "ScatterElements"])
@pytest.mark.parametrize("index", [3, -4, 2**62, -(2**63)])
def test_index_out_of_range_is_reported(kind: str, index: int) -> None:
    x, indices = np.zeros((3, 20), np.float32), np.full((1, 20), index)
    inputs = [x, indices, np.zeros((1, 20), np.float32)] if kind == "ScatterElements" else [x, indices]
    with pytest.raises(AssertionError, match="index is out of range"):
        run_node(op(kind), inputs)


@pytest.mark.parametrize("kind", ["GatherND", "ScatterND"])
def test_coordinate_out_of_range_is_reported(kind: str) -> None:
    x, indices = np.zeros((3, 20), np.float32), np.array([[0, 19], [2, 20]])
    with pytest.raises(AssertionError, match="index is out of range"):
        run_node(op(kind), [x, indices, np.zeros(2, np.float32)][: 3 if kind == "ScatterND" else 2])
