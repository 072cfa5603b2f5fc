"""DeformConv against loops in double precision: any number of axes, groups, strides, types, any offsets."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from parax.compiler.targets.target import Target

TOLERANCE = {np.float32: 1e-4, np.float64: 1e-10, np.float16: 4e-3, ml_dtypes.bfloat16: 4e-2}


def sample(x: np.ndarray, at: list[float]) -> float:
    """x, linearly interpolated; beyond it are zeros."""
    total = 0.0
    for corner in itertools.product(*([math.floor(p), math.floor(p) + 1] for p in at)):
        if all(0 <= i < n for i, n in zip(corner, x.shape)):
            total += float(x[corner]) * math.prod(1 - abs(p - i) for p, i in zip(at, corner))
    return total


def deformed(x: np.ndarray, w: np.ndarray, offset: np.ndarray, b: np.ndarray, mask: np.ndarray, group: int,
             offset_group: int, strides: list[int], pads: list[int], dilations: list[int]) -> np.ndarray:  # fmt: skip
    """The definition, sample by sample."""
    kernel, out, positions = w.shape[2:], w.shape[0], offset.shape[2:]
    taps = list(itertools.product(*map(range, kernel)))
    offset = offset.reshape(len(x), offset_group, len(taps), len(kernel), *positions)
    mask = mask.reshape(len(x), offset_group, len(taps), *positions)
    y = np.zeros((len(x), out, *positions)) + b.reshape(-1, *[1] * len(kernel))
    for n, at in itertools.product(range(len(x)), itertools.product(*map(range, positions))):
        for c, (t, tap) in itertools.product(range(x.shape[1]), enumerate(taps)):
            g, o = c // w.shape[1], c * offset_group // x.shape[1]
            place = [i * s - p + k * d + float(offset[(n, o, t, a, *at)])
                     for a, (i, s, p, k, d) in enumerate(zip(at, strides, pads, tap, dilations))]
            value = sample(x[n, c], place) * mask[(n, o, t, *at)]
            of_group = slice(g * out // group, (g + 1) * out // group)
            y[(n, of_group, *at)] += w[(of_group, c % w.shape[1], *tap)] * value
    return y


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]),
       st.sampled_from(list(TOLERANCE)), st.booleans())  # fmt: skip
def test_windows(seed: int, rank: int, group: int, offset_group: int, dtype: Any, masked: bool) -> None:
    rng = np.random.default_rng(seed)
    size = rng.integers(3, 7 if rank > 2 else 9, rank)
    size[-1] = rng.integers(3, 40 // 3**(rank - 1) + 4)
    kernel, strides, dilations = (rng.integers(1, most, rank) for most in (4, 3, 3))
    pads = rng.integers(0, 3, 2 * rank)
    positions = (size + pads[:rank] + pads[rank:] - (kernel - 1) * dilations - 1) // strides + 1
    if positions.min() < 1:
        return
    taps = offset_group * int(kernel.prod())
    x, w = rng.normal(size=(2, 4, *size)), rng.normal(size=(6, 4 // group, *kernel))
    offset = rng.integers(-24, 24, (2, taps * rank, *positions)) / 8
    b, mask = rng.normal(size=6), rng.uniform(size=(2, taps, *positions)) if masked else np.ones((2, taps, *positions))
    x, w, offset, b, mask = (a.astype(dtype) for a in (x, w, offset, b, mask))
    window = {"strides": strides.tolist(), "pads": pads.tolist(), "dilations": dilations.tolist()}
    groups = {"group": group, "offset_group": offset_group}
    (found,) = run_node(op("DeformConv", **window, **groups), [x, w, offset, b, mask if masked else None])
    wanted = deformed(*(a.astype(np.float64) for a in (x, w, offset, b, mask)), **groups, **window)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), wanted, TOLERANCE[dtype], TOLERANCE[dtype] * 4)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_targets_agree(target: Target) -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=s).astype(np.float32) for s in ((1, 2, 5, 40), (3, 2, 3, 3), (1, 18, 3, 38))]
    found, wanted = (run_node(op("DeformConv"), inputs, target=t)[0] for t in (target, None))
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize(("offset", "wanted"), [(np.inf, 0), (-np.inf, 0), (1e30, 0), (np.nan, np.nan)])
def test_offsets_that_are_no_numbers(offset: float, wanted: float) -> None:
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 1, 1), np.float32)
    found = run_node(op("DeformConv"), [x, w, np.full((1, 2, 3, 3), offset, np.float32)])[0]
    np.testing.assert_array_equal(found, np.full((1, 1, 3, 3), wanted))


def test_what_lies_outside_is_not_read() -> None:
    x, w = np.full((1, 1, 2, 2), np.inf, np.float32), np.ones((1, 1, 1, 1), np.float32)
    found = run_node(op("DeformConv"), [x, w, np.full((1, 2, 2, 2), -9, np.float32)])[0]
    np.testing.assert_array_equal(found, np.zeros((1, 1, 2, 2)))
