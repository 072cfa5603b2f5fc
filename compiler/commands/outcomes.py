"""How a comparison of one output came out, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..compare import Difference


def shown_result(d: Difference) -> str:
    """How one output came out, in words."""
    if d.passed:
        return "same" if d.status == "same" else "same, but for the order of equal scores"
    return f"OTHER ORDER {d.problem}" if d.status == "other order" else f"DIFFERS {d.problem}"
