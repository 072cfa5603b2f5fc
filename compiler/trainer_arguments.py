"""What a trainer is handed, held to what it may be before any work."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any

from ..errors import UsageError
from ..runtime.train.arguments import require_kind
from ..runtime.train.program import LOSS
from .frontend.head import Head
from .options import FULL, HALF, PRECISIONS, CompileOptions
from .training.groups import ParameterGroup
from .training.update_graph import Clip

_KINDS: dict[str, tuple[type, str]] = {
    "head": (Head, "parax.Head(classes=…)"), "clip": (Clip, "Clip(norm=…)"),
    "options": (CompileOptions, "parax.CompileOptions(…)"),
}  # fmt: skip


def require_kinds(weights: Any, groups: Any, rate: Any, **others: Any) -> None:
    """Refuse arguments of `Trainer` that are of another kind; None is none of them.

    Raises:
        UsageError: names it.
    """
    for name, value in others.items():
        kind, expected = _KINDS[name]
        require_kind(name, value, (kind, type(None)), expected)
    require_kind("weights", weights, (str, os.PathLike, type(None)), "a path")
    require_kind("groups", groups, (list, tuple), "a list of parax.ParameterGroup")
    for i, group in enumerate(groups):
        require_kind(f"groups[{i}]", group, ParameterGroup, "parax.ParameterGroup(…)")
    if rate is not None and not callable(rate):
        raise UsageError("a value of another kind", where="rate", found=repr(rate)[:60], hint="or lr of the optimiser",
                         expected="a function from the number of a step to its rate")  # fmt: skip


def checked_rate(rate: Callable[[int], Any], steps: int) -> float:
    """The learning rate of the next step.

    Raises:
        UsageError: it is no finite number from 0 on.
    """
    given = rate(steps)
    try:
        found = float(given)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise UsageError("out of range", where=f"rate of step {steps + 1}", expected="a finite number, 0 or more",
                         found=repr(given)[:60])  # fmt: skip
    return found


def require_metric(metric: Any, known: Collection[str]) -> None:
    """Refuse a metric that no evaluation gives.

    Args:
        known: metrics beside the loss; none without a test.

    Raises:
        UsageError: there is no such metric.
    """
    names = (LOSS, *known)
    if metric not in names:
        near = get_close_matches(str(metric), names, 1)
        hint = f"did you mean {near[0]}?" if near else None if known else "metrics are those of an evaluation: test"
        raise UsageError("no such metric", where="metric", expected=", ".join(names), found=repr(metric)[:60],
                         hint=hint)  # fmt: skip


def checked_precision(precision: Any, options: CompileOptions) -> str:
    """Of a step's products.

    Raises:
        UsageError: it is none that a step has, or the options say another one, or passes that leave it out.
    """
    if precision not in (FULL, HALF):
        hint = "train so, export, and have paraxc decide on a lower one" if precision in PRECISIONS else None
        raise UsageError("no precision of a training", where="precision", expected=f"{FULL} or {HALF}",
                         found=repr(precision)[:60], hint=hint)  # fmt: skip
    if options.precision != FULL:
        raise UsageError("the compiler's, not the training's", where="options.precision", expected=FULL,
                         found=options.precision, hint=f"parax.Trainer(precision={HALF!r})")  # fmt: skip
    if precision == HALF and options.strict_fp:
        raise UsageError("rounds the model's own products", where="precision and strict_fp",
                         expected=f"precision {FULL}, or not strict", found=HALF)  # fmt: skip
    if precision == HALF and options.passes is not None:
        raise UsageError("passes are given, which decide on it", where="precision and passes", found=HALF,
                         expected=f"precision {FULL}, or the passes of a level")  # fmt: skip
    return str(precision)
