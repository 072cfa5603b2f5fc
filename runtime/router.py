"""The shapes that a session has met, and which of its instances serve requests of each.

Owns the bindings, by shape, and the choice between the session's own instances, others of the same cores, and a share
of them. Knows arrays that are checked; nothing of what callers hand in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from ..errors import ResourceLimit
from .bindings import Binding, Shape
from .brief import MOST_NBYTES as MOST_BRIEF_NBYTES
from .executor import Executor
from .limits import Allowance, Limits
from .size_routing import Arranged, SizeRouter
from .teams import Teams
from .ways import MOST_NBYTES, Way, Ways

_MAX_BINDINGS = 1024
_LEAST_TO_SHARE = 4  # instances: of fewer, two requests get one each


class Router:
    """Where requests of one session run.

    Attributes:
        known: binding by shapes of the inputs, in the manifest's order.
        ready: those of them that the fast path serves: of one native request, or of a plan in steps.
        executor: the session's own instances.
        size_router: instances that may serve a request which is alone. teams: shares of cores, where there are many.
        keeps_brief: whether brief requests run whole on one of the own instances, whatever else is known of them.
    """

    def __init__(
        self, executor: Executor, size_router: SizeRouter, limits: Limits, weights_nbytes: int, keeps_brief: bool
    ) -> None:
        """No shape is known yet.

        Args:
            limits: of a request; weights_nbytes count towards them.
        """
        self.known: dict[tuple[Shape, ...], Binding] = {}
        self.ready: dict[tuple[Shape, ...], Binding] = {}
        self.executor, self.size_router, self.keeps_brief = executor, size_router, keeps_brief
        shared = executor.is_direct and executor.n_instances >= _LEAST_TO_SHARE
        self.teams = Teams(executor) if shared else None
        self._limits, self._weights_nbytes = limits, weights_nbytes
        self._own = executor.n_instances, executor.n_cores_each

    def allowance(self) -> Allowance:
        """What one request may take, from now on."""
        return Allowance(self._limits, self._weights_nbytes)

    def binding(self, shapes: tuple[Shape, ...]) -> Binding:
        """The binding of requests of these shapes.

        Raises:
            InvalidInput: the plan does not allow them. ResourceLimit: not enough memory.
        """
        return self.known.get(shapes) or self._learn(shapes)

    def is_native(self, binding: Binding) -> bool:
        """Whether requests of a binding run as one native request."""
        return self.executor.is_direct and binding.outputs is not None

    def _learn(self, shapes: tuple[Shape, ...]) -> Binding:
        """Check shapes not met before, and remember them."""
        binding = self.executor.signature.bind(shapes)
        nbytes = binding.arena_nbytes + self.executor.n_cores_each * binding.scratch_nbytes
        nbytes += sum(math.prod(shape) * dtype.itemsize for shape, dtype in binding.outputs or ())
        self.allowance().afford(nbytes, f"a request of shapes {list(shapes)}")
        if len(self.known) >= _MAX_BINDINGS:
            self.known.clear()
            self.ready.clear()
        self.known[shapes] = binding
        binding.ways = self._ways(shapes, binding)
        if self.is_native(binding):
            self.executor.prepare(binding)
            if binding.arena_nbytes > MOST_BRIEF_NBYTES:
                binding.n_untimed = 0
        if self.is_native(binding) or not self.executor.is_direct:
            self.ready[shapes] = binding
        return binding

    def _ways(self, shapes: tuple[Shape, ...], binding: Binding) -> Ways | None:
        """The ways to serve a lone request; None: the session's own instances are the only one."""
        tried = self.size_router.worth_trying(binding.rows)
        if binding.arena_nbytes > MOST_NBYTES:
            tried = tried[:1]
        if tried == [self._own]:
            return None

        def place(arranged: Arranged) -> tuple[Executor, Binding]:
            if arranged == self._own:
                return self.executor, binding
            other = self.size_router.executor(arranged)
            there = other.signature.bind(shapes)
            if there.outputs is not None:
                other.prepare(there)
            return other, there

        def way(arranged: Arranged) -> Way:
            instances, cores_each = arranged
            return Way(_words(*arranged), cores_each * max(1, min(instances, binding.rows)), partial(place, arranged))

        whole = tried[0][0] == 1 and binding.outputs is not None and not self.executor.may_cut(binding)
        n, each = self._own
        widths = self.teams.widths if self.teams is not None and whole else ()
        shares = {width: way((n // width, width * each)) for width in widths}
        return Ways(self.executor, [way(arranged) for arranged in tried], shares)

    def serve(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run a native request on the instances that suit it; on the session's own if others may not run now.

        Args:
            binding: one of `ready`. arrays, outputs: in the order of the plan's inputs and outputs.

        Raises:
            InvalidInput: native code met a value out of range. UsageError: the session is closed.
        """
        ways = binding.ways
        if self.keeps_brief and (binding.is_brief or binding.n_untimed):  # or may be, until it was timed
            self.executor.run_whole(binding, arrays, outputs)
        elif ways is None or ways.stays:
            run = self.executor.run_cut if binding.cuts else self.executor.run_whole  # as Executor.run: one call less
            run(binding, arrays, outputs)
        elif not ways.serve(lambda executor, there: executor.run(there, arrays, outputs)):
            if ways.shares and ways.chosen is not None and not ways.stays:
                self._serve_in_part(ways, binding, arrays, outputs)
            else:
                self.executor.run(binding, arrays, outputs)

    def _serve_in_part(
        self, ways: Ways, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """A request that does better on several cores and is not alone: on its share of them."""
        assert self.teams is not None
        with self.teams.share() as held:
            executor, there, instance = self.executor, binding, held[0]
            if len(held) > 1:
                with suppress(ResourceLimit):  # then the own one does
                    executor, there = ways.shares[len(held)].place
                    instance = executor.instances[self.executor.instances.index(instance) // len(held)]
            executor.run_on(instance, there, arrays, outputs)

    def route(self, binding: Binding, run: Callable[[Executor, Binding], None]) -> None:
        """Have a request of any kind run, likewise.

        Raises:
            What `run` raises.
        """
        if binding.ways is None or not binding.ways.serve(run):
            run(self.executor, binding)

    def statistics(self) -> list[dict[str, Any]]:
        """A record per shape that may be served in several ways; see Session.statistics."""
        found = []
        for shapes, binding in list(self.known.items()):
            if binding.ways is not None:
                chosen = {"chosen": _words(*self._own)} if self.keeps_brief and binding.is_brief else {}
                shown = {"shapes": [list(s) for s in shapes], "rows": binding.rows}
                found.append({**shown, **binding.ways.statistics(), **chosen})
        return found


def _words(instances: int, cores_each: int) -> str:
    return f"{instances} × {cores_each} core{'' if cores_each == 1 else 's'}"
