"""Which passes run, in which order, at each optimisation level: explicit lists, no discovery."""

from __future__ import annotations

from .base import Pass, Pipeline
from .block.fuse_elementwise import FuseElementwise
from .dataflow.assign_layouts import AssignLayouts


def pipeline(opt_level: int = 2) -> Pipeline:
    """The passes of an optimisation level (0 to 3)."""
    steps: list[Pass | list[Pass]] = []
    if opt_level >= 1:
        steps += [AssignLayouts(), FuseElementwise()]
    return Pipeline(steps)
