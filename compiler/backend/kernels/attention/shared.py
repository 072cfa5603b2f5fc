"""What both ways to compute attention know: sizes and operands of a call, and numbers of its softmax."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from ....ir.types import Dim, TensorType
from ....kernel_ir.builder import Builder, KValue
from ...lowering import LowerContext

LOWEST = float(np.finfo(np.float32).min)  # of a finite number: where all of a block is -inf, nothing becomes NaN yet
LOG2E = math.log2(math.e)  # powers of two are cheaper than of e


class Sizes(Protocol):
    """Keys, numbers of a head, and columns of its result."""

    @property
    def keys(self) -> Dim: ...

    @property
    def depth(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def lanes(self) -> int: ...


class Kernel(Protocol):
    """A kernel that is being written."""

    ctx: LowerContext
    k: Builder
    q: TensorType
    kt: TensorType
    v: TensorType
    y: TensorType
    mask: TensorType | None
    scale: float

    @property
    def h(self) -> Sizes: ...

    def base(self, at: list[KValue], t: TensorType) -> KValue:
        """Offset of a head in an operand."""
        ...

    def mask_at(self, at: list[KValue], row: KValue, column: KValue, on: KValue | None) -> KValue:
        """The mask's elements for one query and a vector of keys."""
        ...


__all__ = ["LOG2E", "LOWEST", "Kernel", "Sizes"]
