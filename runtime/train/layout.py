"""Where parameters lie: those of a group in one flat vector, so that gradients and updates are of one piece.

(One contiguous gradient buffer: the gradients are written where they are summed, nothing is packed.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import ResourceLimit

LINE = 16  # elements of f32 in a cache line: each tensor begins at one, and no two share one


@dataclass(frozen=True)
class Place:
    """A tensor within its group's vector: `offset` and the sizes are counted in elements."""

    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Places of the tensors of one group, in order, and the length of the vector; what lies between stays 0."""

    places: Mapping[str, Place]
    length: int

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> Layout:
        """The tensors one behind the other, each from a cache line on."""
        places, at = {}, 0
        for name, shape in shapes.items():
            places[name] = place = Place(at, tuple(shape))
            at += -(-place.size // LINE) * LINE
        return cls(places, at)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each tensor with what lies behind it, in order; their sum is the length."""
        return tuple(-(-place.size // LINE) * LINE for place in self.places.values())

    def vector(self) -> np.ndarray:
        """A vector of zeros, f32, that begins at a cache line.

        Raises:
            ResourceLimit: no memory.
        """
        try:
            raw = np.zeros(self.length + LINE, np.float32)
        except MemoryError as error:
            raise ResourceLimit("no memory for parameters", found=f"{4 * self.length} bytes") from error
        skip = -raw.ctypes.data % (4 * LINE) // 4
        return raw[skip : skip + self.length]

    def views(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The tensors within a vector, by name."""
        return {name: vector[p.offset : p.offset + p.size].reshape(p.shape) for name, p in self.places.items()}
