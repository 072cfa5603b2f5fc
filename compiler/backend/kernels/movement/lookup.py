"""Gather, GatherElements, GatherND: reads at indices found in memory.

Loops: those of `nest` over the result. Where the innermost axis is one that the indices do not run along (rows of an
embedding), the indices are read once and the row is copied in vectors; else every vector reads its own indices and
gathers. An index out of range reports an error site and reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir.graph import Node
from ....ir.ops.gathering import Gather, GatherElements, GatherND
from ....ir.types import I64, Dim, DType, TensorType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Axes, Lane, Row, emit_row, emit_rows, iteration_axes, load_lane, store_lane, strided_index
from .strided import bits_of


@dataclass(frozen=True)
class Component:
    """A looked-up coordinate: where its index stands beside the first one, its axis's size and stride in the table."""

    offset: Dim
    size: Dim
    stride: Dim


@dataclass(frozen=True)
class Lookup:
    """y[i] = table[table_strides·i + Σ index[index_strides·i + offset]·stride over the components]; i runs over y."""

    y: TensorType
    table_strides: tuple[Dim, ...]
    index_strides: tuple[Dim, ...]
    components: tuple[Component, ...]
    index_dtype: DType

    @property
    def axes(self) -> Axes:
        """The iteration space; operands: table, index, y."""
        return iteration_axes(self.y, [self.table_strides, self.index_strides, self.y.strides])

    def build(self, ctx: LowerContext, name: str, site: int) -> KFunc:
        """The kernel (table, index, y) that reports `site` for an index out of range."""
        bits = bits_of(self.y.dtype)
        k = ctx.kernel(name, [("x", PtrType(bits)), ("index", PtrType(self.index_dtype)), ("y", PtrType(bits))])
        axes = self.axes
        in_rows = axes.strides[1][-1] == 0
        vector = in_rows or bits.nbytes >= 4
        lanes = ctx.lanes * 4 // max(4, bits.nbytes) if vector else 1
        if in_rows:
            emit_rows(k, axes, lambda row: self._row(k, axes, lanes, row, site))
        else:
            emit_rows(k, axes, lambda row: emit_row(k, axes, lanes, lambda lane: self._vector(k, lane, site), row, 1))
        return k.func

    def _row(self, k: Builder, axes: Axes, lanes: int, row: Row, site: int) -> None:
        table, index, y = row.bases

        def look_up() -> None:
            good, offset = resolve(k, self.components, lambda c: k.load(k["index"], index + k.index(c.offset)))
            moved = Row((table + offset, index, y), row.outer, row.begin, row.end)
            copy = lambda lane: store_lane(k, k["y"], lane, 2, load_lane(k, k["x"], lane, 0))  # noqa: E731
            k.if_(good, lambda: emit_row(k, axes, lanes, copy, moved), lambda: k.fail(site))

        k.if_(row.begin < row.end, look_up)

    def _vector(self, k: Builder, lane: Lane, site: int) -> None:
        n = lane.lanes
        step = lane.steps[1]

        def read(c: Component) -> KValue:
            at = lane.offsets[1] + k.index(c.offset)
            if n > 1 and step != 1:
                return k.gather(k["index"], strided_index(k, at, step, n), lane.mask)
            return k.load(k["index"], at, n, lane.mask)

        good, offset = resolve(k, self.components, read)
        if lane.mask is not None:
            good = good & lane.mask
        bad = ~good if lane.mask is None else lane.mask & ~good
        k.if_(k.reduce("or", bad), lambda: k.fail(site))
        at = offset + strided_index(k, lane.offsets[0], lane.steps[0], n) if n > 1 else offset + lane.offsets[0]
        store_lane(k, k["y"], lane, 2, k.gather(k["x"], at, good))


def resolve(k: Builder, components: Sequence[Component], read: Callable[[Component], KValue]) -> tuple[KValue, KValue]:
    """Whether all coordinates are in range, and the table offset they lead to; `read` loads one of the indices."""
    good: KValue | None = None
    offset: KValue | None = None
    for c in components:
        i = k.cast(read(c), I64)
        i = k.select(i < 0, i + k.index(c.size), i)
        inside = (i >= 0) & (i < k.index(c.size))
        step = i * k.index(c.stride)
        good, offset = (inside, step) if good is None or offset is None else (good & inside, offset + step)
    assert good is not None and offset is not None
    return good, offset


@lowers(Gather, windows="any")
def lower_gather(ctx: LowerContext, node: Node) -> KernelCall:
    """One coordinate; the index's axes stand where the table's axis was."""
    x, index, y = node.operands[0].tensor, node.operands[1].tensor, node.output.tensor
    axis = node.op.axis % x.rank  # type: ignore[attr-defined]
    before, after, r = x.strides[:axis], x.strides[axis + 1 :], index.rank
    lookup = Lookup(y, (*before, *([0] * r), *after), (*([0] * len(before)), *index.strides, *([0] * len(after))),
                    (Component(0, x.dims[axis], x.strides[axis]),), index.dtype)
    return _call(ctx, node, lookup)


@lowers(GatherElements, windows="any")
def lower_gather_elements(ctx: LowerContext, node: Node) -> KernelCall:
    """One coordinate; every element has its own index."""
    x, index, y = node.operands[0].tensor, node.operands[1].tensor, node.output.tensor
    axis = node.op.axis % x.rank  # type: ignore[attr-defined]
    strides = tuple(0 if a == axis else s for a, s in enumerate(x.strides))
    return _call(ctx, node, Lookup(y, strides, index.strides, (Component(0, x.dims[axis], x.strides[axis]),),
                                   index.dtype))


@lowers(GatherND, windows="any")
def lower_gather_nd(ctx: LowerContext, node: Node) -> KernelCall:
    """As many coordinates as the last axis of the indices is long."""
    x, index, y = node.operands[0].tensor, node.operands[1].tensor, node.output.tensor
    b: int = node.op.batch_dims  # type: ignore[attr-defined]
    length = index.dims[-1]
    assert isinstance(length, int)
    middle, tail = index.rank - 1 - b, x.strides[b + length :]
    parts = tuple(Component(j * index.strides[-1], x.dims[b + j], x.strides[b + j]) for j in range(length))
    lookup = Lookup(y, (*x.strides[:b], *([0] * middle), *tail), (*index.strides[:-1], *([0] * len(tail))), parts,
                    index.dtype)
    return _call(ctx, node, lookup)


def _call(ctx: LowerContext, node: Node, lookup: Lookup) -> KernelCall:
    x, index, y = node.operands[0], node.operands[1], node.output
    site = ctx.error_site(node, "an index is out of range")
    func = ctx.function("lookup", node, lambda name: lookup.build(ctx, name, site), site)
    return KernelCall(func, (x, index, y), lookup.axes.work, node.name, nbytes=2 * y.tensor.nbytes)
