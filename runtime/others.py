"""Other instances of a session's cores, for requests of sizes that the session's own do not suit.

A plan for throughput gives every core an instance, so that a request of one row would leave the others idle; another
instance over all cores serves it sooner. It may run while no request holds any of the session's own (Executor.run_on).
Owns which instances serve how many rows, and makes them when they are first needed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .executor import Executor
from .manifest import ForRows, Manifest
from .native import MachineCode


class Others:
    """The other instances of one session."""

    def __init__(
        self, manifest: Manifest, code: MachineCode | None, weights: int, cores: Sequence[int], rules: Sequence[ForRows]
    ) -> None:
        """None of them exists yet.

        Args:
            manifest: of the plan, whose sequential program they run. rules: from the plan; the first that fits holds.
        """
        self._manifest, self._code, self._weights, self._cores = manifest, code, weights, cores
        self._rules = rules if code is not None and manifest.batch is not None else ()
        self._executors: dict[tuple[int, int], Executor] = {}
        self._lock = threading.Lock()

    def serving(self, rows: int) -> Executor | None:
        """The instances for requests of so many rows; None: the session's own.

        Raises:
            ResourceLimit: the system gives no more threads.
        """
        for rule in self._rules:
            if rule.least <= rows and (rule.most is None or rows <= rule.most):
                return self._executor(rule.instances, rule.cores_each)
        return None

    def _executor(self, instances: int, cores_each: int) -> Executor:
        with self._lock:
            key = instances, cores_each
            if key not in self._executors:
                edges = range(0, instances * cores_each, cores_each)
                groups = [tuple(self._cores[i : i + cores_each]) for i in edges]
                made = Executor(self._manifest, self._code, self._weights, groups, self._manifest.micro_batch)
                made.start()
                self._executors[key] = made
            return self._executors[key]

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
