"""Matrix registers: eight of up to 16 rows of up to 64 bytes each, and products of them that an instruction adds.

Owns how these operations are appended to a function; `matrix_registers` has what there is. Registers have numbers, no
names: what they hold is the core's state between `shape` and `release`, which stand in one function, with calls of
others not between them. C [M][N] of 4 bytes gains A [M][K] · B [K][N], where an element of A and B is 4 bytes, too: a
pair of bf16 or four whole numbers, whose products with those of the other one are added to one sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .builder import Builder, KValue
from .matrix_registers import REGISTERS, Shape


def shape(k: Builder, shapes: Sequence[Shape]) -> None:
    """Give registers 0, 1, … their shapes; all hold zeros then, and those that get none are not used."""
    full = [*shapes, *[Shape(0, 0)] * (REGISTERS - len(shapes))]
    k.op("matrix_shapes", (), None, rows=tuple(s.rows for s in full), nbytes=tuple(s.nbytes for s in full))


def release(k: Builder) -> None:
    """Give the registers back: no thread's switch has to keep them."""
    k.op("matrix_release", ())


def zero(k: Builder, number: int) -> None:
    """Fill a register with zeros."""
    k.op("matrix_zero", (), None, number=number)


def load(k: Builder, number: int, ptr: KValue, index: Any, pitch: Any) -> None:
    """Fill a register from ptr[index]; `pitch`: elements of the pointer's type from a row to the next one."""
    k.op("matrix_load", (ptr, k.index(index), k.index(pitch)), None, number=number)


def store(k: Builder, number: int, ptr: KValue, index: Any, pitch: Any) -> None:
    """Write a register to ptr[index]."""
    k.op("matrix_store", (ptr, k.index(index), k.index(pitch)), None, number=number)


def dot(k: Builder, kind: str, sums: int, a: int, b: int) -> None:
    """Add the product of two registers to a third one."""
    k.op("matrix_dot", (), None, kind=kind, sums=sums, a=a, b=b)
