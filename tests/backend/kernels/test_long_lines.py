"""Statistics of long lines: blocks change no result, and keep rounding errors from growing with the length."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import host_targets, op, run_node
from parax.compiler.backend.kernels.reduction import line_blocks
from parax.compiler.targets.target import Target

LAST = (0, 2, 3, 1)
# shape, summed axes, symbols, layout: along a line and across lines, of one axis and of two, of lengths known and not
CASES = {
    "along": ((3, 200_000), (1,), {}, None),
    "along, two axes": ((501, 5, 400), (0, 2), {}, None),
    "along, of a run": ((3, 200_001), (1,), {"S": 1}, None),
    "across": ((1, 20, 401, 500), (2, 3), {}, LAST),
    "across, two axes": ((601, 3, 300, 20), (0, 2), {}, None),
    "across, long rows": ((7, 3, 30_001, 20), (0, 2), {}, None),
    "across, of a run": ((100_003, 20), (0,), {"N": 0}, None),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape, axes, symbols, layout", CASES.values(), ids=CASES)
@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_a_long_sum_is_as_good_as_a_short_one(
    target: Target,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    symbols: dict[str, int],
    layout: tuple[int, ...] | None,
) -> None:
    x = np.random.default_rng(0).random(shape, np.float32)
    (y,) = run_node(
        op("ReduceSum", keepdims=0),
        [x, np.array(axes)],
        constants=[1],
        symbols=symbols,
        layouts=[layout],
        target=target,
    )
    expected = x.sum(axes, dtype=np.float64)
    assert np.abs(y / expected - 1).max() < 2e-6


@pytest.mark.parametrize("layout", [None, LAST], ids=["along", "across"])
def test_a_large_image_is_normalised_as_well_as_a_small_one(layout: tuple[int, ...] | None) -> None:
    x = np.random.default_rng(1).normal(size=(1, 16, 600, 500)).astype(np.float32)
    one, zero = np.ones(16, np.float32), np.zeros(16, np.float32)
    (y,) = run_node(
        op("InstanceNormalization"), [x, one, zero], constants=[1, 2], layouts=[layout], out_layouts=[layout]
    )
    x64 = x.astype(np.float64)
    centred = x64 - x64.mean((2, 3), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((2, 3), keepdims=True) + 1e-5)
    assert np.sqrt(((y - expected) ** 2).mean()) < 3e-7


@pytest.mark.sample(5)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 33, 100])
@pytest.mark.parametrize("symbols", [{}, {"S": 1}], ids=["known", "of a run"])
@pytest.mark.parametrize("transposed", [False, True], ids=["along", "across"])
def test_any_length_in_short_blocks(
    length: int, symbols: dict[str, int], transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_blocks, "BLOCK", 2)
    x = np.random.default_rng(length).integers(-9, 9, (3, length, 5)).astype(np.float32)
    x = x if transposed else np.ascontiguousarray(x[:, :, 0])
    (total,) = run_node(op("ReduceSum", keepdims=0), [x, np.array([1])], constants=[1], symbols=symbols)
    np.testing.assert_array_equal(total, x.sum(1))
    (first,) = run_node(op("ArgMax", axis=1, keepdims=0), [x], symbols=symbols)
    np.testing.assert_array_equal(first, x.argmax(1))
    (last,) = run_node(op("ArgMax", axis=1, keepdims=0, select_last_index=1), [x], symbols=symbols)
    np.testing.assert_array_equal(last, length - 1 - x[:, ::-1].argmax(1))
