"""What operations on constants give while a kernel is built; None where nothing is to be said before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "min": min, "max": max,
    "udiv": lambda a, b: a // b if b else None, "urem": lambda a, b: a % b if b else None,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "shl": lambda a, b: a << b,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}
