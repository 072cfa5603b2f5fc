"""Rows in another order: told apart from wrong ones, and excused only where an output shows that scores are equal."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.compare import DIFFERENT, EQUAL_SCORES, OTHER_ORDER, SAME, Difference
from parax.compiler.row_order import differences

SCORES = np.array([0.9, 0.5, 0.5, 0.5, 0.1], np.float32)
LABELS = np.array([3, 1, 2, 2, 0])
BOXES = np.arange(20, dtype=np.float32).reshape(5, 4)


def compared(order: list[int], **others: np.ndarray) -> dict[str, Difference]:
    """A detector's outputs against themselves with the rows in another order; `others` win."""
    expected = {"scores": SCORES, "labels": LABELS, "boxes": BOXES}
    found = {name: array[order] for name, array in expected.items()} | others
    return {each.name: each for each in differences(found, expected)}


def test_the_order_of_equal_scores_is_free() -> None:
    found = compared([0, 3, 1, 2, 4])
    assert found["scores"].status == SAME
    assert found["labels"].status == found["boxes"].status == EQUAL_SCORES
    assert all(each.passed for each in found.values())
    assert "another order where scores is equal" in found["boxes"].warning


def test_that_of_others_is_not() -> None:
    found = compared([1, 0, 2, 3, 4], scores=SCORES)
    assert not found["boxes"].passed
    assert found["boxes"].status == DIFFERENT
    assert found["labels"].status == OTHER_ORDER


def test_outputs_that_are_reordered_each_in_its_own_way_are_wrong() -> None:
    found = compared([0, 3, 1, 2, 4], labels=LABELS[[0, 2, 3, 1, 4]])
    assert not found["labels"].passed
    assert not found["boxes"].passed


def test_one_wrong_number_is_wrong() -> None:
    boxes = BOXES[[0, 3, 1, 2, 4]].copy()
    boxes[2, 1] += 1
    assert not compared([0, 3, 1, 2, 4], boxes=boxes)["boxes"].passed


def test_a_row_that_fell_out_behind_equal_ones_is_a_difference() -> None:
    scores = np.array([0.9, 0.5, 0.5], np.float32)
    found = differences({"s": scores, "i": np.array([4, 1, 2])}, {"s": scores, "i": np.array([4, 1, 3])})
    assert [each.passed for each in found] == [True, False]
    assert found[1].status == DIFFERENT


def test_scores_that_only_rounding_tells_apart_count_as_equal() -> None:
    near = np.array([0.9, 0.5, np.nextafter(np.float32(0.5), np.float32(0)), 0.1], np.float32)
    order = [0, 2, 1, 3]
    expected = {"s": near, "i": np.array([7, 8, 9, 6])}
    found = {"s": near + np.float32(2**-24) * np.array([0, 0, 1, 0], np.float32), "i": expected["i"][order]}
    assert [each.status for each in differences(found, expected)] == [SAME, EQUAL_SCORES]
    assert not differences({**found, "s": near}, expected)[1].passed, "they agree to the last bit"


def test_every_row_of_topk_is_judged_by_itself() -> None:
    scores = np.array([[3, 2, 2], [5, 4, 1]], np.float32)
    expected = {"values": scores, "indices": np.array([[0, 1, 2], [0, 1, 2]])}
    found = {"values": scores, "indices": np.array([[0, 2, 1], [0, 1, 2]])}
    assert differences(found, expected)[1].status == EQUAL_SCORES
    found["indices"] = np.array([[0, 2, 1], [0, 2, 1]])
    assert differences(found, expected)[1].status == OTHER_ORDER


@pytest.mark.parametrize("scores", [[1, 1, 1, 1], [1, 0, 1, 0], [2, 1, np.nan, np.nan]])
def test_what_orders_nothing_excuses_nothing(scores: list[float]) -> None:
    values = np.array(scores, np.float32)
    found = differences({"s": values, "i": np.array([0, 1, 3, 2])}, {"s": values, "i": np.arange(4)})
    assert found[1].status == OTHER_ORDER
    assert not found[1].passed


def test_without_scores_the_same_rows_in_another_order_are_named_but_fail() -> None:
    selected = np.array([[0, 0, 5], [0, 0, 7], [0, 1, 7]])
    (only,) = differences({"selected": selected[[1, 0, 2]]}, {"selected": selected})
    assert only.status == OTHER_ORDER
    assert not only.passed
    assert only.problem.startswith("the same rows in another order, and no output shows")
    (only,) = differences({"selected": selected + 1}, {"selected": selected})
    assert only.status == DIFFERENT


def test_floats_in_another_order_are_wrong() -> None:
    (only,) = differences({"y": SCORES[::-1].copy()}, {"y": SCORES})
    assert only.status == DIFFERENT
