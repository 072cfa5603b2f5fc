"""Hands requests to instances: whole on one, or cut along the batch and worked off by several.

Owns the instances and who holds them. A request takes the instances that are free, up to one per `min_rows` rows, and
waits for one if none is; while it is worked off, others that are free join it, and leave it for requests that wait
(crews.py). Knows shapes as bindings; knows nothing of names or of what callers hand in.

The exception of a signal's handler (Ctrl-C) comes after any call, at any function's begin, and loses nothing: whoever
takes instances hands in a list that its `finally` gives back (`free.extend`, before any other call), and an instance
goes from one list to another in one call of C.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import InvalidInput, UsageError
from .bindings import Binding, Signature
from .brief import timed_call
from .crews import FIRST_LOOK, LAST_LOOK, Crew, Crews
from .cuts import Cuts
from .delayed_start import begin_late
from .handoff import AGAIN, UNFINISHED
from .instance import Instance
from .manifest import Delay, Manifest, NativeStep, Scheduled
from .memory import address_of
from .native import MachineCode
from .turns import Turn, move_one

PATIENCE_SECONDS = 1e-3
"""Of a request that waits while others are brief: to wake a thread for each would take longer than they do."""
_MOST_PAUSE_SECONDS = 0.05


class Executor:
    """The instances of one session.

    Attributes:
        is_direct: whether the plan is one native segment that reads and writes only the plan's inputs and outputs.
        in_order, out_order: which of them the segment wants first, second, …
        free: instances that no request holds; `pop`, `append` and `extend` on it are atomic. Whoever frees an instance
            calls `hand_over`, so that the oldest request that waits gets it, and not the thread that freed it and comes
            again.
        popped: an endless iterator that takes one of them; IndexError where none is free.
        crews: requests that several of them work off.
        waiting: the requests that wait for one.
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
        n_io = manifest.most_pointers()
        self.instances = [Instance(code, weights, cores, n_io, self.hand_over) for cores in core_groups] if code else []
        self.n_instances, self.n_cores_each = len(core_groups), len(core_groups[0])
        self.free: list[Instance] = list(reversed(self.instances))
        self.crews = Crews(code, self.free)
        self.popped = iter(self.free.pop, None)
        self._lock = threading.Lock()
        self.waiting: deque[Turn] = deque()
        self.closed = ""
        step, batch = pipeline.step if pipeline else direct_step(manifest), manifest.batch
        self._step = step
        self._cuts = Cuts(manifest, batch, step, micro_batch, pipeline) if batch and step and code else None
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
        if self._cuts is None or binding.rows < 2 or binding.outputs is None:
            return False
        return len(self._cuts.of(binding, self._n_useful(binding.rows)).ranges) > 1

    def _n_useful(self, rows: int) -> int:
        return self._cuts.n_useful(rows, self.n_instances) if self._cuts else 1

    def take_one(self, held: list[Instance], rows: int = 1, for_good: bool = False) -> None:
        """Add a free instance to `held`, which is empty; waits for it, behind those that wait already.

        Args:
            rows: of the request. for_good: of a closed session, too.

        Raises:
            UsageError: the session is closed.
        """
        if not (self.closed or self.waiting) and move_one(self.free, held):
            return
        turn = Turn(held, max(1, rows), self._n_useful(rows), for_good)
        try:
            with self._lock:
                turn.is_refused = bool(self.closed) and not for_good
                if not turn.is_refused:
                    self.waiting.append(turn)
            self.hand_over()
            self._wait(turn)
        except BaseException:  # Ctrl-C: what is handed over meanwhile is there before the caller's `finally`
            with self._lock:
                if turn in self.waiting:
                    self.waiting.remove(turn)
            raise
        finally:
            turn.is_over = True
        if not held:
            raise UsageError(self.closed)

    def _wait(self, turn: Turn) -> None:
        """Apart: what comes at a loop's jump back passes the `finally` around the loop by in Python 3.13."""
        pause = PATIENCE_SECONDS  # after that whoever is done hands over; each wake-up takes a core from a kernel
        while not (turn.held or turn.is_refused):  # brief calls hand nothing over, and the last leaves it free
            turn.come.acquire(timeout=pause)
            self.hand_over()
            pause = _MOST_PAUSE_SECONDS

    def hand_over(self, patience: float = 0.0) -> None:
        """Give free instances to waiting requests, the oldest first.

        Args:
            patience: seconds that a request has to have waited.
        """
        if not (self.waiting or self.crews.active):
            return
        with self._lock:
            self._serve_waiting(patience)

    def _serve_waiting(self, patience: float) -> None:
        """The same under the lock; apart, as `_wait` is."""
        self.crews.sweep()
        while self.waiting:
            turn = self.waiting[0]
            if not (turn.is_over or turn.held):
                if patience and time.perf_counter() - turn.since < patience:
                    return
                if self.crews.take_in(turn.rows):
                    continue
                if not move_one(self.free, turn.held):
                    self.crews.recall(self.waiting, self.n_instances)
                    return
            self.waiting.popleft()
            turn.come.release()
        self.crews.widen_late(self.n_instances)

    def take_all(self, held: list[Instance]) -> bool:
        """Add all instances to `held`, if no request holds or waits for one (a single instance is waited for).

        Returns:
            Whether these are all.

        Raises:
            UsageError: the session is closed.
        """
        if self.n_instances == 1:
            self.take_one(held)
        elif not self.waiting:
            while len(held) < self.n_instances and move_one(self.free, held):
                pass
        return len(held) == self.n_instances

    def is_idle(self) -> bool:
        """Whether no request holds or waits for any instance."""
        return len(self.free) == self.n_instances and not self.waiting

    def lend(self, work: Callable[[], None]) -> bool:
        """Have other instances of the same cores work while no request runs on these; False where one does.

        Raises:
            What `work` raises.
        """
        held: list[Instance] = []
        try:
            if not self.take_all(held):
                return False
            work()
            return True
        finally:
            self.free.extend(held[::-1])
            self.hand_over()

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
        instance = None
        try:
            for instance in self.popped:  # a loop calls and assigns at once: no signal comes between
                self.run_on(instance, binding, arrays, outputs)
                return
        except IndexError:
            if instance is not None:
                raise
            self._run_in_turn(binding, arrays, outputs)
        finally:
            if instance is not None:
                self.free.append(instance)
            if self.waiting or (self.crews.active and not binding.is_brief):
                self.hand_over(PATIENCE_SECONDS if binding.is_brief else 0.0)

    def _run_in_turn(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """The same on an instance that has to be waited for."""
        held: list[Instance] = []
        try:
            self.take_one(held, binding.rows)
            self.run_on(held[0], binding, arrays, outputs)
        finally:
            self.free.extend(held)

    def run_on(
        self, instance: Instance, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """The same on one of the instances that nobody else may take meanwhile."""
        if instance.binding is not binding:
            instance.bind(binding, self.segment)
        io, slot = instance.io, 0
        for i in self.in_order:
            io[slot] = address_of(arrays[i])
            slot += 1
        for i in self.out_order:
            io[slot] = address_of(outputs[i])
            slot += 1
        try:
            if binding.n_brief > 0:  # several threads may count down at once
                binding.n_brief -= 1
                status = instance.code.team_held(instance.worker)
            elif binding.is_brief or binding.n_untimed:
                status = timed_call(instance, binding)
            else:
                status = (instance.code.team if self.free else instance.code.team_settled)(instance.worker)
            if status:
                raise self.failure(status)
        except BaseException:  # Ctrl-C, too, which may have come in place of the answer
            instance.clear_failure()
            raise

    def run_cut(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run one request in pieces over the free instances; results go straight into the outputs' rows.

        Args:
            binding: of the request's shapes; `may_cut` holds.
            arrays, outputs: in the order of the plan's inputs and outputs.

        Raises:
            InvalidInput: native code met a value out of range.
        """
        tensors = [*(arrays[i] for i in self.in_order), *(outputs[i] for i in self.out_order)]
        code, step, cuts = self.code, self._step, self._cuts
        assert code is not None and step is not None and cuts is not None
        held: list[Instance] = []
        crew: Crew | None = None
        try:
            self.take_one(held, binding.rows)
            useful = self._n_useful(binding.rows)
            n = min(useful, -(-(len(self.free) + 1) // (1 + len(self.waiting))))  # some are for those that wait
            cut = cuts.of(binding, n, self.n_instances if len(self.free) + 1 < self.n_instances else 0)
            records = cut.records(tensors, len(self.in_order))
            held[0].reserve(*cut.memory)
            held[0].binding = None  # native code sets the worker
            crew, pieces, run = self.crews.new(), records.pieces.buffer_info()[0], code.segments[step.segment]
            crew.begin(len(cut), pieces, run, binding.rows, useful, cut.memory, (records, tensors))
            held[0].begin_after(0)
            status = self._lead(held, crew, n)
            if status == UNFINISHED:
                self._release(held, crew)
                status = crew.wait(code)
            if status:
                raise self.failure(status)
            records.finish()
        except BaseException:  # as in `run_on`
            if crew is not None:
                self._release(held, crew)
                crew.break_off(code)
            raise
        finally:
            if crew is not None:
                crew.is_over = True
            self.free.extend(held)
            self.hand_over()

    def _lead(self, held: Sequence[Instance], crew: Crew, n: int) -> int:
        """Work off a crew's pieces, with n − 1 others from the beginning and up to `most` in all as they come free.

        Returns:
            As Crew.lead, but not AGAIN.
        """

        def begin(helpers: Sequence[Instance]) -> None:
            if self._delay is not None:
                crew.begin_at(begin_late([*held, *helpers], self._delay))

        self.crews.active.append(crew)
        with self._lock:
            self.crews.recruit(crew, n - 1, begin)
        status, pause = AGAIN, FIRST_LOOK
        while status == AGAIN:
            status = crew.lead(held[0], pause if len(crew.helpers) + 1 < crew.most else 0)
            if status == AGAIN:
                self._look_for_others(crew)
                pause = min(2 * pause, LAST_LOOK)
        return status

    def _look_for_others(self, crew: Crew) -> None:
        self.hand_over()
        with self._lock:
            if not self.waiting:
                self.crews.widen(crew, self.n_instances)

    def _release(self, held: list[Instance], crew: Crew) -> None:
        """Return a leader that finds no more pieces."""
        if crew.has_failed:
            for instance in held:
                instance.clear_failure()
        move_one(held, self.free)
        self.hand_over()

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
            refused = [turn for turn in self.waiting if not turn.for_good]
            self.waiting = deque(turn for turn in self.waiting if turn.for_good)
        for turn in refused:
            turn.is_refused = True
            turn.come.release()
        for _ in self.instances:
            held: list[Instance] = []
            self.take_one(held, for_good=True)
            held[0].stop()

    def abandon(self, reason: str) -> None:
        """Refuse all requests from now on and touch no thread: they are not ours any more."""
        self._lock = threading.Lock()
        self.waiting = deque()
        self.closed = reason
        self.free.clear()
        self.crews.abandon()


def direct_step(manifest: Manifest) -> NativeStep | None:
    """The only step, if it is native and reads and writes nothing but the plan's inputs and outputs."""
    step = manifest.steps[0] if len(manifest.steps) == 1 else None
    if not isinstance(step, NativeStep):
        return None
    names_in, names_out = {t.name for t in manifest.inputs}, {t.name for t in manifest.outputs}
    fits = set(step.inputs) <= names_in and set(step.outputs) == names_out and not names_in & names_out
    return step if fits and len(step.outputs) == len(names_out) else None
