"""Which passes run, in which order, at each optimisation level: explicit lists, no discovery."""

from __future__ import annotations

from ..ir.graph import Graph
from .base import Pass, Pipeline


def pipeline(opt_level: int = 2) -> Pipeline:
    """The passes of an optimisation level (0 to 3)."""
    steps: list[Pass | list[Pass]] = []
    return Pipeline(steps)


__all__ = ["Graph", "pipeline"]
