"""RoiAlign and MaxRoiPool against loops in double precision: odd sizes, every type, layout and target, bad regions."""

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

LAST = (0, 2, 3, 1)
TOLERANCE = {np.float32: 1e-4, np.float64: 1e-10, np.float16: 4e-3, ml_dtypes.bfloat16: 4e-2}


def between(position: float, size: int) -> list[tuple[int, float]]:
    """The elements on both sides of a position and their weights; none for positions off the image."""
    if position < -1 or position > size:
        return []
    at = max(position, 0.0)
    low = min(int(at), size - 1)
    return [(low, 1.0), (low, 0.0)] if low == size - 1 else [(low, 1 - (at - low)), (low + 1, at - low)]


def aligned(x: np.ndarray, roi: np.ndarray, bins: tuple[int, int], ratio: int, mode: str, half: bool) -> np.ndarray:
    """One region of an image [C, H, W], its corners scaled already."""
    start = roi[1::-1].astype(np.float64) - 0.5 * half
    length = roi[:1:-1].astype(np.float64) - 0.5 * half - start
    length = (length if half else np.maximum(length, 1)) / bins
    samples = [ratio or max(math.ceil(n), 0) for n in length]
    y = np.zeros((len(x), *bins))
    for at in itertools.product(*map(range, bins)):
        found = []
        for sample in itertools.product(*map(range, samples)):
            place = [s + a * n + (i + 0.5) * n / c for s, a, n, i, c in zip(start, at, length, sample, samples)]
            rows, columns = (between(p, size) for p, size in zip(place, x.shape[1:]))
            terms = [x[:, i, j] * (a * b) for i, a in rows for j, b in columns] or [np.zeros(len(x))]
            found.append(np.sum(terms, axis=0) if mode == "avg" else np.max(terms, axis=0))
        if found:
            y[(slice(None), *at)] = np.mean(found, axis=0) if mode == "avg" else np.max(found, axis=0)
    return y


def pooled(x: np.ndarray, roi: np.ndarray, bins: tuple[int, int]) -> np.ndarray:
    """One region of an image [C, H, W], its corners scaled already."""
    first, last = ([int(np.copysign(np.floor(abs(v) + 0.5), v)) for v in part] for part in (roi[1::-1], roi[:1:-1]))
    y = np.zeros((len(x), *bins))
    for at in itertools.product(*map(range, bins)):
        spans = []
        for f, t, n, i, size in zip(first, last, bins, at, x.shape[1:]):
            length = max(t - f + 1, 1)
            begin, end = math.floor(i * length / n), math.ceil((i + 1) * length / n)
            spans.append(slice(min(max(begin + f, 0), size), min(max(end + f, 0), size)))
        window = x[(slice(None), *spans)]
        if window.size:
            y[(slice(None), *at)] = window.max(axis=(1, 2))
    return y


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 16, 17, 64, 85, 130]), st.integers(1, 9), st.integers(1, 9),
       st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(0, 3), st.sampled_from(["avg", "max"]),
       st.booleans(), st.sampled_from(list(TOLERANCE)), st.booleans())  # fmt: skip
def test_regions(seed: int, channels: int, height: int, width: int, bins: tuple[int, int], ratio: int, mode: str,
                 half: bool, dtype: Any, last: bool) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, channels, height, width)).astype(dtype)
    rois = (rng.integers(-8, 44, (5, 4)) / 4).astype(dtype)  # exact in every type, as are samples at powers of two
    images = rng.integers(0, 2, 5)
    layout = dict(layouts=[LAST], out_layouts=[LAST]) if last else {}
    wide = x.astype(np.float64)
    (found,) = run_node(op("MaxRoiPool", pooled_shape=bins, spatial_scale=0.5),
                        [x, np.insert(rois, 0, images, 1)], **layout)
    wanted = [pooled(wide[i], roi.astype(np.float64) * 0.5, bins) for i, roi in zip(images, rois)]
    if bins[0] in (1, 2, 4) and bins[1] in (1, 2, 4):  # else bins end where rounding says
        np.testing.assert_array_equal(found.astype(np.float64), np.array(wanted))
    operator = op("RoiAlign", output_height=bins[0], output_width=bins[1], mode=mode, sampling_ratio=ratio,
                  spatial_scale=0.5, coordinate_transformation_mode="half_pixel" if half else "output_half_pixel")
    (found,) = run_node(operator, [x, rois, images], **layout)
    assert found.dtype == dtype
    wanted = [aligned(wide[i], roi.astype(np.float64) * 0.5, bins, ratio, mode, half) for i, roi in zip(images, rois)]
    if 3 not in (ratio, *bins):  # else the number of samples, or their side of a border, may differ
        np.testing.assert_allclose(found.astype(np.float64), wanted, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_targets_agree(target: Target) -> None:
    x = np.random.default_rng(1).normal(size=(1, 37, 8, 8)).astype(np.float32)
    rois, images = np.array([[0.5, 1, 6, 7]], np.float32), np.array([0])
    operator = op("RoiAlign", output_height=3, output_width=3)
    np.testing.assert_allclose(run_node(operator, [x, rois, images], target=target)[0],
                               run_node(operator, [x, rois, images])[0], 1e-6, 1e-6)


def test_what_lies_outside_is_not_read() -> None:
    """ONNX Runtime multiplies the first element by 0."""
    x = np.ones((1, 1, 4, 4), np.float32)
    x[0, 0, 0, 0] = np.inf
    rois = np.array([[-90, -90, -80, -80]], np.float32)
    assert run_node(op("RoiAlign"), [x, rois, np.array([0])])[0].item() == 0
    assert run_node(op("MaxRoiPool", pooled_shape=[1, 1]), [x, np.insert(rois, 0, 0, 1)])[0].item() == 0


@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf, 1e30])
def test_regions_that_are_no_numbers_end(corner: float) -> None:
    x = np.ones((1, 3, 4, 4), np.float32)
    rois = np.array([[0, 0, 2, corner]], np.float32)
    run_node(op("RoiAlign", sampling_ratio=2), [x, rois, np.array([0])])
    run_node(op("MaxRoiPool", pooled_shape=[2, 2]), [x, np.insert(rois, 0, 0, 1)])
    if corner > 0:
        with pytest.raises(AssertionError, match="more than 65536 samples"):
            run_node(op("RoiAlign"), [x, rois, np.array([0])])


@pytest.mark.parametrize("image", [-1, 2, 2**40])
def test_an_image_out_of_range_is_reported(image: int) -> None:
    x, rois = np.ones((2, 3, 4, 4), np.float32), np.array([[0, 0, 2, 2]], np.float32)
    with pytest.raises(AssertionError, match="out of range"):
        run_node(op("RoiAlign"), [x, rois, np.array([image])])
    with pytest.raises(AssertionError, match="out of range"):
        run_node(op("MaxRoiPool", pooled_shape=[2, 2]), [x, np.insert(rois, 0, image, 1)])
