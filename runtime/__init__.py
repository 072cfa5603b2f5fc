"""Loads and runs plans: instances, executors, schedulers. Must never import the compiler, onnx or networkx."""

from .manifest import TensorSpec
from .plan import Plan, load

__all__ = ["Plan", "TensorSpec", "load"]
