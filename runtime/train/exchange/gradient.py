"""A gradient in memory, the optimiser's step on some, and copies of weights."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence

import numpy as np

from ...manifest import TensorSpec
from ...prepared import Prepared
from ..layout import Layout
from ..program import TrainingProgram
from ..state import TrainingState
from .compact import CompactGradients
from .traffic import Traffic

Vectors = Mapping[str, np.ndarray]
NUMBERS = ("rate", "step", "scale")
"""Inputs of an update that are no vectors."""


class Gradient:
    """One vector per group of parameters, but for those that are compact (`compact.py`).

    Attributes:
        vectors: by group. outputs: views of the tensors, by the name of the step's output that goes there.
    """

    def __init__(self, program: TrainingProgram, layouts: Mapping[str, Layout]) -> None:
        """Zeros; the system gives the memory where the first thread writes it."""
        dense = {group: layout for group, layout in layouts.items() if group not in program.compact}
        self.vectors: Vectors = {group: layout.vector() for group, layout in dense.items()}
        views: dict[str, np.ndarray] = {}
        for group, layout in dense.items():
            views.update(layout.views(self.vectors[group]))
        self.outputs = {program.gradients[name]: view for name, view in views.items()}

    def add(self, other: Gradient, traffic: Traffic) -> None:
        """Add another gradient."""
        for group, vector in self.vectors.items():
            traffic.add(vector, other.vectors[group])


class Copy:
    """A copy of the weights, as its owner last read them.

    Attributes:
        parameters: views, by name.
    """

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        """Zeros; to be read before they are used."""
        self._vectors = {group: layout.vector() for group, layout in layouts.items()}
        self.parameters: dict[str, np.ndarray] = {}
        for group, layout in layouts.items():
            self.parameters.update(layout.views(self._vectors[group]))

    def read(self, state: TrainingState, traffic: Traffic) -> None:
        """Take over the weights as they are now."""
        for group, vector in self._vectors.items():
            traffic.copy(vector, state.vectors[f"{group}.weights"])


class Update:
    """The optimiser's step: reads gradients and moves a state.

    Attributes:
        session: of the plan. traffic: operands and results of what was run.
    """

    def __init__(
        self, program: TrainingProgram, state: TrainingState, cores: Sequence[int], n_summed: int,
        compact: CompactGradients,
    ) -> None:  # fmt: skip
        """Start a session on the cores.

        Args:
            n_summed: gradients whose sum is given; their mean moves the weights. compact: of all pieces.
        """
        self.state, self.compact, self.traffic = state, compact, Traffic()
        self._inputs, self._outputs, self._scale = program.update.inputs, program.update.outputs, 1 / n_summed
        self._numbers = {spec.name: np.zeros((), np.float32) for spec in self._inputs if spec.name in NUMBERS}
        self.session = program.update.session(1, cores, len(cores), adapt=False)
        self._of: list[Gradient] | None = None

    def run(self, gradients: Sequence[Gradient], rate: float, number: int) -> float:
        """Move the state, which stays as it was where the norm is not finite; the first gradient becomes the sum.

        Args:
            rate: the learning rate. number: of the update, 1 for the first.

        Returns:
            the norm of the gradient.
        """
        return self.done(self.request(gradients, rate, number).run())

    def request(self, gradients: Sequence[Gradient], rate: float, number: int) -> Prepared:
        """The same as a request of `session` that is still to be run; `done` must follow."""
        numbers = dict(zip(NUMBERS, (rate, number, self._scale), strict=True))
        for name, array in self._numbers.items():
            array[...] = numbers[name]
        if self._of is None or not all(map(operator.is_, gradients, self._of)):
            vectors, results = self._places(gradients)
            self._n_read, self._n_written = (sum(a.nbytes for a in arrays.values()) for arrays in (vectors, results))
            self._request, self._of = self.session.prepare(vectors | self._numbers, results), list(gradients)
        return self._request

    def done(self, found: Mapping[str, np.ndarray]) -> float:
        """Count a request that was run. Returns the norm of the gradient."""
        self.traffic.read += self._n_read
        self.traffic.written += self._n_written
        return float(found["norm"])

    def _places(self, gradients: Sequence[Gradient]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """What lies in memory for an update by some gradients, and where it writes."""
        given, results = self.state.vectors | self.compact.inputs, self.state.results()
        for i, gradient in enumerate(gradients):
            given |= {f"{group}.gradient.{i}": vector for group, vector in gradient.vectors.items()}
        if len(gradients) > 1:
            results |= {f"{group}.gradient": vector for group, vector in gradients[0].vectors.items()}
        return ({spec.name: _shaped(given[spec.name], spec) for spec in self._inputs if spec.name in given},
                {spec.name: _shaped(results[spec.name], spec) for spec in self._outputs if spec.name in results})

    def close(self) -> None:
        """End the session."""
        self.session.close()


def _shaped(vector: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """The tensor that a vector begins with: a table is a group of its own, and updated as a matrix."""
    dims = tuple(d for d in spec.dims or () if isinstance(d, int))
    return vector if vector.shape == dims else vector[: math.prod(dims)].reshape(dims)
