"""When two results are the same: |Δ| ≤ atol + rtol·|ref|, and the same winner where the output is a distribution.

Pure arithmetic on arrays; knows nothing of models or plans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RTOL, ATOL = 1e-3, 1e-4
# formats whose own rounding is coarser than RTOL
_COARSE = {"float16": 2.0**-7, "bfloat16": 2.0**-6, "float8_e4m3fn": 2.0**-2, "float8_e5m2": 2.0**-1}


@dataclass(frozen=True)
class Difference:
    """One output against its reference.

    Attributes:
        max_abs: max |Δ| over the elements (NaN against a number counts as infinite).
        worst: max |Δ| / (atol + rtol·|ref|); at most 1 passes.
        top1: share of rows with the same largest entry, None where the output is no distribution.
        problem: why it fails, "" when it passes.
    """

    name: str
    max_abs: float
    worst: float
    top1: float | None
    problem: str

    @property
    def passed(self) -> bool:
        """Whether the two are the same by the rule."""
        return not self.problem


def difference(
    name: str, found: np.ndarray, expected: np.ndarray, rtol: float = RTOL, atol: float = ATOL
) -> Difference:
    """Compare one output with its reference (any shape and element type)."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return Difference(name, np.inf, np.inf, None, f"shape {found.shape}, expected {expected.shape}")
    if found.dtype != expected.dtype:
        return Difference(name, np.inf, np.inf, None, f"type {found.dtype}, expected {expected.dtype}")
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, None, "")
    if expected.dtype.kind in "biuOSU":
        return _exact(name, found, expected)
    rtol = max(rtol, _COARSE.get(expected.dtype.name, 0.0))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    got, want = found.astype(wide), expected.astype(wide)
    delta = _delta(got, want)
    with np.errstate(invalid="ignore"):
        ratio = delta / (atol + rtol * np.where(np.isfinite(want), np.abs(want), 0.0))
    worst, max_abs = float(ratio.max()), float(delta.max())
    top1 = _top1(got.real, want.real, rtol, atol) if _is_distribution(want) else None
    problem = ""
    if worst > 1:
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        problem = f"at {list(at)}: {found[at]}, expected {expected[at]}"
    elif top1 is not None and top1 < 1:
        problem = f"another winner in {1 - top1:.1%} of the rows"
    return Difference(name, max_abs, worst, top1, problem)


def _delta(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """|Δ| elementwise; 0 where both are the same NaN or infinity, infinite where only one is."""
    with np.errstate(invalid="ignore"):
        delta = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0.0, np.where(np.isnan(delta), np.inf, delta))


def _exact(name: str, found: np.ndarray, expected: np.ndarray) -> Difference:
    equal = found == expected
    if np.all(equal):
        return Difference(name, 0.0, 0.0, None, "")
    at = tuple(int(i) for i in np.argwhere(~np.asarray(equal))[0])
    share = 1 - float(np.mean(equal))
    if expected.dtype.kind in "iu":
        max_abs = float(np.max(np.abs(found.astype(np.float64) - expected.astype(np.float64))))
    else:
        max_abs = 1.0
    problem = f"{share:.2%} differ, first at {list(at)}: {found[at]!r}, expected {expected[at]!r}"
    return Difference(name, max_abs, np.inf, None, problem)


def _is_distribution(want: np.ndarray) -> bool:
    """Rows of a matrix that are non-negative and sum to 1, over at least two classes."""
    if want.ndim != 2 or want.shape[1] < 2 or want.dtype.kind == "c" or not np.isfinite(want).all():
        return False
    return bool((want >= 0).all() and np.allclose(want.sum(axis=1), 1.0, atol=1e-3))


def _top1(got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> float:
    """Share of rows with the same winner; a tie within the tolerance in the reference itself is no difference."""
    rows = np.arange(len(want))
    best, chosen = want.max(axis=1), want[rows, got.argmax(axis=1)]
    return float(np.mean(best - chosen <= atol + rtol * np.abs(best)))
