"""Hands requests to instances: whole on one, or cut along the batch and worked off by several.

Owns the instances and who holds them. A request takes the instances that are free, up to one per `min_rows` rows, and
waits for one if none is. Knows shapes as bindings; knows nothing of names or of what callers hand in.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

import numpy as np

from ..errors import InvalidInput, UsageError
from .bindings import Binding, Signature
from .instance import Instance
from .lanes import Queue
from .manifest import Batch, Manifest, NativeStep
from .memory import address_of
from .native import MachineCode

Cut = list[tuple[int, int]]  # (first row, rows) of each piece
_QUEUE_WORDS = (Queue.status.offset + 8) // 8


class Executor:
    """The instances of one session.

    Attributes:
        free: instances that no request holds; `pop` and `append` on it are atomic.
        n_waiting: requests waiting for one; whoever frees an instance calls `wake` if there are any.
    """

    def __init__(
        self,
        manifest: Manifest,
        code: MachineCode | None,
        weights: int,
        core_groups: Sequence[Sequence[int]],
        micro_batch: int | None,
    ) -> None:
        """Start one instance per group of cores."""
        self.manifest = manifest
        self.code = code
        self.micro_batch = micro_batch
        self.signature = Signature(manifest, max(map(len, core_groups)))
        native = [step for step in manifest.steps if isinstance(step, NativeStep)]
        n_io = max((len(s.inputs) + len(s.outputs) for s in native), default=0)
        self.instances = [Instance(code, weights, cores, n_io) for cores in core_groups] if code else []
        self.n_instances = len(core_groups)
        self.free: list[Instance] = list(reversed(self.instances))
        self.n_waiting = 0
        self._freed = threading.Condition()
        self.closed = ""
        self._direct = direct_step(manifest)

    def may_cut(self, binding: Binding) -> bool:
        """Whether requests of this binding are worked off in several pieces."""
        batch = self.manifest.batch
        if batch is None or self._direct is None or self.code is None or binding.rows < 2:
            return False
        return len(self._cut(binding, self._n_useful(binding, batch))) > 1

    def _n_useful(self, binding: Binding, batch: Batch) -> int:
        return max(1, min(self.n_instances, binding.rows // batch.min_rows))

    def _cut(self, binding: Binding, n_instances: int) -> Cut:
        """(first row, rows) of each piece: as many for every instance, each of at most `micro_batch` rows."""
        if n_instances not in binding.cuts:
            share = -(-binding.rows // n_instances)
            n_pieces = n_instances * (-(-share // self.micro_batch) if self.micro_batch else 1)
            edges = [i * binding.rows // n_pieces for i in range(n_pieces + 1)]
            binding.cuts[n_instances] = [(a, b - a) for a, b in zip(edges, edges[1:], strict=False) if b > a]
        return binding.cuts[n_instances]

    def take(self, n: int = 1) -> list[Instance]:
        """Between 1 and n free instances, waiting for the first; leaves some to requests that wait already.

        Raises:
            UsageError: the session is closed.
        """
        taken = [self.take_one()]
        n = min(n, -(-(len(self.free) + 1) // (1 + self.n_waiting)))
        while len(taken) < n:
            try:
                taken.append(self.free.pop())
            except IndexError:
                break
        return taken

    def take_one(self) -> Instance:
        """A free instance; waits for it.

        Raises:
            UsageError: the session is closed.
        """
        with self._freed:
            self.n_waiting += 1
            try:
                while True:
                    if self.closed:
                        raise UsageError(self.closed)
                    try:
                        return self.free.pop()
                    except IndexError:
                        self._freed.wait()
            finally:
                self.n_waiting -= 1

    def give(self, instances: Sequence[Instance]) -> None:
        """Return instances."""
        self.free.extend(instances)
        if self.n_waiting:
            self.wake()

    def wake(self) -> None:
        """Tell waiting requests that an instance is free."""
        with self._freed:
            self._freed.notify_all()

    def run_cut(self, binding: Binding, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run one request in pieces over the free instances; results go straight into the outputs' rows.

        Raises:
            InvalidInput: native code met a value out of range.
        """
        batch, code = self.manifest.batch, self.code
        assert batch is not None and code is not None and self._direct is not None
        instances = self.take(self._n_useful(binding, batch))
        try:
            cut = self._cut(binding, len(instances))
            pieces = [self._piece(binding, batch, rows) for _, rows in cut]
            request = _Pieces(self.manifest, batch, self._direct, inputs, outputs, cut)
            for instance in instances:
                instance.reserve(max(piece.arena_nbytes or 0 for piece in pieces))
                instance.binding = None
            for instance in instances[1:]:
                instance.ready_to_serve()
            records = array("Q")
            for i, piece in enumerate(pieces):
                records.extend((request.io_address(i), piece.dims_address))
            queue = array("Q", [0] * _QUEUE_WORDS)
            queue[1:4] = array("Q", (len(pieces), records.buffer_info()[0], code.segments[self._direct.segment]))
            lanes = array("Q", [instance.lane_address for instance in instances])
            status = code.crew(lanes.buffer_info()[0], len(instances), queue.buffer_info()[0])
            if status:
                for instance in instances:
                    instance.clear_failure()
                raise self.failure(status)
            request.finish(outputs)
        finally:
            self.give(instances)

    def _piece(self, binding: Binding, batch: Batch, rows: int) -> Binding:
        if rows not in binding.pieces:
            binding.pieces[rows] = self.signature.from_values({**binding.values, batch.symbol: rows})
        return binding.pieces[rows]

    def failure(self, status: int) -> InvalidInput:
        """The error for a nonzero answer of native code."""
        text = self.manifest.errors.get(status, "a value is out of range")
        return InvalidInput(text, where=f"plan {self.manifest.name!r}", found=f"error site {status}")

    def close(self, reason: str = "the session is closed") -> None:
        """Wait for running requests, then end the threads; waiting requests fail."""
        with self._freed:
            if self.closed:
                return
            self.closed = reason
            self._freed.notify_all()
        for _ in self.instances:
            self._take_for_good().stop()

    def abandon(self, reason: str) -> None:
        """Refuse all requests from now on and touch no thread: they are not ours any more."""
        self._freed = threading.Condition()
        self.closed = reason
        self.free.clear()
        self.n_waiting = 0

    def _take_for_good(self) -> Instance:
        with self._freed:
            self.n_waiting += 1
            while not self.free:
                self._freed.wait()
            self.n_waiting -= 1
            return self.free.pop()


