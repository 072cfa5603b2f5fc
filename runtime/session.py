"""A session: instances of one plan, ready for requests. The public face of running.

Owns the way from what callers hand in to native memory, and the fast path: a request of a shape met before, with
arrays that fit, costs a few dict look-ups and one native call on the caller's thread.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InternalError, ParaxError, as_parax_error, attach, reported
from .checked import Checked
from .closing import Closing
from .delayed_start import usable_delay
from .executor import Executor
from .fast_path import fast_path, stepped_path
from .forks import abandon_after_fork
from .limits import checked_limits
from .manifest import Delay, Scheduled, SizeRule
from .memory import address_of
from .modes import fitting_program, wanted_program
from .native import code_of
from .plan_contents import PlanContents
from .prepared import Prepared
from .router import Router
from .size_routing import SizeRouter
from .sizing import check_counts, core_groups, wanted_delay, wanted_size
from .steps import Program, constant_array
from .tensors import output_names
from .topology import choose_cores

if TYPE_CHECKING:
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from .batching import Batches
    from .profiling.profile import Profile
    from .profiling.watch import Watch
    from .requests import Submitted
    from .sequence import CallSequence
    from .submissions import Submissions


class Session:
    """Runs a plan. Thread-safe; the GIL is released while kernels run.

    With a batch_window, requests whose inputs have the same shapes but for the batch, and the same content where an
    input has no batch axis, may run as one, of at most `micro_batch` rows (32 where neither plan nor caller give it).
    A request that finds an instance free, nobody waiting, and no more requests in flight than there are instances
    begins at once; so a request that is alone never waits. Any other joins those of its kind. They begin once an
    instance is free and one of these holds: they are as many as each instance's share of the requests in flight, their
    rows make a full batch, or batch_window seconds have passed since an instance was first free for them. In flight is
    a request until its caller has the results (of `submit`: until the future has them). Results, errors and `out` are
    those of a request that runs alone, bit for bit.

    Attributes:
        inputs, outputs: the plan's signature.
        instances: number of instances.
        core_groups: the cores of each instance.
        target: the name of the target whose code runs, or None for a plan without native code.
        mode: how an instance of several cores runs: "sequential" (all of them on one kernel after the other),
            "layered" (independent branches at the same time) or "pipelined" (stages, with micro-batches in flow).
        watch: notes requests while somebody makes a profile.
        plan, executor, size_router, program: what runs, for profiles.
    """

    watch: Watch | None = None

    @reported
    def __init__(
        self,
        plan: PlanContents,
        instances: int | None = None,
        cores: Sequence[int] | str | None = None,
        cores_per_instance: int | None = None,
        micro_batch: int | None = None,
        mode: str | None = None,
        delay: tuple[int, float] | None = None,
        max_memory: int | None = None,
        max_seconds: float | None = None,
        adapt: bool = True,
        batch_window: float | None = None,
    ) -> None:
        """Start the instances.

        Args:
            plan: what to run; sessions of one plan share its weights and code.
            instances: independent copies with an arena each; a request is split over them along the batch.
            cores: the cores to use, as numbers or text like "0-3,8"; default all that this process may use.
            cores_per_instance: threads that work together on each operator.
            micro_batch: rows that an instance takes at a time; default the plan's.
            mode: one of those that the plan has a program for; default the plan's. A program other than the sequential
                one is made for instances of so many cores; by default it runs where they have them.
            delay: (groups, seconds): instances that share a request begin in so many groups, each so much later than
                the one before; (1, 0) for all at once; default the plan's.
            max_memory: bytes for weights, arenas and what a request makes; default the plan's, else all that is left.
            max_seconds: after which loops of a request give up, between two iterations; default never.
            adapt: time a few requests of each shape that run alone on other instances of the same cores, and take the
                quickest from then on (`statistics` shows them; of microseconds: one core); else the prediction holds.
            batch_window: seconds a request may wait for others, see above; default never.

        With neither `instances` nor `cores_per_instance`, the plan decides: by the number of instances it was compiled
        for, by what its planner chose for so many cores, by the cores that its mode needs, else by its hint: "latency"
        gives one instance all cores, "throughput" gives every core an instance. Where a plan for throughput decides,
        and neither `mode` nor `micro_batch` is given, a request that finds no other running takes other instances of
        the same cores if they suit its size better; requests side by side take an instance each, or, where there are
        more instances than requests, an equal share. With one of them, the other follows (cores_per_instance 1).

        Raises:
            UsageError: more cores than there are, or cores that this process may not use; a mode that the plan or the
                number of cores does not allow; a batch_window that is no duration, or whose plan's rows mix.
            CorruptPlan, IncompatiblePlan: the plan's code cannot run here.
        """
        check_counts(instances=instances, cores_per_instance=cores_per_instance, micro_batch=micro_batch)
        self._limits = checked_limits(plan.manifest.max_memory if max_memory is None else max_memory, max_seconds)
        self.plan, self.inputs, self.outputs = plan, plan.inputs, plan.outputs
        usable, program = choose_cores(cores), wanted_program(plan.manifest, mode)
        free = {instances, cores_per_instance, micro_batch, mode, plan.manifest.instances} == {None}
        planned, size = wanted_size(plan.manifest, len(usable), instances, cores_per_instance)
        self.core_groups = core_groups(plan.manifest.hint, usable, *size)
        self.instances = len(self.core_groups)
        program = fitting_program(program, self.core_groups, mode)
        self.mode = program.mode if program else "sequential"
        pipeline = program if self.mode == "pipelined" else None
        chosen = micro_batch if micro_batch is not None or pipeline else plan.manifest.micro_batch
        self._make_executors(chosen, pipeline, wanted_delay(plan.manifest, planned, delay))
        rules = planned.for_rows if planned and free else ()
        self.size_router = self._make_size_router(usable, rules, free and adapt)
        self._start(batch_window, keeps_brief=free and adapt)

    def _make_executors(self, micro_batch: int | None, pipeline: Scheduled | None, delay: Delay | None) -> None:
        manifest, code = self.plan.manifest, code_of(self.plan)
        self._manifest = manifest.rescheduled() if self.mode == "layered" else manifest
        self._weights = address_of(np.frombuffer(self.plan.weights, np.uint8)) if len(self.plan.weights) else 0
        wait = usable_delay(delay, code, self.instances)
        self.executor = Executor(self._manifest, code, self._weights, self.core_groups, micro_batch, pipeline, wait)

    def _make_size_router(self, usable: Sequence[int], rules: Sequence[SizeRule], adapt: bool) -> SizeRouter:
        manifest, own = self.plan.manifest, (self.instances, len(self.core_groups[0]))
        adapts = adapt and manifest.hint == "throughput" and self.mode == "sequential"
        return SizeRouter(manifest, self.executor.code, self._weights, usable, own, rules, adapts)

    def _start(self, batch_window: float | None, keeps_brief: bool) -> None:
        self._router = Router(self.executor, self.size_router, self._limits, len(self.plan.weights), keeps_brief)
        self._batches: Batches | None = None
        if batch_window is not None:
            from .batching import Batches  # here: as in _background

            self._batches = Batches(self.executor, self._router, batch_window)
        code = self.executor.code
        self.target = code.target.name if code else None
        self.program = Program(self.plan, self.executor.signature)
        self._submissions: Submissions | None = None
        self._closing = Closing()
        defaults = {name: constant_array(self.plan, c) for name, c in self._manifest.defaults.items()}
        serve = self._batches.run if self._batches else self._router.serve
        signature = self._manifest.inputs, self._manifest.outputs
        self._checked = Checked(signature, self._manifest, defaults, self._router, serve, self.program)
        self._run_fast = fast_path(*signature, self._router, serve)
        if not self.executor.is_direct:
            self._run_fast = stepped_path(*signature, self._router, self.program)
        self._run_checked: Callable[[Any, Any], dict[str, np.ndarray]] = self._checked.run
        if self._manifest.states:
            self._own = self.sequence()
            self._run_fast, self._run_checked = lambda inputs: None, self._own.run
        self._finalizer = weakref.finalize(self, _close, self.executor, self.size_router)
        abandon_after_fork(self)
        self.executor.start()

    def run(
        self,
        inputs: Mapping[str, Any] | Sequence[str] | None,
        feeds: Mapping[str, Any] | None = None,
        *,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one request: `run(inputs)`, or `run(output_names, inputs)` as in ONNX Runtime.

        Args:
            inputs: tensor per input name: numpy, `__dlpack__`, `__array_interface__` or the buffer protocol. Inputs
                with a default may be left out.
            feeds: the inputs, where the first argument names the outputs wanted (None: all).
            out: writable C-contiguous memory for some outputs; results are written there and nowhere else.

        Returns:
            Array per output name; the caller owns them.

        Raises:
            InvalidInput: a wrong name, shape, element type or value.
            ResourceLimit: not enough memory.
            UsageError: the session is closed.
            InternalError: a mistake in parax; the plan's graph is a note of it.
        """
        watch = self.watch
        began = time.perf_counter() if watch is not None else 0.0
        try:
            wanted = None
            if feeds is not None:
                wanted, inputs = output_names(inputs, self.outputs), feeds  # type: ignore[arg-type]
            results = self._run_fast(inputs) if out is None else None
            if results is None:
                results = self._run_checked(inputs, out)
            if watch is not None:
                watch.note_request(began, self._own.called if self._manifest.states else inputs)
            return results if wanted is None else {name: results[name] for name in wanted}
        except ParaxError:
            raise
        except Exception as error:
            raise self.explained(error) from error

    def explained(self, error: Exception) -> ParaxError:
        """Ours for an exception that is not, with the graph where it is a mistake of parax."""
        made = as_parax_error(error, f"plan {self.plan.name!r}")
        if isinstance(made, InternalError):
            attach(made, self.plan.graph)
        return made

    def prepare(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> Prepared:
        """A request to be made again and again: what is as large as weights is checked once, and read where it lies.

        Args:
            inputs, out: as of `run`. An input that has to be converted is as it was now.

        Returns:
            the request; its `run(changes)` takes other tensors for some inputs.

        Raises:
            As `run`.
        """
        return Prepared(self, self._checked, inputs, out)

    def sequence(self) -> CallSequence:
        """A sequence of calls of a plan with state, beside others; `run` and `reset` are those of the session's own.

        Raises:
            UsageError: the plan was compiled without state.
        """
        from .sequence import CallSequence  # here: as in _background

        return CallSequence(self._manifest, self._checked)

    def reset(self, content: Mapping[str, Any] | None = None) -> None:
        """Begin the session's own sequence anew; see `CallSequence.reset`."""
        (self._own if self._manifest.states else self.sequence()).reset(content)

    def profile(self) -> AbstractContextManager[Profile]:
        """Record what every core does in a `with` block: `with session.profile() as profile: session.run(x)`.

        Returns:
            the profile, which is filled when the block ends, with all requests that ended inside of it.

        Raises:
            IncompatiblePlan: the plan was compiled without `CompileOptions(profile=True)`.
        """
        from .profiling.profiler import profiling  # here: as in _background

        return profiling(self)

    def statistics(self) -> list[dict[str, Any]]:
        """What the session found out about requests that run alone, shape by shape.

        Returns:
            Record per shape: `shapes` of the inputs, `rows` of the batch (0: not split), `chosen` instances × cores
            (None: still being timed), and `timed`: seconds of the quickest request, and requests timed, by instances.
            Shapes for which there is one way only are left out. Of a session with a batch_window, one more record
            at the end: `batch_window` in seconds, `most_rows` of a batch, `batches` of several requests that ran, and
            `requests_batched` in them.
        """
        return self._router.statistics() + (self._batches.statistics() if self._batches else [])

    def submit(self, inputs: Any, feeds: Any = None, *, out: Any = None) -> Future[dict[str, np.ndarray]]:
        """Like `run`, in the background; at most as many requests run at once as there are instances.

        A request that takes less than handing it to another thread runs at once where an instance is free, and whoever
        waits for the result of one that no thread has begun runs it himself, or the batch that it is in.
        """
        background = self._background()
        kind = background.kind_of(inputs if feeds is None else feeds)
        here = background.is_short(kind) and self._has_room()
        if here or self._batches is None:
            return background.submit(partial(self.run, inputs, feeds, out=out), kind, here=here)
        from .requests import failed  # here: as in _background

        try:
            request = self._request(inputs, feeds, out, kind, is_late=False)
        except ParaxError as error:
            return failed(error)
        return self._batches.submit(request, background)

    async def arun(self, inputs: Any, feeds: Any = None, *, out: Any = None) -> dict[str, np.ndarray]:
        """Like `run`, for coroutines; see `submit`."""
        background = self._background()
        kind = background.kind_of(inputs if feeds is None else feeds)
        work = partial(self.run, inputs, feeds, out=out)
        if background.is_short(kind) and self._has_room():
            return background.timed(work, kind)
        from asyncio import wrap_future  # here, as in _background

        if self._batches is None:
            return await wrap_future(background.submit(work, kind, here=False))
        future = self._batches.submit(self._request(inputs, feeds, out, kind, is_late=True), background)
        try:
            return await wrap_future(future)
        finally:
            self._batches.delivered()

    def _has_room(self) -> bool:
        """Whether one more request would begin at once."""
        return self._batches.has_room if self._batches else bool(self.executor.free)

    def _request(self, inputs: Any, feeds: Any, out: Any, kind: object, *, is_late: bool) -> Submitted:
        """A request to be batched, its inputs checked; see requests.py.

        Raises:
            As `run`.
        """
        from .requests import Submitted  # here: as in _background

        watch, began = self.watch, time.perf_counter()
        try:
            wanted = None if feeds is None else output_names(inputs, self.outputs)
            given = inputs if feeds is None else feeds
            binding, arrays, own = self._checked.check(given, out)
            outputs = self._checked.allocate(binding, own)
        except ParaxError:
            raise
        except Exception as error:
            raise self.explained(error) from error

        def results(error: Exception | None) -> dict[str, np.ndarray]:
            if error is not None:
                raise self.explained(error)
            if watch is not None:
                watch.note_request(began, given)
            found = {spec.name: array for spec, array in zip(self.outputs, outputs, strict=True)}
            return found if wanted is None else {name: found[name] for name in wanted}

        return Submitted(binding, arrays, outputs, results, kind, is_late)

    def _background(self) -> Submissions:
        """The threads that run what is submitted.

        Raises:
            UsageError: the session is closed.
        """
        if self._submissions is None or self._closing.reason:
            from .submissions import Submissions  # here: it costs imports that most sessions never need

            with self._closing.not_begun():
                if self._submissions is None:
                    self._submissions = Submissions(self.instances)
                    weakref.finalize(self, self._submissions.close)
        return self._submissions

    def close(self) -> None:
        """Finish submitted and running requests, then end the threads. Later requests raise UsageError.

        A callback of one of the session's futures does not wait for that.
        """
        self._closing.close(self._end, self._submissions)

    def _end(self) -> None:
        if self._batches is not None:
            self._batches.close()
        if self._submissions is not None:
            self._submissions.close()
        self._closing.finish(self._finalizer)

    def abandon(self, reason: str) -> None:
        """After a fork: see forks.py."""
        self._finalizer.detach()
        self._closing = Closing(reason)
        self.executor.abandon(reason)
        self.size_router.abandon(reason)
        if self._batches is not None:
            self._batches.abandon()
        if self._submissions is not None:
            self._submissions.abandon()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        from .describing import session_line  # here: for prompts

        return session_line(self.plan.manifest, self.core_groups, self.mode, self.target)


def _close(executor: Executor, size_router: SizeRouter) -> None:
    executor.close()
    size_router.close()
