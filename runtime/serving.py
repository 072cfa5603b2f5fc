"""Where a request runs: on a session's own instances, on others of the same cores, or on its share of them.

Owns that choice for every shape, as `Ways`; what a request is, the session knows, and how it runs, the executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from .bindings import Binding
from .executor import Executor
from .others import Arranged, Others
from .teams import Teams
from .ways import MOST_NBYTES, Run, Way, Ways

LEAST_TO_SHARE = 4  # instances: of fewer, two requests get one each


class Serving:
    """The instances of one session, its own and others."""

    def __init__(self, own: Executor, others: Others) -> None:
        self.own, self.others = own, others
        self.teams = Teams(own) if own.is_direct and own.n_instances >= LEAST_TO_SHARE else None

    def ways(self, shapes: tuple[tuple[int, ...], ...], binding: Binding) -> Ways | None:
        """The ways to serve requests of a shape; None: the session's own instances are the only one."""
        own = self.own
        here = own.n_instances, own.cores_each
        tried = self.others.worth_trying(binding.rows)
        if binding.arena_nbytes > MOST_NBYTES:
            tried = tried[:1]
        if tried == [here]:
            return None

        def place(arranged: Arranged) -> tuple[Executor, Binding]:
            if arranged == here:
                return own, binding
            other = self.others.executor(arranged)
            there = other.signature.bind(shapes)
            if there.outputs is not None:
                other.prepare(there)
            return other, there

        def way(arranged: Arranged) -> Way:
            return Way(_words(*arranged), partial(place, arranged))

        whole = tried[0][0] == 1 and binding.outputs is not None and not own.may_cut(binding)
        widths = self.teams.widths if self.teams is not None and whole else ()
        shares = {width: way((own.n_instances // width, width * own.cores_each)) for width in widths}
        return Ways(own, [way(arranged) for arranged in tried], shares)

    def serve(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run a request of a plan that is one native step.

        Raises:
            InvalidInput: native code met a value out of range. UsageError: the session is closed.
        """
        ways = binding.ways
        if ways is None or ways.stays:
            self.own.run(binding, arrays, outputs)
        elif not ways.serve(lambda executor, there: executor.run(there, arrays, outputs)):
            if ways.shares and ways.chosen is not None and not ways.stays:
                self._serve_in_part(ways, binding, arrays, outputs)
            else:
                self.own.run(binding, arrays, outputs)

    def _serve_in_part(
        self, ways: Ways, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """A request that does better on several cores and is not alone: on its share of them."""
        assert self.teams is not None
        with self.teams.share() as held:
            executor, there, instance = self.own, binding, held[0]
            if len(held) > 1:
                executor, there = ways.shares[len(held)].place
                instance = executor.instances[self.own.instances.index(instance) // len(held)]
            executor.run_on(instance, there, arrays, outputs)

    def serve_steps(self, binding: Binding, run: Run) -> None:
        """Have `run` work off a request of a plan in steps."""
        if binding.ways is None or not binding.ways.serve(run):
            run(self.own, binding)

    def close(self) -> None:
        """Wait for running requests, then end all threads."""
        self.own.close()
        self.others.close()

    def abandon(self, reason: str) -> None:
        """After a fork: see Executor.abandon."""
        self.own.abandon(reason)
        self.others.abandon(reason)


def _words(instances: int, cores_each: int) -> str:
    return f"{instances} × {cores_each} core{'' if cores_each == 1 else 's'}"
