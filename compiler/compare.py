"""When two results are the same: |Δ| ≤ atol + rtol·|ref|, and the same winner where the output is a distribution.

How large the two are follows from the element type and, for atol, from the size of the reference, so that an output of
small numbers is not compared with nothing. Pure arithmetic on arrays; knows nothing of models or plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .flattened import flattened


class Rule(NamedTuple):
    """What is allowed where nobody says otherwise: of each element, and of the whole's root mean square.

    Attributes:
        rtol: per |reference|. share: of the root mean square. eps: the type's own step at 1.
    """

    rtol: float
    share: float
    eps: float

    @property
    def least(self) -> float:
        """Noise of numbers around 1 that cancel, which no reference is small enough to rule out."""
        return min(8 * self.eps, self.share / 4)


RULES = {
    "float64": Rule(1e-9, 1e-10, 2.0**-52),
    "float32": Rule(1e-3, 1e-4, 2.0**-23),
    "float16": Rule(2.0**-7, 2.0**-8, 2.0**-10),
    "bfloat16": Rule(2.0**-6, 2.0**-7, 2.0**-7),
    "float8_e4m3fn": Rule(2.0**-2, 2.0**-3, 2.0**-3),
    "float8_e5m2": Rule(2.0**-1, 2.0**-2, 2.0**-2),
}
"""Finest first. A type that is not here counts as float32, or as the coarsest where it is narrower."""
_OF_PARTS = {"complex64": "float32", "complex128": "float64"}
SAME, EQUAL_SCORES, OTHER_ORDER, DIFFERENT = "same", "equal scores", "other order", "different"


@dataclass(frozen=True)
class Tolerance:
    """What may differ.

    Args:
        rtol, atol: as somebody said; None: by RULES.
        coarsest: the coarsest element type that the results went through, by its numpy name; "": that of the output.
        steps: of integers that were rounded from floats.
    """

    rtol: float | None = None
    atol: float | None = None
    coarsest: str = ""
    steps: int = 0


@dataclass(frozen=True)
class Difference:
    """One output against its reference.

    Attributes:
        max_abs: max |Δ| over the elements (NaN against a number counts as infinite).
        worst: max |Δ| / (atol + rtol·|ref|); at most 1 passes.
        top1: share of rows with the same largest entry, None where the output is no distribution.
        problem: why it fails, "" when it passes.
        rtol, atol: that were allowed.
        warning: why passing says little, "" when it does say something.
        status: SAME; EQUAL_SCORES: but for the order of rows of equal scores; OTHER_ORDER: the same rows, but nothing
            tells whether that order may be; DIFFERENT.
    """

    name: str
    max_abs: float
    worst: float
    top1: float | None
    problem: str
    rtol: float = 0.0
    atol: float = 0.0
    warning: str = ""
    status: str = SAME

    @property
    def passed(self) -> bool:
        """Whether the two are the same by the rule."""
        return not self.problem


def rule_of(dtype: np.dtype, coarsest: str = "") -> Rule:
    """The rule for an output's type, or for the coarsest type that its values went through, if that is coarser."""
    own = _OF_PARTS.get(dtype.name, dtype.name)
    names = [name if name in RULES else _unlisted(name) for name in (own, *([coarsest] if coarsest else []))]
    return max((RULES[name] for name in names), key=lambda rule: rule.rtol)


def _unlisted(name: str) -> str:
    return list(RULES)[-1] if name.startswith(("float8", "float6", "float4")) else "float32"


