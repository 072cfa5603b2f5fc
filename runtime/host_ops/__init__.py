"""Operators whose result shapes depend on values, or that work on strings or trees: Python and numpy, step by step."""

from . import moving, reduce, refusing, select, shaping, trees
from .base import HOST_OPS, HostOp, host_op, prepared_host_op

__all__ = ["HOST_OPS", "HostOp", "host_op", "moving", "prepared_host_op", "reduce", "refusing", "select", "shaping",
           "trees"]  # fmt: skip
