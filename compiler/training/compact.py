"""What a step gives of a parameter in the place of its gradient: a few tensors that the update makes it of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.graph import Value
from ..ir.types import DType


@dataclass(frozen=True)
class PartOutput:
    """Name of the output that is a part, and what it is of one piece of a batch."""

    output: str
    shape: tuple[int, ...]
    dtype: DType


Parts = Mapping[str, PartOutput]
"""Name of a part → its output."""


def parts_of(name: str, values: Mapping[str, Value]) -> Parts:
    """The parts of a parameter, by outputs whose names are derived from its own; all of known sizes."""
    return {part: PartOutput(f"{name}.gradient.{part}", known_shape(v), v.tensor.dtype) for part, v in values.items()}


def known_shape(v: Value) -> tuple[int, ...]:
    """Of a tensor of known sizes."""
    dims = tuple(d for d in v.tensor.dims if isinstance(d, int))
    assert len(dims) == v.tensor.rank
    return dims


__all__ = ["PartOutput", "Parts", "known_shape", "parts_of"]
