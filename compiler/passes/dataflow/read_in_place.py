"""Slice and Split without copies: readers take the part where it lies in the whole.

Owns which parts become views; where the bytes of one lie is `ir.views`' knowledge, which kernels read rows further
apart than they are long is the backend's (`takes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.internal import Part, Result
from ...ir.ops.shape import Concat
from ...ir.ops.slicing import Range, Slice, Split
from ...ir.types import TensorType
from ...ir.views import is_window, view_source
from ..base import StepPass
from ..rewrite import Rewriter
from .write_in_place import Takes, always

LEAST_RUN = 64  # bytes: readers of shorter runs gather them, which takes longer than a copy


@dataclass(frozen=True)
class ReadInPlace(StepPass):
    """Make views of what a Slice or Split takes, where all readers can work on a window of the whole.

    before: %1 = Slice(%x, [1], [3], [0]) : f32[2,8]; %2 = Exp(%1)
    after:  %1 = parax::Part(%x) {axes=[0], starts=[1], ends=[3]} : f32[2|4,8]; %2 = Exp(%1)
    """

    takes: Takes = always

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class. All parts of a Split, or none."""
        changed = False
        for node in graph.nodes_in_order():
            if not isinstance(node.op, (Slice, Split)) or not isinstance(node.operands[0].type, TensorType):
                continue
            used = [(v, op) for v, op in zip(node.outputs, _parts(node), strict=True) if v.is_used]
            if used and all(self._may_be_view(node, v, op, rw) for v, op in used):
                for v, op in used:
                    self._replace(node, v, op, rw)
                rw.erase(node)
                changed = True
        return changed

    def _replace(self, node: Node, v: Value, op: Part | None, rw: Rewriter) -> None:
        """Let the part take the place, and the name, of the copy."""
        assert op is not None
        made, name = rw.before(node).add(op, [node.operands[0]]), v.name
        rw.graph.rename(v, f"{name}.copied")
        rw.graph.rename(made, name)
        rw.graph.replace_all_uses_with(v, made)

    def _may_be_view(self, node: Node, v: Value, op: Part | None, rw: Rewriter) -> bool:
        x = node.operands[0].tensor
        if op is None:
            return rw.no_match("steps, or bounds that are no numbers", node)
        if v.output_uses or v.known is not None or is_window(v) or v.tensor.axis_order != x.axis_order:
            return rw.no_match("returned, known, in a place already, or in another order", v)
        window = v.tensor.with_window(x.dims if x.within is None else x.within)
        inner = x.axis_order[-1]
        run = v.tensor.dims[inner] if inner in op.axes else LEAST_RUN
        if not window.is_contiguous and not (isinstance(run, int) and run * x.dtype.nbytes >= LEAST_RUN):
            return rw.no_match("short runs", v)
        readers = [user for user, _ in v.uses]
        if any(isinstance(r.op, (Concat, Result)) or view_source(r) is not None for r in readers):
            return rw.no_match("joined, handed on, or seen in another shape", v)
        for reader in readers:
            if not self.takes(reader, v, window):
                return rw.no_match(f"no window for {reader.op.name}", v)
        return True


def _parts(node: Node) -> Sequence[Part | None]:
    """For each output what it takes of the operand; None for what is no plain part."""
    x = node.operands[0].tensor
    if isinstance(node.op, Slice):
        return [_part(enumerate(node.op.ranges(node.context())), x)]
    assert isinstance(node.op, Split)
    axis, sizes = node.op.sizes(node.context())
    found: list[Part | None] = []
    at = 0
    for size in sizes:
        if not isinstance(size, int):
            return [None] * len(sizes)
        found.append(_part([(axis, Range(at, 1, size))], x))
        at += size
    return found


def _part(ranges: Iterable[tuple[int, Range]], x: TensorType) -> Part | None:
    cut: list[tuple[int, int, int]] = []
    for axis, r in ranges:
        if (r.start, r.step) == (0, 1) and r.count == x.dims[axis]:
            continue
        if r.step != 1 or not (isinstance(r.start, int) and isinstance(r.count, int) and r.count):
            return None
        if not isinstance(x.dims[axis], int):
            return None
        cut.append((axis, r.start, r.start + r.count))
    if not cut:
        return None
    axes, starts, ends = zip(*cut, strict=True)
    return Part(axes=axes, starts=starts, ends=ends)


__all__ = ["ReadInPlace"]
