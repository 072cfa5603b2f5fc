"""Compact gradients: where each piece of a batch puts its own, for the update to make the sum of.

The pieces lie one behind the other, in an order that does not depend on who was first, so that nothing is exchanged:
whoever updates reads them where they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....errors import ResourceLimit
from ..program import TrainingProgram

Arrays = Mapping[str, np.ndarray]


class CompactGradients:
    """Those of all groups that have one.

    Attributes:
        inputs: of the update, by name. nbytes: of them.
    """

    def __init__(self, program: TrainingProgram, n_pieces: int) -> None:
        """Zeros. Raises ResourceLimit: no memory."""
        self.inputs: dict[str, np.ndarray] = {}
        self._outputs: list[dict[str, np.ndarray]] = [{} for _ in range(n_pieces)]
        for group, of in program.compact.items():
            for name, part in of.parts.items():
                try:
                    pieces: np.ndarray = np.zeros((n_pieces, *part.shape), part.dtype)
                except MemoryError as error:
                    raise ResourceLimit("no memory for gradients", found=f"{n_pieces * part.nbytes} bytes") from error
                self.inputs[f"{group}.{name}"] = pieces.reshape(-1, *part.shape[1:])
                for outputs, own in zip(self._outputs, pieces, strict=True):
                    outputs[part.output] = own

    @property
    def nbytes(self) -> int:
        """Of all pieces."""
        return sum(array.nbytes for array in self.inputs.values())

    def outputs(self, piece: int) -> Arrays:
        """Where a piece's go, by the names of the step's outputs."""
        return self._outputs[piece]
