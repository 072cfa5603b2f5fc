"""One step of training: every instance takes shards of the batch, and an exchange makes new weights of the gradients.

    for each shard, on whatever instance:   loss, gradient = step(rows of the shard, weights); exchange.give(gradient)
    barrier
    exchange.update():                      weights = update(weights, mean of the gradients)

What is exchanged, how and in which order is the exchange's (exchange/): the default adds in a fixed order. A batch may
be cut in micro-batches as well: an instance then works off its shard of one after the other, and gives their sum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...errors import InvalidInput
from ..delayed_start import start_delays
from ..joint import can_join
from .exchange.base import Scheme, Site
from .exchange.division import Division
from .exchange.instances import Instances
from .exchange.settings import SCHEMES
from .exchange.traffic import Counters
from .finite import require_finite
from .interrupts import interrupts_held
from .labels import require_classes
from .prepared import JointRequests, Requests
from .program import LABELS, LOSS, SHARE, TrainingProgram
from .state import TrainingState

Arrays = Mapping[str, np.ndarray]
Gradients = tuple[list[dict[str, np.ndarray]], list[float], float, "float | None"]
"""Outputs of each piece beside its gradient; when each instance was done, and when the last gradient was there, in
seconds of time.perf_counter; the gradient's norm, if it has moved the weights."""


