"""Operands of a kernel over lines, and the element-wise tail fused into it.

Owns the order of a line kernel's operands (the root's reads, then the tail's extra operands, then the outputs), their
strides per axis of the root's input, and the storing of results. It must not know any one root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.graph import Value
from ....ir.types import BOOL, U8, Dim, DType, TensorType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import PtrType
from ...fusion import Fusion, evaluate_body, register_dtype, widen
from ...lowering import KernelCall, LowerContext, Operand
from ..nest import Lane, broadcast_strides, load_lane, store_lane


@dataclass(frozen=True)
class LineOperands:
    """A fusion whose root reads `reads` line by line.

    Attributes:
        reads: (parameter name, value, strides per axis of x); the first is x. axes: the axis of the result that each
            axis of x becomes, None if it is reduced.
    """

    fusion: Fusion
    reads: tuple[tuple[str, Value, tuple[Dim, ...]], ...]
    axes: tuple[int | None, ...]

    @property
    def x(self) -> TensorType:
        return self.reads[0][1].tensor

    @property
    def result(self) -> TensorType:
        return self.fusion.result.tensor

    def rows(self) -> list[tuple[Dim, ...]]:
        """Strides per axis of x, one row per operand."""
        result = self.result
        tail = [o for _, o in self.fusion.extras] + [o for _, o in self.fusion.outputs]
        return [row for _, _, row in self.reads] + [
            tuple(0 if a is None else own[a] for a in self.axes)
            for own in (broadcast_strides(v.tensor, result) for v in tail)]

    def params(self) -> list[tuple[str, PtrType]]:
        return [(name, PtrType(v.tensor.dtype)) for name, v, _ in self.reads] + self.fusion.params()

    def values(self) -> list[Operand]:
        return [*(v for _, v, _ in self.reads), *self.fusion.operands()]

    def call(self, ctx: LowerContext, func: object, work: Dim, scratch: Sequence[Operand] = ()) -> KernelCall:
        """The record; `scratch` operands come last."""
        values = self.values()
        nbytes = sum((v.tensor.nbytes for v in values if isinstance(v, Value)), start=0)
        return KernelCall(func, (*values, *scratch), work, self.fusion.node.name, nbytes=nbytes)  # type: ignore[arg-type]

    def finish(self, k: Builder, lane: Lane, value: KValue) -> None:
        """Apply the tail to one vector of the root's result and store every output of the block."""
        f, first = self.fusion, len(self.reads)
        values = f.rooted(k, value)
        for i, (inner, _) in enumerate(f.extras):
            values[inner] = widen(k, load_lane(k, k[f"x{i}"], lane, first + i))
        evaluate_body(k, f.tail, values)
        self._store(k, lane, values)

    def store_statistics(self, k: Builder, lane: Lane, statistics: Sequence[KValue]) -> None:
        """Store one element per line for the root's further outputs."""
        self._store(k, lane, dict(zip(self.fusion.root.outputs[1:], statistics)))

    def _store(self, k: Builder, lane: Lane, values: dict[Value, KValue]) -> None:
        first = len(self.reads) + len(self.fusion.extras)
        for i, (inner, _) in enumerate(self.fusion.outputs):
            if inner in values:
                ptr = k[f"y{i}"]
                store_lane(k, ptr, lane, first + i, k.cast(values[inner], ptr.dtype))


def accumulator(dtype: DType) -> DType:
    """What elements of `dtype` are combined in: half precisions in f32, bools in bytes."""
    return U8 if dtype == BOOL else register_dtype(dtype)


def lanes_for(ctx: LowerContext, dtype: DType) -> int:
    """Elements of an accumulator in one register (narrow integers use a part of it)."""
    return max(1, ctx.target.vector_bits // max(32, dtype.bits))

