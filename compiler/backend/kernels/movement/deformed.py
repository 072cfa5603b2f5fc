"""DeformedWindows: samples at moved positions, as the columns of a product.

    for image, group of offsets, tap, row of positions (work items):
        for vectors of neighbouring positions: their elements and weights, once
            for each channel of the group: gather, weigh and store

A sample between elements is a sum over the corners around it, those beyond the image being 0, as in ONNX Runtime's
deform_conv.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ....ir.graph import Node
from ....ir.ops.deformable import DeformedWindows
from ....ir.types import I64, Dim, DType, TensorType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import decode, emit_span


@lowers(DeformedWindows)
def lower_deformed_windows(ctx: LowerContext, node: Node) -> KernelCall:
    """One kernel for any number of axes."""
    assert isinstance(node.op, DeformedWindows)
    x, offset, y = node.operands[0].tensor, node.operands[1].tensor, node.output.tensor
    names = ("x", "offset", "mask")[: len(node.operands)]
    sizes: tuple[Dim, ...] = (x.dims[0], node.op.offset_group, *node.op.kernel_shape, *offset.dims[2:-1])
    lanes = max(1, ctx.target.vector_bits // x.dtype.bits)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [*((n, PtrType(x.dtype)) for n in names), ("y", PtrType(y.dtype))])
        windows = _Windows(k, node.op, x, offset, len(names) > 2)  # type: ignore[arg-type]

        def item(work: KValue, _: list[KValue]) -> None:
            windows.row(decode(k, work, sizes), lanes)

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function("deformed_windows", node, build)
    return KernelCall(func, (*node.operands, node.output), prod(sizes), node.name, nbytes=x.nbytes + y.nbytes)


@dataclass(frozen=True)
class _Corner:
    """One neighbour on an axis, of each lane: its place, its weight, whether it lies inside."""

    place: KValue
    weight: KValue
    inside: KValue


class _Windows:
    """Emits rows of positions."""

    def __init__(self, k: Builder, op: DeformedWindows, x: TensorType, offset: TensorType, masked: bool) -> None:
        self.k, self.op, self.masked = k, op, masked
        self.dtype: DType = x.dtype
        self.rank = len(op.kernel_shape)
        self.sizes = [k.index(d) for d in x.dims[2:]]
        self.positions = [k.index(d) for d in offset.dims[2:]]
        self.n_positions = k.index(prod(offset.dims[2:]))
        self.channels = k.index(x.dims[1])
        self.in_group = k.udiv(self.channels, op.offset_group)
        self.image = k.index(prod(x.dims[2:]))

    def row(self, at: Sequence[KValue], lanes: int) -> None:
        """Positions along the last axis. `at`: image, group, tap by axes, the other axes of the position."""
        k, op, rank = self.k, self.op, self.rank
        n, group, *rest = at
        tap, outer = rest[:rank], rest[rank:]
        number = k.index(0)
        for t, taps in zip(tap, op.kernel_shape):
            number = number * taps + t
        row = k.index(0)
        for i, positions in zip(outer, self.positions):
            row = row * positions + i
        row = row * self.positions[-1]
        of_tap = (n * op.offset_group + group) * math.prod(op.kernel_shape) + number
        first = n * self.channels + group * self.in_group

        def vector(j: KValue, width: int, mask: KValue | None) -> None:
            corners = []
            for axis in range(rank):
                place = (of_tap * rank + axis) * self.n_positions + row + j
                moved = k.load(k["offset"], place, width, mask)
                corners.append(self._corners(axis, tap[axis], [*outer, j][axis], axis == rank - 1, moved))
            factor = k.load(k["mask"], of_tap * self.n_positions + row + j, width, mask) if self.masked else None

            def channel(c: KValue, _: list[KValue]) -> None:
                total = self._sum((first + c) * self.image, corners)
                total = total if factor is None else total * factor
                column = (first + c) * math.prod(op.kernel_shape) + number
                k.store(k["y"], column * self.n_positions + row + j, total, mask)

            k.for_(0, self.in_group, 1, [], channel)

        emit_span(k, k.index(0), self.positions[-1], lanes, vector)

    def _corners(self, axis: int, tap: KValue, at: KValue, last: bool, moved: KValue) -> list[_Corner]:
        """The two neighbours on an axis of a tap at position `at`, or, on the last axis, of the lanes from it on."""
        k, op, size, lanes = self.k, self.op, self.sizes[axis], moved.lanes
        start = k.splat(at * op.strides[axis] + (tap * op.dilations[axis] - op.pads[axis]), lanes)
        if last and lanes > 1:
            start = start + k.ramp(lanes) * op.strides[axis]
        n = k.splat(k.cast(size, self.dtype), lanes)
        position = k.clip(k.cast(start, self.dtype) + moved, k.splat(k.const(-2, self.dtype), lanes), n + 1)
        low = k.math("floor", position)
        beyond = position - low
        found = []
        for place, weight in ((low, 1 - beyond), (low + 1, beyond)):
            inside = (place >= 0) & (place < n)
            index = k.clip(k.cast(place, I64), k.splat(k.index(0), lanes), k.splat(size - 1, lanes))
            found.append(_Corner(index, weight, inside))
        return found

    def _sum(self, image: KValue, corners: Sequence[Sequence[_Corner]]) -> KValue:
        k = self.k
        total: KValue | None = None
        for combination in product(*corners):
            place, weight, inside = combination[0].place, combination[0].weight, combination[0].inside
            for corner, size in zip(combination[1:], self.sizes[1:]):
                place = place * size + corner.place
                weight, inside = weight * corner.weight, inside & corner.inside
            value = k.gather(k["x"], place + image, inside) if place.lanes > 1 else k.load(k["x"], place + image)
            term = weight * k.select(inside, value, k.splat(k.const(0, self.dtype), place.lanes))
            total = term if total is None else total + term
        assert total is not None
        return total
