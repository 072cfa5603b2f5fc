"""Loads and runs plans: instances, executors, schedulers. Must never import the compiler, onnx or networkx.

Re-exports only, each loaded when first used, because `load` wants to start work before it imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_attributes

if TYPE_CHECKING:
    from .loading import load as load
    from .manifest import TensorSpec as TensorSpec
    from .plan import Plan as Plan

_HOMES = {"Plan": ".plan", "TensorSpec": ".manifest", "load": ".loading"}
__all__ = ["Plan", "TensorSpec", "load"]

__getattr__ = lazy_attributes(__name__, _HOMES)
