"""How a pipeline gets one request: the rows of each instance's share, cut into micro-batches that flow through stages.

Owns the records that the native loop of a stage reads (compiler/backend/link_schedule.py says how). Knows shapes and
addresses; no threads.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np

from .bindings import Binding, Signature
from .cut import Cut, Records
from .handoff import Piece
from .manifest import Batch, Manifest, NativeStep

_FLOW = 16  # bytes: the number of pieces, and their address


def micro_batch_ranges(first: int, rows: int, n: int) -> list[tuple[int, int]]:
    """(first row, rows) of `n` micro-batches of ⌈rows / n⌉ or ⌊rows / n⌋ rows, the larger ones first; none is empty."""
    small, n_large = divmod(rows, n)
    ranges = []
    for i in range(min(n, rows)):
        size = small + (i < n_large)
        ranges.append((first, size))
        first += size
    return ranges


class PipelineCut(Cut):
    """A request's rows as flows, one per instance, each of several micro-batches."""

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        step: NativeStep,
        signature: Signature,
        binding: Binding,
        flows: Sequence[Sequence[tuple[int, int]]],
    ) -> None:
        """Work out the dimensions and offsets of all micro-batches.

        Args:
            flows: the ranges of each flow, of which the first is its largest.
        """
        super().__init__(manifest, batch, step, signature, binding, [piece for flow in flows for piece in flow])
        self._counts = [len(flow) for flow in flows]

    def __len__(self) -> int:
        return len(self._counts)

    def records(self, tensors: Sequence[np.ndarray], n_inputs: int) -> Records:
        """The native records of one request: a piece per flow, that points to the flow and its largest dimensions."""
        made = super().records(tensors, n_inputs)
        made.flow_pieces = made.pieces
        pieces, size = made.flow_pieces.buffer_info()[0], ctypes.sizeof(Piece)
        firsts = [sum(self._counts[:i]) for i in range(len(self._counts))]
        flows = [w for first, n in zip(firsts, self._counts, strict=True) for w in (n, pieces + first * size)]
        made.flows = array("Q", flows)
        address = made.flows.buffer_info()[0]
        words = [w for i, first in enumerate(firsts) for w in (address + i * _FLOW, self.pieces[first].dims_address)]
        made.pieces = array("Q", words)
        return made
