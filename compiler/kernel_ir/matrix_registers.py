"""What matrix registers there are and what multiplies them: Intel AMX, of which each fact here is.

Intel's Software Developer's Manual, volume 2: LDTILECFG, TDPBF16PS, TDPBSSD, TDPBUSD.
"""

from __future__ import annotations

from typing import NamedTuple

REGISTERS, MOST_ROWS, MOST_NBYTES = 8, 16, 64
ELEMENT_NBYTES = 4  # of sums, pairs and quads


class ProductKind(NamedTuple):
    """An instruction that multiplies: LLVM's name of it, the feature it needs."""

    instruction: str
    feature: str


KINDS = {
    "bf16": ProductKind("tdpbf16ps", "amx-bf16"),
    "i8i8": ProductKind("tdpbssd", "amx-int8"),
    "u8i8": ProductKind("tdpbusd", "amx-int8"),
}
"""By what A and B hold."""


class Shape(NamedTuple):
    """Of a register: rows, and bytes of each."""

    rows: int
    nbytes: int
