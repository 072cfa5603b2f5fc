"""A cost: the arithmetic and the bytes of one run of a node, and the sizes that they are counted with.

Owns the record and what follows from it alone. It must not know operators: `node_cost` counts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ir.graph import Node, Value
from ..ir.types import Dim, SymDim, TensorType
from ..targets.machine import Machine

TYPICAL = 32  # what a symbol without a given size is taken to be


@dataclass(frozen=True)
class Cost:
    """What one run of a node does.

    Attributes:
        flops: arithmetic by the direct algorithm, a multiply-add is two.
        read_nbytes: of activations, each operand once. written_nbytes: of results.
        weight_nbytes: of constants, as often as they are read (a recurrent layer reads R at every time step).
        parallel_items: pieces that cores can share, at least 1. kind: of work (`backend.costs.KINDS`).
        meetings: how often its cores meet before its end, at every time step of a recurrent layer.
        kernel_flops, kernel_weight_nbytes: what parax's kernel does and reads where that is not the direct algorithm's
            (Winograd, vectors padded with idle lanes, taps in the padding left out); None: the same.
        near_nbytes, near_weight_nbytes: what of the activations and of the weights the caches serve, l2_nbytes: what of
            both the core's own second-level cache serves (planner.partition.cache_model finds out).
    """

    flops: float
    read_nbytes: float
    written_nbytes: float
    weight_nbytes: float
    parallel_items: int
    kind: str
    meetings: int = 0
    kernel_flops: float | None = None
    kernel_weight_nbytes: float | None = None
    near_nbytes: float = 0.0
    near_weight_nbytes: float = 0.0
    l2_nbytes: float = 0.0

    @property
    def nbytes(self) -> float:
        """All bytes moved by the direct algorithm."""
        return self.read_nbytes + self.written_nbytes + self.weight_nbytes

    @property
    def arithmetic(self) -> float:
        """Flops that the kernel does."""
        return self.flops if self.kernel_flops is None else self.kernel_flops

    @property
    def streamed_nbytes(self) -> float:
        """Bytes of constants that the kernel reads."""
        return self.weight_nbytes if self.kernel_weight_nbytes is None else self.kernel_weight_nbytes

    @property
    def cached_nbytes(self) -> float:
        """Bytes that the caches serve, of any level."""
        return self.near_nbytes + self.near_weight_nbytes

    @property
    def far_weight_nbytes(self) -> float:
        """Bytes of constants that come from memory."""
        return max(0.0, self.streamed_nbytes - self.near_weight_nbytes)

    @property
    def far_nbytes(self) -> float:
        """Bytes that cross to memory and back: a line that is written is fetched first, so results count twice."""
        touched = self.read_nbytes + self.written_nbytes
        if not touched:
            return self.far_weight_nbytes
        away = max(0.0, 1 - self.near_nbytes / touched)
        return away * (self.read_nbytes + 2 * self.written_nbytes) + self.far_weight_nbytes

    @property
    def intensity(self) -> float:
        """f32 elements moved per multiply-add; infinite where nothing is computed."""
        return self.nbytes / 4 / (self.flops / 2) if self.flops else math.inf

    def bound(self, machine: Machine) -> str:
        """What limits it on all cores: "call" where neither takes as long as a hand-off, else "memory" or "compute"."""
        compute, memory = self.flops / machine.flops, self.nbytes / machine.bandwidth
        if max(compute, memory) < machine.call_seconds:
            return "call"
        return "memory" if memory > compute else "compute"


CostRule = Callable[[Node, Mapping[str, int]], Cost]
"""What a node costs with these sizes of the symbolic dimensions."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of tensors for given symbols."""

    symbols: Mapping[str, int]

    def of(self, dim: Dim) -> int:
        """A dimension."""
        if not isinstance(dim, SymDim):
            return dim
        return dim.evaluate({name: self.symbols.get(name, TYPICAL) for name in dim.symbols()})

    def shape(self, v: Value) -> tuple[int, ...]:
        """All dimensions; (TYPICAL,) where not even the rank is known."""
        if not isinstance(v.type, TensorType) or v.type.shape is None:
            return (TYPICAL,)
        return tuple(map(self.of, v.type.shape))

    def numel(self, v: Value) -> int:
        """Elements."""
        return math.prod(self.shape(v))

    def nbytes(self, v: Value) -> float:
        """Bytes; four an element where the type is not known."""
        bits = v.type.dtype.bits if isinstance(v.type, TensorType) else 32
        return self.numel(v) * bits / 8
