"""What steps need of the sizes of a request: found out once for a shape and a block, when the block is first entered.

Owns shapes, bytes and constraints that follow from the inputs' shapes alone. Knows no step's kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from .bindings import Binding, Signature, Timing
from .brief import MOST_NBYTES
from .limits import afford_tensor
from .manifest import Constraint, NativeStep, TensorSpec

Item = Callable[[dict[str, int]], object]


@dataclass
class Needs:
    """What one block needs: constraints that must hold, and what is made of the sizes, in order."""

    constraints: list[Constraint] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


class Records:
    """What is known of requests, by binding and block."""

    def __init__(self, signature: Signature, needs: list[Needs]) -> None:
        self._signature, self._needs = signature, needs

    def learn(self, binding: Binding, number: int) -> tuple[object, ...]:
        """What a block's items are for requests of a binding; also left in the binding.

        Raises:
            InvalidInput: a constraint does not hold, or sizes have no meaning. ResourceLimit: they are too large.
        """
        needs = self._needs[number]
        for constraint in needs.constraints:
            self._signature.check(constraint, binding.values)
        found = tuple(item(binding.values) for item in needs.items) or (None,)
        assert binding.steps is not None
        binding.steps[number] = found
        return found

    def shape(self, spec: TensorSpec) -> Item:
        """A value's shape."""
        return lambda values: self._signature.shape(spec.dims or (), values)

    def nbytes(self, specs: list[TensorSpec]) -> Item:
        """The bytes of values that are made together."""
        return lambda values: sum(self.sized(spec, self._signature.shape(spec.dims or (), values)) for spec in specs)

    @staticmethod
    def sized(spec: TensorSpec, shape: tuple[int, ...]) -> int:
        """A value's bytes. Raises ResourceLimit: no array can have the shape."""
        nbytes = prod(shape) * spec.numpy.itemsize
        if not nbytes:  # numpy counts the axes that are not empty
            afford_tensor(shape, spec.numpy.itemsize, f"value {spec.name!r}")
        return nbytes

    def memory(self, steps: list[NativeStep]) -> Item:
        """The most bytes of steps' arenas, and of each core's scratch."""

        def most(values: dict[str, int]) -> tuple[int, int]:
            sizes = [self._signature.memory(step, values) for step in steps]
            return max(arena for arena, _ in sizes), max(scratch for _, scratch in sizes)

        return most

    def timing(self, step: NativeStep) -> Item:
        """What the step's calls are timed into."""

        def made(values: dict[str, int]) -> Timing:
            timing = Timing()
            if self._signature.memory(step, values)[0] > MOST_NBYTES:
                timing.n_untimed = 0
            return timing

        return made