class Stepper:
    """Instances of a training program, ready for steps.

    Attributes:
        program, state: what is trained. scheme: of the exchange. counters: what it cost until now.
    """

    def __init__(self, program: TrainingProgram, state: TrainingState, division: Division) -> None:
        """Start the instances."""
        self.program, self.state = program, state
        exchange, placement = division.exchange, division.placement
        self._instances = Instances(program.step, placement.instances)
        instances = len(self._instances)
        staleness = instances - 1 if exchange.staleness is None else exchange.staleness
        site = Site(program, state, self._instances, placement, staleness)
        self.scheme: Scheme = SCHEMES[exchange.name](site)
        self._parts = [site.gradient() for _ in range(instances)] if program.accumulate > 1 else []
        self._traffic = site.traffic
        self._delays = start_delays(placement.nodes, exchange.start) if exchange.start else [0] * instances
        self._requests = [Requests(session) for session in self._instances.sessions]
        sessions, alike = self._instances.sessions, self.scheme.gives_at_end and program.accumulate == 1
        self._joint = JointRequests(sessions, self._lasting) if alike and not any(self._delays) else None
        self._share: np.ndarray | None = None
        nbytes = sum(vector.nbytes for name, vector in state.vectors.items() if name.endswith(".weights"))
        self.counters = Counters(exchange.name, nbytes, placement.lost)

    def step(self, batch: Arrays, rate: float) -> dict[str, float]:
        """One step on a batch of `program.batch` rows.

        Args:
            rate: the learning rate.

        Returns:
            the loss and the metrics, means over the batch, and the gradient's `norm`.

        Raises:
            InvalidInput: a wrong batch, or a value in it that the model refuses. Diverged: the loss or the gradient
                is not finite. The parameters are as before; an asynchronous exchange leaves what it did until then.
            KeyboardInterrupt: behind the whole step, which is done and counted.
        """
        self._check(batch)
        self._share = self._share_of(batch)
        with interrupts_held():
            return self._done(batch, rate)

    def _done(self, batch: Arrays, rate: float) -> dict[str, float]:
        """A step on a batch that fits."""
        began = time.perf_counter()
        self.scheme.begin(rate)
        results, done, computed, norm = self._together(batch) or self._one_by_one(batch)
        require_finite(LOSS, self.state.steps, *(float(result[LOSS]) for result in results))
        found = self.scheme.update() if norm is None else norm
        require_finite("gradient's norm", self.state.steps, found)
        for old, new in self.program.statistics.items():
            np.mean([result[new] for result in results], axis=0, out=self.state.statistics[old])
        self.scheme.advance()
        ended, idle = time.perf_counter(), sum(max(done) - max(began, at) for at in done)
        self.counters.note(ended - began, ended - computed, idle, self.scheme.moved(),
                           [update.traffic for update in self.scheme.updates])  # fmt: skip
        self.counters.staleness = self.scheme.staleness
        names, count = (LOSS, *self.program.metrics), len(results)
        return {**{name: math.fsum(float(r[name]) for r in results) / count for name in names}, "norm": found}

    def _one_by_one(self, batch: Arrays) -> Gradients:
        """All gradients are given, each by the instance that has it."""
        running = _Running(self, batch, len(self._instances))
        done = self._instances.each(running.work)
        return running.results, done, running.computed, None

    def _together(self, batch: Arrays) -> Gradients | None:
        """The same and the update in one native call; None where something is to be done in between."""
        if self._joint is None or not can_join([*self._instances.sessions, self.scheme.updates[0].session]):
            return None
        update, request = self.scheme.behind()
        shards = range(self.program.n_shards)
        own = [self._numbers(shard) for shard in shards]
        results, last, done = self._joint.run(batch, own, update.session, request)
        for shard in shards:
            self.scheme.give(0, shard)
        return results, done, max(done), None if last is None else update.done(last)

    def _lasting(self) -> tuple[Arrays, Sequence[Arrays]]:
        """What stays where it is of a step: inputs, and where each shard's gradient goes."""
        outs = [{**self.scheme.place(0, shard).outputs, **self.scheme.compact(0, shard, 0)}
                for shard in range(self.program.n_shards)]  # fmt: skip
        return {**self.scheme.parameters(0), **self.state.statistics}, outs

    def gradient(self, instance: int, shard: int, batch: Arrays) -> list[dict[str, np.ndarray]]:
        """Forward and backward of a shard, of one micro-batch after the other; the sum lies in its place.

        Returns:
            the other outputs, of each micro-batch.
        """
        weights, place = self.scheme.parameters(instance), self.scheme.place(instance, shard)
        found = []
        for i in range(self.program.accumulate):
            to = self._parts[instance] if i else place
            out = {**to.outputs, **self.scheme.compact(instance, shard, i)}
            found.append(self._run(instance, batch, i * self.program.n_shards + shard, weights, out))
            if i:
                place.add(to, self._traffic[instance])
        return found

    def _run(
        self, instance: int, batch: Arrays, piece: int, weights: Arrays, out: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Forward and backward of one piece of the batch; `out`: where its gradient goes."""
        rows = slice(piece * self.program.rows, (piece + 1) * self.program.rows)
        fed = {name: batch[name][rows] for name in self.program.data} | self._numbers(piece)
        found = self._requests[instance].run({**weights, **self.state.statistics}, fed, out)
        return {name: array for name, array in found.items() if name not in out}

    def _numbers(self, piece: int) -> dict[str, np.ndarray]:
        """What one piece is given beside its rows."""
        numbers, counter = {}, self.program.counter
        if counter is not None:
            numbers[counter] = np.array([self.state.steps, piece * self.program.rows], np.int64)
        if self._share is not None:
            numbers[SHARE] = self._share
        return numbers

    def _share_of(self, batch: Arrays) -> np.ndarray | None:
        """What makes the mean over pieces that over the labels that count; None: all do. Raises InvalidInput."""
        if self.program.ignored is None:
            return None
        counted = self.program.n_counted(batch)
        if not counted:
            raise InvalidInput("no label of the batch counts", where=f"input {LABELS!r}",
                               expected=f"others than {self.program.ignored}, too")  # fmt: skip
        return np.array(self.program.n_shards * self.program.accumulate / counted, np.float32)

    def sleep(self, instance: int) -> None:
        """Begin later, where instances begin in groups."""
        if self._delays[instance]:
            time.sleep(self._delays[instance] * 1e-9)

    def _check(self, batch: Arrays) -> None:
        """Refuse a batch of other names or another number of rows. Raises InvalidInput."""
        names = set(self.program.data)
        if set(batch) != names:
            raise InvalidInput("a batch has other tensors than the model", expected=", ".join(sorted(names)),
                               found=", ".join(sorted(map(str, batch))) or "none")  # fmt: skip
        for name in names:
            found = len(batch[name]) if np.ndim(batch[name]) else 0
            if found != self.program.batch:
                raise InvalidInput("a batch has another number of rows", where=f"input {name!r}",
                                   expected=self.program.batch, found=found)  # fmt: skip
        require_classes(self.program, batch)

    def close(self) -> None:
        """End the instances."""
        self._instances.close()
        self.scheme.close()


class _Running:
    """The shards of one batch under way.

    Attributes:
        computed: when the last gradient was there.
    """

    def __init__(self, stepper: Stepper, batch: Arrays, n_instances: int) -> None:
        self._stepper, self._scheme, self._batch = stepper, stepper.scheme, batch
        self._n_instances, self._n_shards = n_instances, stepper.program.n_shards
        self._found: list[list[dict[str, np.ndarray]]] = [[] for _ in range(self._n_shards)]
        self._next, self._has_failed, self.computed = iter(range(self._n_shards)), False, 0.0

    @property
    def results(self) -> list[dict[str, np.ndarray]]:
        """Of all pieces, in an order that does not depend on who was first."""
        return [result for found in self._found for result in found]

    def work(self, instance: int) -> None:
        """What one instance does in a step."""
        try:
            self._stepper.sleep(instance)
            for shard in self._shards(instance):
                self._found[shard] = self._stepper.gradient(instance, shard, self._batch)
                self.computed = max(self.computed, time.perf_counter())
                self._scheme.give(instance, shard)
        except BaseException:
            self._has_failed = True
            self._scheme.failed(instance)
            raise

    def _shards(self, instance: int) -> Iterator[int]:
        """Those that the instance takes, as long as nothing failed."""
        own = range(instance, self._n_shards, self._n_instances) if self._scheme.is_static else self._next
        for shard in own:
            if self._has_failed:
                return
            yield shard
