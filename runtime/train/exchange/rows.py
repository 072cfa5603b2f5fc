"""Gradients of tables in rows: where each piece of a batch puts its own, for the update to add.

The pieces lie one behind the other, in an order that does not depend on who was first, so that nothing is exchanged:
whoever updates reads them where they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....errors import ResourceLimit
from ..program import TrainingProgram

Arrays = Mapping[str, np.ndarray]


class GradientRows:
    """Those of all tables.

    Attributes:
        inputs: of the update, by name. nbytes: of them.
    """

    def __init__(self, program: TrainingProgram, n_pieces: int) -> None:
        """Zeros. Raises ResourceLimit: no memory."""
        self.inputs: dict[str, np.ndarray] = {}
        self._outputs: list[dict[str, np.ndarray]] = [{} for _ in range(n_pieces)]
        for group, of in program.sparse.items():
            try:
                indices = np.zeros((n_pieces, of.count), np.int64)
                rows = np.zeros((n_pieces, of.count, of.width), np.float32)
            except MemoryError as error:
                raise ResourceLimit("no memory for gradients", found=f"{n_pieces * of.nbytes} bytes") from error
            self.inputs[f"{group}.indices"] = indices.reshape(-1)
            self.inputs[f"{group}.rows"] = rows.reshape(-1, of.width)
            for i, outputs in enumerate(self._outputs):
                outputs.update({of.indices: indices[i], of.rows: rows[i]})

    @property
    def nbytes(self) -> int:
        """Of all pieces."""
        return sum(array.nbytes for array in self.inputs.values())

    def outputs(self, piece: int) -> Arrays:
        """Where a piece's go, by the names of the step's outputs."""
        return self._outputs[piece]