def direct_step(manifest: Manifest) -> NativeStep | None:
    """The only step, if it is native and reads and writes nothing but the plan's inputs and outputs."""
    step = manifest.steps[0] if len(manifest.steps) == 1 else None
    if not isinstance(step, NativeStep):
        return None
    names_in, names_out = {t.name for t in manifest.inputs}, {t.name for t in manifest.outputs}
    fits = set(step.inputs) <= names_in and set(step.outputs) == names_out and not names_in & names_out
    return step if fits and len(step.outputs) == len(names_out) else None


class _Pieces:
    """Pointers of every piece of one request.

    Where the rows of a tensor are contiguous, a piece points into it; where the batch axis lies inside, the piece is
    a copy, and `finish` copies results back.
    """

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        step: NativeStep,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        cut: Cut,
    ) -> None:
        self._keep: list[np.ndarray] = []
        self._results: list[tuple[int, tuple[slice, ...], np.ndarray]] = []
        self._n_io = len(step.inputs) + len(step.outputs)
        places_in = {spec.name: i for i, spec in enumerate(manifest.inputs)}
        places_out = {spec.name: i for i, spec in enumerate(manifest.outputs)}
        columns = [self._column(inputs[places_in[n]], batch.axes.get(n), cut, None) for n in step.inputs]
        columns += [self._column(outputs[places_out[n]], batch.axes[n], cut, places_out[n]) for n in step.outputs]
        self._io = array("Q", [address for row in zip(*columns, strict=True) for address in row])

    def _column(self, tensor: np.ndarray, axis: int | None, cut: Cut, output: int | None) -> list[int]:
        """One tensor's address for each piece."""
        base = address_of(tensor)
        if axis is None:
            return [base] * len(cut)
        if all(length == 1 for length in tensor.shape[:axis]):
            row_nbytes = tensor.nbytes // tensor.shape[axis]
            return [base + first * row_nbytes for first, _ in cut]
        addresses = []
        for first, rows in cut:
            where = (*(slice(None) for _ in range(axis)), slice(first, first + rows))
            part = np.ascontiguousarray(tensor[where]) if output is None else np.empty_like(tensor[where], order="C")
            self._keep.append(part)
            if output is not None:
                self._results.append((output, where, part))
            addresses.append(address_of(part))
        return addresses

    def io_address(self, piece: int) -> int:
        """Where a piece's pointers lie."""
        return self._io.buffer_info()[0] + piece * self._n_io * 8

    def finish(self, outputs: Sequence[np.ndarray]) -> None:
        """Copy back the results that were not written in place."""
        for output, where, part in self._results:
            outputs[output][where] = part
