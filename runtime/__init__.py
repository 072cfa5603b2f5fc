"""Loads and runs plans: instances, executors, schedulers. Must never import the compiler, onnx or networkx.

Re-exports only, each loaded when first used, because `load` wants to start work before it imports numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loading import load as load
    from .manifest import TensorSpec as TensorSpec
    from .plan import Plan as Plan

_HOMES = {"Plan": ".plan", "TensorSpec": ".manifest", "load": ".loading"}
__all__ = ["Plan", "TensorSpec", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
