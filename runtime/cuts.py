"""Into which pieces requests of one plan are cut: by the instances that share one, and the rows that each takes at a
time. Owns that choice, and keeps the cuts in the requests' bindings; how a piece points into tensors is `cut`'s.
"""

from __future__ import annotations

from .bindings import Binding, Signature
from .cut import Cut, row_ranges, with_short_end
from .manifest import Batch, Manifest, NativeStep, Scheduled
from .pipeline_cut import PipelineCut, micro_batch_ranges

_MAX_ARENA_NBYTES = 256 << 20  # per instance, unless one row needs more: far beyond any cache


class Cuts:
    """The ways to cut requests of a plan whose rows are independent."""

    def __init__(
        self, manifest: Manifest, batch: Batch, step: NativeStep, micro_batch: int | None, pipeline: Scheduled | None
    ) -> None:
        """None is known yet.

        Args:
            step: that works off a piece. micro_batch: rows that an instance takes at a time.
            pipeline: the program whose step it is.
        """
        self._manifest, self._batch, self._micro_batch = manifest, batch, micro_batch
        self._step, self._pipeline = step, pipeline
        self._signature = Signature(manifest.rescheduled() if pipeline else manifest)

    def n_useful(self, rows: int, n_instances: int) -> int:
        """How many of some instances are worth waking for a request."""
        return max(1, min(n_instances, rows // self._batch.min_rows))

    def of(self, binding: Binding, n_instances: int, n_short: int = 0) -> Cut:
        """The pieces for so many instances.

        Args:
            n_short: of the last pieces to be halved, where others are at work now and may join later.
        """
        key = n_instances, n_short
        cut: Cut | None = binding.cuts.get(key)
        if cut is None:
            share = -(-binding.rows // n_instances)
            most = self._micro_batch or self._affordable(binding, share)
            where = (self._manifest, self._batch, self._step, self._signature, binding)
            if self._pipeline is None:
                ranges = row_ranges(binding.rows, n_instances, most)
                if n_short:
                    ranges = with_short_end(ranges, n_short, self._batch.min_rows)
                cut = Cut(*where, ranges)
            else:
                least, micro_rows = self._pipeline.micro_batches or 1, self._pipeline.micro_rows
                n = max(least, -(-share // min(most, micro_rows or most)))
                shares = row_ranges(binding.rows, n_instances, None)
                cut = PipelineCut(*where, [micro_batch_ranges(first, rows, n) for first, rows in shares])
            binding.cuts[key] = cut
        return cut

    def _affordable(self, binding: Binding, rows: int) -> int:
        """The most rows, up to `rows`, whose arena an instance may hold when nobody asked for a size."""
        nbytes = self._signature.from_values({**binding.values, self._batch.symbol: rows}).arena_nbytes
        return rows if nbytes <= _MAX_ARENA_NBYTES else max(1, rows * _MAX_ARENA_NBYTES // nbytes)
