"""Operators whose result shapes depend on values, or that work on strings: Python and numpy, step by step."""

from . import labels, moving, random, reduce, refusing, select, shaping
from .base import HOST_OPS, HostOp, host_op

__all__ = ["HOST_OPS", "HostOp", "host_op", "labels", "moving", "random", "reduce", "refusing", "select", "shaping"]
