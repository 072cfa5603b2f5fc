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
from .options import CompileOptions
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
