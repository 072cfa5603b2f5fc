"""Native functions that run several segments, as link_programs.py writes them: what is repeated, what is chosen.

Values go by their names, which are unique in a plan. Owns the form only; which operators become such functions is
decided before (`passes/dataflow/native_control.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ir.ops.iterations import Iterations
from ..ir.types import Dim, TensorType


@dataclass(frozen=True)
class Kernels:
    """All kernels of a segment, by its number."""

    segment: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Body:
    """Stages that run one after the other. `inputs` are called so inside; captured values are the last of them."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Branches:
    """The first body where `condition` holds, else the second; both are given the `captured` values."""

    condition: str
    captured: tuple[str, ...]
    outputs: tuple[str | None, ...]
    bodies: tuple[Body, Body]


@dataclass(frozen=True)
class Repetition:
    """A body, once for each iteration.

    Attributes:
        how: what the operands are to the iterations. trips: at most so many; None where `is_led`.
        condition: a value that must hold for the first iteration; None: it does.
        operands: states, scanned operands, captured values. outputs: None where nobody reads them.
        is_led: whoever calls says where the iterations begin and end, and is told where they ended.
    """

    how: Iterations
    trips: Dim | None
    condition: str | None
    operands: tuple[str, ...]
    outputs: tuple[str | None, ...]
    body: Body
    is_led: bool = False


Stage: TypeAlias = "Kernels | Branches | Repetition"


@dataclass(frozen=True)
class Program:
    """A native function of its own.

    Attributes:
        number: of its entry, behind those of the segments. inputs, outputs: the caller's pointers, in order.
        types: of all values. constants: where those among them lie in the weights, in bytes.
        true: where a condition that holds lies there.
        is_alone: whether one core runs it, as its kernels take less than it takes cores to meet.
    """

    number: int
    root: Branches | Repetition
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, int]
    true: int
    is_alone: bool

    @property
    def is_led(self) -> bool:
        """See Repetition. The caller's first pointer is then to four words: begin, end; where it ended, whether the
        condition still holds."""
        return isinstance(self.root, Repetition) and self.root.is_led

    def segments(self) -> list[int]:
        """The numbers of the segments whose kernels it runs."""
        return [stage.segment for stage in _kernels((self.root,))]


def _kernels(stages: Sequence[Stage]) -> Iterator[Kernels]:
    for stage in stages:
        if isinstance(stage, Kernels):
            yield stage
        else:
            bodies = stage.bodies if isinstance(stage, Branches) else (stage.body,)
            for body in bodies:
                yield from _kernels(body.stages)
