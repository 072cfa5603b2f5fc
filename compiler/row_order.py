"""All outputs of a run against their references, and whether rows that differ are only in another order.

Detectors and TopK give rows ordered by a score. Rows of equal scores may come in any order; then every output that
numbers or describes them differs, and nothing is wrong. That is taken to be so where an output of scores, in order and
not all equal, agrees in place, and within each run of equal scores the rows of all outputs beside it, taken together,
are the same rows. Without such an output nothing shows that scores were equal: the same rows in another order are then
a difference, told by name; so is a row that fell out behind the last of several equal ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .compare import DIFFERENT, EQUAL_SCORES, OTHER_ORDER, Difference, Tolerance, difference

Arrays = Mapping[str, np.ndarray]
MOST_ROWS = 2048
"""Rows of equal scores that are held against one another; more of them stay a difference."""


def differences(
    found: Arrays, expected: Arrays, allowed: Tolerance | None = None, rounded: frozenset[str] = frozenset()
) -> list[Difference]:
    """One per expected output, in order.

    Args:
        rounded: the outputs that are integers rounded from floats, which may differ by a step.
    """
    allowed = allowed or Tolerance()
    results = {
        name: difference(name, found[name], expected[name], replace(allowed, steps=1) if name in rounded else allowed)
        for name in expected
    }
    arrays = [name for name, value in expected.items() if isinstance(value, (np.ndarray, np.generic))]
    pairs = {name: (np.asarray(found[name]), np.asarray(expected[name])) for name in arrays}
    comparable = {name: (a, b) for name, (a, b) in pairs.items() if a.shape == b.shape and a.dtype == b.dtype}
    for score, (_, values) in comparable.items():
        if results[score].passed and _orders(values):
            _excuse(score, comparable, results)
    for name, each in results.items():
        if each.status == DIFFERENT and name in comparable and _same_rows(*comparable[name]):
            problem = f"the same rows in another order, and no output shows that their scores are equal: {each.problem}"
            results[name] = replace(each, problem=problem, status=OTHER_ORDER)
    return list(results.values())


def _orders(values: np.ndarray) -> bool:
    """Whether they may be what rows are ordered by: floats that only fall, or only rise, along the last axis."""
    if values.dtype.kind != "f" or not values.ndim or values.size < 2 or not np.isfinite(values).all():
        return False
    steps = np.diff(values.astype(np.float64), axis=-1)
    return bool(steps.any() and ((steps <= 0).all() or (steps >= 0).all()))


def _excuse(score: str, pairs: Mapping[str, tuple[np.ndarray, np.ndarray]], results: dict[str, Difference]) -> None:
    """Let the outputs that describe the rows of a score pass if they are the same up to the order of equal scores."""
    values = pairs[score][1]
    beside = [n for n, (a, _) in pairs.items() if n != score and a.shape[: values.ndim] == values.shape]
    wrong = [name for name in beside if not results[name].passed]
    if not wrong:
        return
    equal = {name: _equal(*pairs[name], results[name]) for name in beside}
    in_place = np.ones(values.shape, bool)
    for each in equal.values():
        in_place &= each.reshape(*values.shape, -1).all(axis=-1)
    gap = 2 * results[score].max_abs
    for row in zip(*np.nonzero(~in_place.all(axis=-1))) if values.ndim > 1 else [()]:
        for begin, end in _runs(values[row].astype(np.float64), gap):
            if in_place[row][begin:end].all():
                continue
            if end - begin > MOST_ROWS or not _is_permuted(begin, end, row, beside, pairs, results):
                return
    for name in wrong:
        warning = f"in another order where {score} is equal"
        results[name] = replace(results[name], problem="", status=EQUAL_SCORES, warning=warning)


def _runs(scores: np.ndarray, gap: float) -> list[tuple[int, int]]:
    """Runs of neighbours that are equal, or differ by no more than the two sides do."""
    steps = np.abs(np.diff(scores))
    apart = np.nonzero(~((steps <= gap) | (scores[1:] == scores[:-1])))[0] + 1
    edges = [0, *apart.tolist(), len(scores)]
    return list(zip(edges, edges[1:]))


def _is_permuted(
    begin: int, end: int, row: tuple[int, ...], names: list[str], pairs: Mapping[str, tuple[np.ndarray, np.ndarray]],
    results: Mapping[str, Difference],
) -> bool:  # fmt: skip
    """Whether rows [begin, end) of all outputs together are the expected ones in some order."""
    same = np.ones((end - begin, end - begin), bool)
    for name in names:
        got, want = (side[row][begin:end] for side in pairs[name])
        for i in range(end - begin):
            matches = _equal(np.broadcast_to(got[i], want.shape), want, results[name])
            same[i] &= matches.reshape(end - begin, -1).all(axis=-1)
    left = np.ones(end - begin, bool)
    for matches in same:
        free = np.nonzero(matches & left)[0]
        if not free.size:
            return False
        left[free[0]] = False
    return True


def _equal(got: np.ndarray, want: np.ndarray, how: Difference) -> np.ndarray:
    """Elementwise, within what the output was allowed."""
    if want.dtype.kind in "bOSU":
        return np.asarray(got == want)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= how.atol + how.rtol * np.abs(b)
    return near | (a == b) | (np.isnan(a) & np.isnan(b))


def _same_rows(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether integers are the same along their last axis, or in whole rows, in another order."""
    if want.dtype.kind not in "iu" or not want.ndim:
        return False
    if np.array_equal(np.sort(got, axis=-1), np.sort(want, axis=-1)):
        return True
    a, b = (side.reshape(len(side), -1) for side in (got, want))
    return want.ndim > 1 and np.array_equal(a[np.lexsort(a.T)], b[np.lexsort(b.T)])