def difference(name: str, found: Any, expected: Any, allowed: Tolerance | None = None) -> Difference:
    """Compare one output with its reference: tensors of any shape and element type, or what is made of them."""
    if expected is None or isinstance(expected, (list, dict)):
        return _of_parts(name, found, expected, allowed)
    found, expected, allowed = np.asarray(found), np.asarray(expected), allowed or Tolerance()
    if found.shape != expected.shape:
        problem = f"shape {found.shape}, expected {expected.shape}"
        return Difference(name, np.inf, np.inf, None, problem, status=DIFFERENT)
    if found.dtype != expected.dtype:
        problem = f"type {found.dtype}, expected {expected.dtype}"
        return Difference(name, np.inf, np.inf, None, problem, status=DIFFERENT)
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, None, "", warning="it has no elements")
    if expected.dtype.kind in "biuOSU":
        return _exact(name, found, expected, allowed.steps)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    got, want = found.astype(wide), expected.astype(wide)
    rule = rule_of(expected.dtype, allowed.coarsest)
    rtol, atol, scaled = tolerances(want, rule, allowed)
    delta = _delta(got, want)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(delta == 0, 0.0, delta / (atol + rtol * np.where(np.isfinite(want), np.abs(want), 0.0)))
    worst, max_abs = float(ratio.max()), float(delta.max())
    top1 = _top1(got.real, want.real, rtol, atol) if _is_distribution(want) else None
    problem = ""
    if worst > 1:
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        problem = f"at {list(at)}: {found[at]}, expected {expected[at]}"
    elif top1 is not None and top1 < 1:
        problem = f"another winner in {1 - top1:.1%} of the rows"
    status = DIFFERENT if problem else SAME
    return Difference(name, max_abs, worst, top1, problem, rtol, atol, _weakness(want, atol, scaled), status)


def _of_parts(name: str, found: Any, expected: Any, allowed: Tolerance | None) -> Difference:
    """The worst of the differences of all tensors in two values."""
    (form, ours), (wanted, theirs) = flattened(found), flattened(expected)
    if form != wanted:
        problem = f"{form[:100]}, expected {wanted[:100]}"
        return Difference(name, np.inf, np.inf, None, problem, status=DIFFERENT)
    parts = [difference(name, a, b, allowed) for a, b in zip(ours, theirs, strict=True)]
    worst = max(parts, key=lambda part: (not part.passed, part.worst), default=Difference(name, 0.0, 0.0, None, ""))
    return replace(worst, max_abs=max((part.max_abs for part in parts), default=0.0))


def tolerances(want: np.ndarray, rule: Rule, allowed: Tolerance) -> tuple[float, float, bool]:
    """rtol and atol against a reference, and whether atol is a share of that."""
    rtol = rule.rtol if allowed.rtol is None else allowed.rtol
    if allowed.atol is not None:
        return rtol, allowed.atol, False
    sizes = np.abs(want[np.isfinite(want)])
    largest = float(sizes.max()) if sizes.size else 0.0
    mean = largest * float(np.sqrt(np.mean(np.square(sizes / largest)))) if largest else 0.0
    return rtol, max(rule.share * mean, rule.least), rule.share * mean > rule.least


def _weakness(want: np.ndarray, atol: float, scaled: bool) -> str:
    """Why agreeing with a reference says little; "" where it says something.

    What is smaller than an atol that is scaled to the whole is negligible beside the rest, as a distribution's tail is.
    """
    finite = np.isfinite(want)
    if not finite.any():
        return "the reference holds no number, only NaN or infinities"
    if not finite.all() and finite.mean() < 0.5:
        return f"{1 - finite.mean():.0%} of the reference is NaN or infinite"
    if want.size > 1 and (want[finite] == want[finite][0]).all():
        return f"the reference is {want[finite][0]:g} everywhere"
    sizes = np.abs(want[finite & (want != 0)])
    small = float(np.mean(sizes < atol)) if sizes.size and not scaled else 0.0
    return f"{small:.0%} of the reference is smaller than atol, {atol:.1e}" if small > 0.5 else ""


def _delta(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """|Δ| elementwise; 0 where both are the same NaN or infinity, infinite where only one is."""
    with np.errstate(invalid="ignore"):
        delta = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0.0, np.where(np.isnan(delta), np.inf, delta))


def _exact(name: str, found: np.ndarray, expected: np.ndarray, steps: int) -> Difference:
    equal = np.asarray(found == expected)
    if np.all(equal):
        return Difference(name, 0.0, 0.0, None, "")
    at = tuple(int(i) for i in np.argwhere(~equal)[0])
    share = 1 - float(np.mean(equal))
    max_abs = 1.0
    if expected.dtype.kind in "iu":
        max_abs = float(np.max(np.abs(found.astype(np.float64) - expected.astype(np.float64))))
        if max_abs <= steps:
            return Difference(name, max_abs, max_abs / steps, None, "", atol=float(steps))
    problem = f"{share:.2%} differ, first at {list(at)}: {found[at]!r}, expected {expected[at]!r}"
    return Difference(name, max_abs, np.inf, None, problem, status=DIFFERENT)


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
