"""Hands requests to instances: whole on one, or cut along the batch and worked off by several.

Owns the instances and who holds them. A request takes the instances that are free, up to one per `min_rows` rows, and
waits for one if none is. Knows shapes as bindings; knows nothing of names or of what callers hand in.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import InvalidInput, UsageError
from .bindings import Binding, Signature
from .brief import timed_call
from .cut import Cut, row_ranges
from .flow import FlowCut, micro_batch_ranges
from .instance import Instance
from .late_starts import nodes_of, start_delays
from .manifest import Batch, Delay, Manifest, NativeStep, Scheduled
from .memory import address_of
from .native import MachineCode

PATIENCE_SECONDS = 1e-3
"""Of a request that waits while others are brief: to wake a thread for each would take longer than they do."""
_MOST_PAUSE_SECONDS = 0.05
_MAX_ARENA_NBYTES = 256 << 20  # per instance, unless one row needs more: far beyond any cache


class Executor:
    """The instances of one session.

    Attributes:
        is_direct: whether the plan is one native segment that reads and writes only the plan's inputs and outputs.
        in_order, out_order: which of them the segment wants first, second, …
        free: instances that no request holds; `pop` and `append` on it are atomic.
        n_waiting: requests waiting for one; whoever frees an instance calls `hand_over` if there are any, so that the
            oldest gets it, and not the thread that freed it and comes again.
    """

    def __init__(
        self,
        manifest: Manifest,
        code: MachineCode | None,
        weights: int,
        core_groups: Sequence[Sequence[int]],
        micro_batch: int | None,
        pipeline: Scheduled | None = None,
        delay: Delay | None = None,
    ) -> None:
        """Make one instance per group of cores. `start` must follow.

        Args:
            delay: of the starts of instances that share a request; the code can wait.
            pipeline: the manifest's pipelined program, where requests of several rows shall take it.
        """
        self.manifest = manifest
        self.code = code
        self.micro_batch = micro_batch
        self.signature = Signature(manifest)
        n_io = max((len(s.inputs) + len(s.outputs) for s in manifest.native_steps()), default=0)
        self.instances = [Instance(code, weights, cores, n_io) for cores in core_groups] if code else []
        self.n_instances, self.n_cores_each = len(core_groups), len(core_groups[0])
        self.free: list[Instance] = list(reversed(self.instances))
        self.n_waiting = 0
        self._lock = threading.Lock()
        self._waiting: deque[_Turn] = deque()
        self.closed = ""
        self._direct = pipeline.step if pipeline else direct_step(manifest)
        self._micro_batches = pipeline.micro_batches if pipeline else None
        self._micro_rows = pipeline.micro_rows if pipeline else None
        self._cut_signature = Signature(manifest.rescheduled()) if pipeline else self.signature
        self._delay = delay
        whole = direct_step(manifest)
        names_in, names_out = [t.name for t in manifest.inputs], [t.name for t in manifest.outputs]
        self.segment = whole.segment if whole else 0
        self.in_order = [names_in.index(name) for name in whole.inputs] if whole else []
        self.out_order = [names_out.index(name) for name in whole.outputs] if whole else []
        self.is_direct = whole is not None

    def start(self) -> None:
        """Start the instances' threads.

        Raises:
            ResourceLimit: the system gives no more threads.
        """
        for instance in self.instances:
            instance.start()

    def prepare(self, binding: Binding) -> None:
        """Leave ways to cut in a binding exactly where requests of it are cut."""
        if not self.may_cut(binding):
            binding.cuts.clear()

    def may_cut(self, binding: Binding) -> bool:
        """Whether requests of this binding are worked off in several pieces."""
        batch = self.manifest.batch
        if batch is None or self._direct is None or self.code is None or binding.rows < 2 or binding.outputs is None:
            return False
        return len(self._cut(binding, self._n_useful(binding, batch), batch, self._direct).ranges) > 1

    def _n_useful(self, binding: Binding, batch: Batch) -> int:
        return max(1, min(self.n_instances, binding.rows // batch.min_rows))

    def _cut(self, binding: Binding, n_instances: int, batch: Batch, step: NativeStep) -> Cut:
        cut = binding.cuts.get(n_instances)
        if cut is None:
            share = -(-binding.rows // n_instances)
            most = self.micro_batch or self._affordable(binding, share, batch)
            where = (self.manifest, batch, step, self._cut_signature, binding)
            if self._micro_batches is None:
                cut = Cut(*where, row_ranges(binding.rows, n_instances, most))
            else:
                n = max(self._micro_batches, -(-share // min(most, self._micro_rows or most)))
                shares = row_ranges(binding.rows, n_instances, None)
                cut = FlowCut(*where, [micro_batch_ranges(first, rows, n) for first, rows in shares])
            binding.cuts[n_instances] = cut
        return cut

    def _affordable(self, binding: Binding, rows: int, batch: Batch) -> int:
        """The most rows, up to `rows`, whose arena an instance may hold when nobody asked for a size."""
        nbytes = self._cut_signature.from_values({**binding.values, batch.symbol: rows}).arena_nbytes
        return rows if nbytes <= _MAX_ARENA_NBYTES else max(1, rows * _MAX_ARENA_NBYTES // nbytes)

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
        """A free instance; waits for it, behind those that wait already.

        Raises:
            UsageError: the session is closed.
        """
        found = self._wait(for_good=False)
        if found is None:
            raise UsageError(self.closed)
        return found

    def _wait(self, for_good: bool) -> Instance | None:
        """A free instance; None where the session is closed, unless it is taken for good."""
        with self._lock:
            if self.closed and not for_good:
                return None
            turn = _Turn(for_good)
            self._waiting.append(turn)
            self.n_waiting += 1
        self.hand_over()
        try:
            pause = PATIENCE_SECONDS
            while not turn.come.acquire(timeout=pause):  # brief calls hand nothing over, and the last leaves it free
                self.hand_over()
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        except BaseException:  # Ctrl-C: what was handed over meanwhile goes to the next
            self._leave(turn)
            raise
        return turn.instance

    def _leave(self, turn: _Turn) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                self.n_waiting -= 1
                return
        if turn.instance is not None:
            self.give([turn.instance])

    def give(self, instances: Sequence[Instance]) -> None:
        """Return instances; the one that led is taken first again, because its core is where the caller is."""
        self.free.extend(reversed(instances))
        if self.n_waiting:
            self.hand_over()

    def hand_over(self, patience: float = 0.0) -> None:
        """Give free instances to waiting requests, the oldest first.

        Args:
            patience: seconds that a request has to have waited.
        """
        with self._lock:
            while self._waiting and self.free:
                if patience and time.perf_counter() - self._waiting[0].since < patience:
                    return
                try:
                    instance = self.free.pop()
                except IndexError:  # a request that did not wait was quicker
                    return
                turn = self._waiting.popleft()
                self.n_waiting -= 1
                turn.instance = instance
                turn.come.release()

    def take_all(self) -> list[Instance]:
        """All instances, if no request holds or waits for one (a single instance is waited for); else none.

        Raises:
            UsageError: the session is closed.
        """
        if self.n_instances == 1:
            return [self.take_one()]
        held: list[Instance] = []
        if not self.n_waiting:
            while len(held) < self.n_instances and self.free:
                held += self._pop_free()
        if len(held) < self.n_instances:
            self.give(held)
            return []
        return held

    def _pop_free(self) -> list[Instance]:
        try:
            return [self.free.pop()]
        except IndexError:  # another thread was quicker
            return []

    def is_idle(self) -> bool:
        """Whether no request holds or waits for any instance."""
        return len(self.free) == self.n_instances and not self.n_waiting

    def lend(self, work: Callable[[], None]) -> bool:
        """Have other instances of the same cores work while no request runs on these; False where one does.

        Raises:
            What `work` raises.
        """
        held = self.take_all()
        if not held:
            return False
        try:
            work()
        finally:
            self.give(held)
        return True

    def run(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """One request, whole or in pieces; see `run_whole` and `run_cut`."""
        (self.run_cut if binding.cuts else self.run_whole)(binding, arrays, outputs)

    def run_whole(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """One native call on one instance, led by the calling thread.

        Args:
            arrays, outputs: in the order of the plan's inputs and outputs.

        Raises:
            InvalidInput: native code met a value out of range.
        """
        try:
            instance = self.free.pop()
        except IndexError:
            instance = self.take_one()
        try:
            if instance.binding is not binding:
                instance.bind(binding, self.segment)
            io, slot = instance.io, 0
            for i in self.in_order:
                io[slot] = address_of(arrays[i])
                slot += 1
            for i in self.out_order:
                io[slot] = address_of(outputs[i])
                slot += 1
            if binding.is_brief or binding.n_untimed:
                status = timed_call(instance, binding)
            else:
                status = instance.code.team(instance.lane)
            if status:
                instance.clear_failure()
        finally:
            self.free.append(instance)
            if self.n_waiting:
                self.hand_over(PATIENCE_SECONDS if binding.is_brief else 0.0)
        if status:
            raise self.failure(status)

    def run_cut(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run one request in pieces over the free instances; results go straight into the outputs' rows.

        Args:
            binding: of the request's shapes; `may_cut` holds.
            arrays, outputs: in the order of the plan's inputs and outputs.

        Raises:
            InvalidInput: native code met a value out of range.
        """
        tensors = [*(arrays[i] for i in self.in_order), *(outputs[i] for i in self.out_order)]
        batch, code, step = self.manifest.batch, self.code, self._direct
        assert batch is not None and code is not None and step is not None
        instances = self.take(self._n_useful(binding, batch))
        try:
            cut = self._cut(binding, len(instances), batch, step)
            records = cut.records(tensors, len(self.in_order))
            for instance in instances:
                instance.reserve(*cut.memory)
                instance.binding = None  # native code sets the lane
            for instance in instances[1:]:
                instance.ready_to_serve()
            began = self._delay_starts(instances) if self._delay is not None else 0
            queue = array("Q", (0, len(cut), records.pieces.buffer_info()[0], code.segments[step.segment], 0, began))
            lanes = array("Q", [instance.lane_address for instance in instances])
            status = code.crew(lanes.buffer_info()[0], len(instances), queue.buffer_info()[0])
            if status:
                for instance in instances:
                    instance.clear_failure()
                raise self.failure(status)
            records.finish()
        finally:
            self.give(instances)

    def _delay_starts(self, instances: Sequence[Instance]) -> int:
        """Have some of them begin later; the monotonic clock's nanoseconds from which they count."""
        assert self._delay is not None
        nodes = nodes_of([instance.cores[0] for instance in instances])
        for instance, nanoseconds in zip(instances, start_delays(nodes, self._delay), strict=True):
            instance.begin_after(nanoseconds)
        return time.monotonic_ns()

    def failure(self, status: int) -> InvalidInput:
        """The error for a nonzero answer of native code."""
        text = self.manifest.errors.get(status, "a value is out of range")
        return InvalidInput(text, where=f"plan {self.manifest.name!r}", found=f"error site {status}")

    def close(self, reason: str = "the session is closed") -> None:
        """Wait for running requests, then end the threads; waiting requests fail."""
        with self._lock:
            if self.closed:
                return
            self.closed = reason
            refused = [turn for turn in self._waiting if not turn.for_good]
            self._waiting = deque(turn for turn in self._waiting if turn.for_good)
            self.n_waiting = len(self._waiting)
        for turn in refused:
            turn.come.release()
        for _ in self.instances:
            instance = self._wait(for_good=True)
            assert instance is not None
            instance.stop()

    def abandon(self, reason: str) -> None:
        """Refuse all requests from now on and touch no thread: they are not ours any more."""
        self._lock = threading.Lock()
        self._waiting = deque()
        self.closed = reason
        self.free.clear()
        self.n_waiting = 0


class _Turn:
    """A request that waits for an instance."""

    __slots__ = ("come", "for_good", "instance", "since")

    def __init__(self, for_good: bool) -> None:
        self.for_good, self.since = for_good, time.perf_counter()
        self.instance: Instance | None = None
        self.come = threading.Lock()
        self.come.acquire()


def direct_step(manifest: Manifest) -> NativeStep | None:
    """The only step, if it is native and reads and writes nothing but the plan's inputs and outputs."""
    step = manifest.steps[0] if len(manifest.steps) == 1 else None
    if not isinstance(step, NativeStep):
        return None
    names_in, names_out = {t.name for t in manifest.inputs}, {t.name for t in manifest.outputs}
    fits = set(step.inputs) <= names_in and set(step.outputs) == names_out and not names_in & names_out
    return step if fits and len(step.outputs) == len(names_out) else None
