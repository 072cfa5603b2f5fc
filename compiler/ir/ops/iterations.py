"""How an operator repeats its body, in numbers of its operands, its results and the body's: what native loops need.

Owns no operator: Loop and Scan say it of themselves (`Control.iterations`). Source: ONNX's Loop and Scan.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slices:
    """Along which axis a tensor has a slice for each iteration, from 0, and whether the last iteration's comes first. A
    negative axis counts from the tensor's last."""

    axis: int = 0
    is_backward: bool = False

    def axis_of(self, rank: int) -> int:
        """The axis of a tensor of `rank` axes, from 0."""
        return self.axis % rank


@dataclass(frozen=True)
class Iterations:
    """What an operator's operands and results are to its iterations.

    Operands: (trip count, condition)?, states, scanned operands, captured values. Body inputs: (iteration, condition)?,
    states, slices, captured values. Body results: condition?, states, slices. Results: states, stacked slices.

    Attributes:
        is_counted: whether the two in brackets are there: a condition may end the iterations, and the trip count is a
            value. Else there is one for each slice of the scanned operands.
        n_states: how many values each iteration hands to the next. scanned, stacked: of operands, of results.
    """

    is_counted: bool
    n_states: int
    scanned: tuple[Slices, ...] = ()
    stacked: tuple[Slices, ...] = ()

    @property
    def n_ahead(self) -> int:
        """Operands, and the body's inputs, before the states."""
        return 2 if self.is_counted else 0

    @property
    def n_results_ahead(self) -> int:
        """The body's results before the states."""
        return 1 if self.is_counted else 0
