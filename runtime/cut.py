"""How one request is cut along the batch: which rows make a piece, and where a piece's tensors lie.

Where the rows of a tensor are contiguous, a piece points straight into it; where the batch axis lies inside, the piece
is a copy, and results are copied back. Knows shapes and addresses; no threads.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from math import prod

import numpy as np

from .bindings import Binding, Signature
from .manifest import Batch, Manifest, NativeStep
from .memory import address_of


def row_ranges(rows: int, n_instances: int, micro_batch: int | None) -> list[tuple[int, int]]:
    """(first row, rows) of each piece: as many pieces for every instance, each of at most `micro_batch` rows.

    The larger ones come first: the shorter the last pieces are, the less does an instance wait for another at the end.
    """
    share = -(-rows // n_instances)
    n_pieces = n_instances * (-(-share // micro_batch) if micro_batch else 1)
    least, n_larger = divmod(rows, n_pieces)
    return _in_order([least + 1] * n_larger + [least] * ((n_pieces - n_larger) if least else 0))


def with_short_end(ranges: Sequence[tuple[int, int]], n_last: int, least: int) -> list[tuple[int, int]]:
    """The same rows with the last few pieces halved, as far as halves have `least` rows.

    For a request that instances do not begin together, as others are at work: they do not end together either, but for
    one piece's time.
    """
    sizes = [rows for _, rows in ranges]
    for size in sizes[-n_last:]:
        if size >= 2 * least:
            sizes.remove(size)
            sizes += [size - size // 2, size // 2]
    return _in_order(sorted(sizes, reverse=True))


def _in_order(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(sizes))
    return [(end - size, size) for end, size in zip(ends, sizes, strict=True)]


class Cut:
    """One way to cut requests of one binding; reused by every request of that shape.

    Attributes:
        ranges: (first row, rows) of each piece. pieces: the dimensions of each.
        memory: bytes of arena, and of scratch memory per thread, that the largest piece needs.
    """

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        step: NativeStep,
        signature: Signature,
        binding: Binding,
        ranges: list[tuple[int, int]],
    ) -> None:
        """Work out the pieces' dimensions and offsets."""
        self.ranges = ranges
        by_rows = {n: signature.from_values({**binding.values, batch.symbol: n}) for n in {rows for _, rows in ranges}}
        self.pieces = [by_rows[rows] for _, rows in ranges]
        self.memory = (
            max(piece.arena_nbytes for piece in by_rows.values()),
            max(piece.scratch_nbytes for piece in by_rows.values()),
        )
        self._n_io = len(step.inputs) + len(step.outputs)
        specs = {spec.name: spec for spec in (*manifest.inputs, *manifest.outputs)}
        self._axes: list[int | None] = [batch.axes.get(name) for name in (*step.inputs, *step.outputs)]
        self._offsets: list[list[int] | None] = []
        for name, axis in zip((*step.inputs, *step.outputs), self._axes, strict=True):
            shape = signature.shape(specs[name].dims or (), binding.values)
            if axis is None:
                self._offsets.append([0] * len(ranges))
            elif prod(shape[:axis]) == 1:
                row_nbytes = prod(shape[axis + 1 :]) * specs[name].numpy.itemsize
                self._offsets.append([first * row_nbytes for first, _ in ranges])
            else:
                self._offsets.append(None)
        self.copies = None in self._offsets

    def __len__(self) -> int:
        return len(self.ranges)

    def records(self, tensors: Sequence[np.ndarray], n_inputs: int) -> Records:
        """The native records of one request.

        Args:
            tensors: the step's inputs, then its outputs, whole.
            n_inputs: how many of them are inputs.
        """
        made = Records()
        columns = []
        for slot, (tensor, offsets) in enumerate(zip(tensors, self._offsets, strict=True)):
            if offsets is None:
                columns.append(self._copies(slot, tensor, slot >= n_inputs, made))
            else:
                base = address_of(tensor)
                columns.append([base + offset for offset in offsets])
        made.io = array("Q", [address for row in zip(*columns, strict=True) for address in row])
        io_address, step = made.io.buffer_info()[0], 8 * self._n_io
        words = [w for i, p in enumerate(self.pieces) for w in (io_address + i * step, p.dims_address)]
        made.pieces = array("Q", words)
        return made

    def _copies(self, slot: int, tensor: np.ndarray, is_output: bool, made: Records) -> list[int]:
        """Contiguous memory of its own for each piece of a tensor."""
        axis = self._axes[slot]
        assert axis is not None
        addresses = []
        for first, rows in self.ranges:
            where = (*(slice(None) for _ in range(axis)), slice(first, first + rows))
            part = np.empty_like(tensor[where], order="C") if is_output else np.ascontiguousarray(tensor[where])
            made.keep.append(part)
            if is_output:
                made.results.append((tensor[where], part))
            addresses.append(address_of(part))
        return addresses


class Records:
    """One request's pieces as native code reads them, and the memory they point to.

    In a pipeline (pipeline_cut.py) a piece is a flow, which consists of pieces itself.
    """

    __slots__ = ("flow_pieces", "flows", "io", "keep", "pieces", "results")

    def __init__(self) -> None:
        self.io = self.pieces = self.flows = self.flow_pieces = array("Q")
        self.keep: list[np.ndarray] = []
        self.results: list[tuple[np.ndarray, np.ndarray]] = []

    def finish(self) -> None:
        """Copy back the results that were not written in place."""
        for whole, part in self.results:
            whole[...] = part
