"""SuppressBoxes against the same greedy choice written with NumPy: a sorted list that each kept box thins out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from backend.kernels.plain_boxes import corners, plain

ALL = 1 << 40


def ours(target: Any, boxes: np.ndarray, scores: np.ndarray, most: int | None, iou: float | None, least: float | None,
         center: bool = False) -> list[list[int]]:  # fmt: skip
    """The same of every class of every batch."""
    limits = [None if iou is None else np.array([iou], boxes.dtype), None if least is None else boxes.dtype.type(least)]
    number = None if most is None else np.array([most])
    picks, counts = run_node(op("SuppressBoxes", "parax", center_point_box=int(center)),
                             [boxes, scores, number, *limits], outputs=2, target=target)  # fmt: skip
    return [line[:n].tolist() for line, n in zip(picks.reshape(-1, picks.shape[2]), counts.ravel())]


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(shape=st.tuples(*(st.integers(1, n) for n in (2, 3, 70))), seed=st.integers(0, 999), center=st.booleans(),
       most=st.sampled_from([0, 1, 3, 70, ALL]), iou=st.sampled_from([0.0, 0.3, 0.5, 1.0, None]),
       least=st.sampled_from([None, -np.inf, 0.0, 2.0]), odd=st.booleans())  # fmt: skip
@example(shape=(1, 1, 33), seed=1, center=False, most=ALL, iou=0.5, least=None, odd=True)
@settings(max_examples=40, deadline=None)
def test_as_the_plain_one(target, dtype, shape, seed, center, most, iou, least, odd) -> None:
    batch, classes, length = shape
    numbers = np.random.default_rng(seed)
    boxes = numbers.integers(0, 12, (batch, length, 4)).astype(dtype) / dtype(3)
    scores = np.round(numbers.normal(size=(batch, classes, length)), 1).astype(dtype)  # some are equal
    if odd:
        boxes.ravel()[numbers.integers(0, boxes.size, 3)] = [np.nan, np.inf, -np.inf]
        scores.ravel()[numbers.integers(0, scores.size, 4)] = [np.nan, np.inf, -np.inf, -0.0]
    with np.errstate(invalid="ignore"):
        expected = [plain(corners(boxes[b], center), scores[b, c], most, iou or 0.0, least)
                    for b in range(batch) for c in range(classes)]  # fmt: skip
    assert ours(target, boxes, scores, most, iou, least, center) == expected


def test_without_a_limit_nothing_is_kept() -> None:
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    assert ours(None, boxes, scores, None, 0.5, None) == [[]]


def test_ties_are_decided_as_onnx_runtime_does() -> None:
    """7/23 of the union is common: f32 rounds the quotient to the threshold, and the product another way."""
    boxes = np.array([[(0, 0, 1, 23), (0, 0, 1, 7)]], np.float32)
    assert ours(None, boxes, np.ones((1, 1, 2), np.float32), 5, 7 / 23, None) == [[0, 1]]


@pytest.mark.parametrize("iou", [-0.1, 1.5, np.nan])
def test_a_threshold_out_of_range(iou: float) -> None:
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    with pytest.raises(AssertionError, match=r"Refused: .*iou_threshold"):
        ours(None, boxes, scores, 3, iou, None)
