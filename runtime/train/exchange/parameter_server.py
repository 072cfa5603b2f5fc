"""The parameter server, a baseline: threads that only serve have the weights; instances copy them and push gradients.

A server per NUMA node, on a core of its own, has a part of every vector: it adds what is pushed, and moves its part of
the weights once all is there. Instances compute on a copy of the weights, which they read at each step. The core of
each server is lost to the instances.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from queue import SimpleQueue

import numpy as np

from .base import Scheme, Site
from .gradient import Copy, Gradient, Vectors
from .traffic import Traffic

Acknowledged = SimpleQueue[BaseException | None]


class ParameterServer(Scheme):
    """See the file."""

    is_static = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        n, cores = len(site.instances), site.placement.servers
        self._copies = [Copy(site.state.layouts) for _ in range(n)]
        self._own = [site.gradient() for _ in range(n)]
        self._is_read = [False] * n
        self._sum = site.gradient()
        self._acks: list[Acknowledged] = [SimpleQueue() for _ in range(n)]
        self._pushed = [0] * n  # that were not acknowledged
        self._servers = [_Server(core, self._sum.vectors, i, len(cores)) for i, core in enumerate(cores)]
        self.updates = [site.update(cores, site.program.n_shards)]

    def begin(self, rate: float) -> None:
        self._settle()
        super().begin(rate)
        self._is_read = [False] * len(self._copies)
        for server in self._servers:
            server.begin()

    def parameters(self, instance: int) -> Mapping[str, np.ndarray]:
        if not self._is_read[instance]:
            self._copies[instance].read(self.site.state, self.site.traffic[instance])
            self._is_read[instance] = True
        return self._copies[instance].parameters

    def place(self, instance: int, shard: int) -> Gradient:
        self._await(instance)
        return self._own[instance]

    def give(self, instance: int, shard: int) -> None:
        for server in self._servers:
            self._pushed[instance] += 1
            server.push(self._own[instance].vectors, self._acks[instance])

    def _await(self, instance: int) -> None:
        """Until the servers have read what the instance pushed."""
        while self._pushed[instance]:
            error = self.site.traffic[instance].wait(self._acks[instance])
            self._pushed[instance] -= 1
            if error is not None:
                raise error

    def _settle(self) -> None:
        for instance in range(len(self._own)):
            self._await(instance)

    def update(self) -> float:
        self._settle()
        return self.updates[0].run([self._sum], self.rate, self.site.state.steps + 1)

    def moved(self) -> list[Traffic]:
        return [*self.site.traffic, *(server.traffic for server in self._servers)]

    def close(self) -> None:
        super().close()
        for server in self._servers:
            server.close()


class _Server:
    """A thread that adds a part of every vector that is pushed, in the order in which they come."""

    def __init__(self, core: int, total: Vectors, number: int, n_servers: int) -> None:
        self._parts = {group: slice(len(vector) * number // n_servers, len(vector) * (number + 1) // n_servers)
                       for group, vector in total.items()}  # fmt: skip
        self._total, self._is_empty, self.traffic = total, True, Traffic()
        self._queue: SimpleQueue[tuple[Vectors, Acknowledged] | None] = SimpleQueue()
        threading.Thread(target=self._serve, args=(core,), name=f"parax-server-{number}", daemon=True).start()

    def begin(self) -> None:
        """Nothing was pushed yet. All acknowledgements were read."""
        self._is_empty = True
        self.traffic.clear()

    def push(self, vectors: Vectors, ack: Acknowledged) -> None:
        """Have a gradient added; it must not change before it is acknowledged."""
        self._queue.put((vectors, ack))

    def _serve(self, core: int) -> None:
        with contextlib.suppress(OSError):  # as where instances are pinned
            os.sched_setaffinity(0, {core})
        while (entry := self._queue.get()) is not None:
            vectors, ack = entry
            try:
                self._add(vectors)
            except BaseException as error:
                ack.put(error)
            else:
                ack.put(None)

    def _add(self, vectors: Vectors) -> None:
        move = self.traffic.copy if self._is_empty else self.traffic.add
        for group, part in self._parts.items():
            move(self._total[group][part], vectors[group][part])
        self._is_empty = False

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
