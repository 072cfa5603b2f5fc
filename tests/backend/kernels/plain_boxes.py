"""Non-maximum suppression with NumPy: a sorted list that each box thins out which is kept."""

from __future__ import annotations

import numpy as np


def corners(boxes: np.ndarray, center: bool) -> np.ndarray:
    """Boxes as low and high ends of both axes."""
    a, b = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([a - b / 2, a + b / 2] if center else [np.minimum(a, b), np.maximum(a, b)], axis=1)


def plain(boxes: np.ndarray, scores: np.ndarray, most: int, iou: float, least: float | None) -> list[int]:
    """The boxes of one class that are kept, in the order in which they are."""
    order = np.argsort(-scores, kind="stable")
    order = order if least is None else order[scores[order] > least]
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept: list[int] = []
    while order.size and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        low, high = np.maximum(boxes[best, :2], boxes[order, :2]), np.minimum(boxes[best, 2:], boxes[order, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        union = area[best] + area[order] - common
        order = order[~(np.divide(common, union, out=np.zeros_like(common), where=union > 0) > iou)]
    return kept
