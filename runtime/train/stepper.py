"""One step of synchronous training: every instance takes shards of the batch, then all cores move the parameters.

    for each shard, on whatever instance:   loss, gradient[shard] = step(rows of the shard, weights)
    barrier
    all cores:                              weights = update(weights, (gradient[0] + gradient[1] + …) · scale)

All instances read one copy of the weights. The update adds the shards' gradients in a fixed order and moves the
weights in the same kernel, so that the number of instances, and who was first, changes no bit; a core reads every
shard's part of the gradient once, and nobody locks. (ParaX's gradient server, where each instance adds its gradient to
a global one under locks, moves three times the weights' size per instance: SPEC 1.3.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import Diverged, InvalidInput
from .program import LOSS, TrainingProgram
from .state import TrainingState

Arrays = Mapping[str, np.ndarray]


class Stepper:
    """Instances of a training program, ready for steps.

    Attributes:
        program, state: what is trained. instances: that share the shards of a batch.
    """

    def __init__(self, program: TrainingProgram, state: TrainingState, cores: Sequence[int], instances: int) -> None:
        """Start the instances: each has an equal share of the cores."""
        self.program, self.state, self.instances = program, state, instances
        share = max(1, len(cores) // instances)
        self._steps = program.step.session(instances, cores[: share * instances], share, adapt=False)
        self._update = program.update.session(1, cores, len(cores), adapt=False)
        self._gradients = [{group: layout.vector() for group, layout in state.layouts.items()}
                           for _ in range(program.n_shards)]  # fmt: skip
        self._outputs = [self._places(vectors) for vectors in self._gradients]

    def _places(self, vectors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Where a shard's gradients go, by the name of the output."""
        views: dict[str, np.ndarray] = {}
        for group, layout in self.state.layouts.items():
            views.update(layout.views(vectors[group]))
        return {self.program.gradients[name]: view for name, view in views.items()}

    def step(self, batch: Arrays, rate: float) -> dict[str, float]:
        """One step on a batch of `program.batch` rows.

        Args:
            rate: the learning rate.

        Returns:
            the loss and the metrics, means over the batch, and the gradient's `norm`.

        Raises:
            InvalidInput: a wrong batch, or a value in it that the model refuses. Diverged: the loss or the gradient
                is not finite. The parameters are as before.
        """
        results = self.shards(batch)
        self._require_finite(LOSS, *(float(result[LOSS]) for result in results))
        found = self._updated(rate)
        self._require_finite("gradient's norm", found)
        for old, new in self.program.statistics.items():
            np.mean([result[new] for result in results], axis=0, out=self.state.statistics[old])
        self.state.advance()
        names, count = (LOSS, *self.program.metrics), len(results)
        return {**{name: math.fsum(float(r[name]) for r in results) / count for name in names}, "norm": found}

    def shards(self, batch: Arrays) -> list[dict[str, np.ndarray]]:
        """Forward and backward of every shard; the gradients lie in their places."""
        shared = {**self.state.parameters, **self.state.statistics}
        self._check(batch)
        rows, running = self.program.rows, []
        for i in range(self.program.n_shards):
            part = {name: batch[name][i * rows : (i + 1) * rows] for name in self.program.data}
            if self.program.counter is not None:
                part[self.program.counter] = np.array([self.state.steps, i * rows], np.int64)
            running.append(self._steps.submit({**shared, **part}, out=self._outputs[i]))
        errors = [error for future in running if (error := future.exception()) is not None]  # waits for all of them
        if errors:
            raise errors[0]
        return [future.result() for future in running]

    def _updated(self, rate: float) -> float:
        numbers = {"rate": rate, "step": self.state.steps + 1, "scale": 1 / self.program.n_shards}
        feeds: dict[str, np.ndarray] = {name: np.array(value, np.float32) for name, value in numbers.items()}
        feeds.update(self.state.vectors)
        for i, vectors in enumerate(self._gradients):
            feeds.update({f"{group}.gradient.{i}": vector for group, vector in vectors.items()})
        found = self._update.run({spec.name: feeds[spec.name] for spec in self.program.update.inputs},
                                 out=self.state.next_vectors())  # fmt: skip
        return float(found["norm"])

    def _require_finite(self, what: str, *numbers: float) -> None:
        if not all(map(math.isfinite, numbers)):
            raise Diverged(f"the {what} is not finite", where=f"step {self.state.steps + 1}", found=numbers[0],
                           hint="try a smaller learning rate, clip gradients, or look for NaN in the data")  # fmt: skip

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

    def close(self) -> None:
        """End the instances."""
        self._steps.close()
        self._update.close()
