"""State of a plan: what one call leaves for the next, in memory that is never copied. Names only; knows no graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class State:
    """An input and an output, by their names, that are one memory: what a call leaves is what the next one finds.

    Attributes:
        axis: of the model's tensor, along which the output is longer than the input; it is the first of the graph's.
            None: both have one shape.
    """

    input: str
    output: str
    axis: int | None = None


__all__ = ["State"]
