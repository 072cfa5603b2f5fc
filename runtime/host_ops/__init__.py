"""Operators whose result shapes depend on values, or that work on strings: Python and numpy, step by step."""

from . import casting, labels, maps, moving, random, reduce, refusing, select, sequences, shaping, strings
from .base import HOST_OPS, HostOp, host_op

__all__ = [
    "HOST_OPS", "HostOp", "casting", "host_op", "labels", "maps", "moving", "random", "reduce", "refusing", "select",
    "sequences", "shaping", "strings",
]  # fmt: skip
