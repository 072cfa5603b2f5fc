"""Other instances of a session's cores, for requests of sizes that the session's own do not suit.

A plan for throughput gives every core an instance, so that a request of one row would leave the others idle; another
instance over all cores serves it sooner. It may run while no request holds any of the session's own (Executor.lend).
Owns which instances may serve how many rows, and makes them when they are first needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .executor import Executor
from .manifest import Manifest, SizeRule
from .native import MachineCode

Arranged = tuple[int, int]
"""Instances, and cores of each."""


class SizeRouter:
    """The other instances of one session."""

    def __init__(
        self, manifest: Manifest, code: MachineCode | None, weights: int, cores: Sequence[int],
        own: Arranged, rules: Sequence[SizeRule], adapt: bool,
    ) -> None:  # fmt: skip
        """None of them exists yet.

        Args:
            manifest: of the plan, whose sequential program they run. own: the session's own instances × cores of each.
            rules: from the plan; the first that fits is its prediction. adapt: whether others may be tried.
        """
        self._manifest, self._code, self._weights, self._cores = manifest, code, weights, cores
        self._own, self._rules = own, rules if code is not None else ()
        self._adapt = adapt and code is not None and len(cores) > 1
        self._executors: dict[Arranged, Executor] = {}
        self._watch: Callable[[Executor], None] | None = None
        self._lock = threading.Lock()

    def made(self) -> list[Executor]:
        """Those that were asked for until now."""
        with self._lock:
            return list(self._executors.values())

    def watch(self, new: Callable[[Executor], None] | None) -> None:
        """Have those that are made from now on told to `new` before they run anything."""
        with self._lock:
            self._watch = new

    def worth_trying(self, rows: int) -> list[Arranged]:
        """Instances × cores of each for a lone request of so many rows, the predicted one first.

        Those beside it: the session's own, all cores together, and half and twice as many cores each.
        """
        fitting = (r for r in self._rules if r.least <= rows and (r.most is None or rows <= r.most))
        first = next(((rule.instances, rule.cores_each) for rule in fitting), self._own)
        if not self._adapt:
            return [first]
        n, each = len(self._cores), first[1]
        widths = [w for w in (n, each // 2, each * 2) if 1 <= w <= n]
        return list(dict.fromkeys([first, self._own, *((n // w, w) for w in widths)]))

    def executor(self, arranged: Arranged) -> Executor:
        """The instances of that arrangement, made when they are first asked for.

        Raises:
            ResourceLimit: the system gives no more threads.
        """
        instances, cores_each = arranged
        with self._lock:
            if arranged not in self._executors:
                edges = range(0, instances * cores_each, cores_each)
                groups = [tuple(self._cores[i : i + cores_each]) for i in edges]
                made = Executor(self._manifest, self._code, self._weights, groups, self._manifest.micro_batch)
                try:
                    made.start()
                except BaseException:
                    made.close()
                    raise
                if self._watch is not None:
                    self._watch(made)
                self._executors[arranged] = made
            return self._executors[arranged]

    def close(self) -> None:
        """End their threads; the session's own instances must have been closed before."""
        with self._lock:
            for executor in self._executors.values():
                executor.close()

    def abandon(self, reason: str) -> None:
        """After a fork: see Executor.abandon."""
        self._lock = threading.Lock()
        for executor in self._executors.values():
            executor.abandon(reason)
