"""Convolutions that read the same values become one with the channels of all: Mofang's horizontal merge.

Owns the pattern and the stacking of weights. Whether a merge pays depends on the machine: who knows it says so by
`pays`; what is saved is reading the input again and a kernel's fixed costs, what is paid is the copy that takes the
parts apart and the zeros that 1×1 kernels are filled up with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.contraction import Conv
from ...ir.ops.shape import Concat
from ...ir.ops.slicing import Split
from ...ir.types import TensorType
from ..base import BlockPass
from ..rewrite import Rewriter

Pays = Callable[[Sequence[Node], Sequence[Node]], bool]
"""Whether the second nodes cost less than the first ones."""


def always(before: Sequence[Node], after: Sequence[Node]) -> bool:
    """Merge wherever it is possible."""
    return True


@dataclass(frozen=True)
class Sibling:
    """A convolution with constant weights and what is fused behind it.

    Attributes:
        conv: the node itself, or the root of its body. w [M, C, kernel...]; b [M].
        pads: before and behind each spatial axis. kind: what must be equal for a merge, kernel and pads aside.
    """

    node: Node
    conv: Node
    w: np.ndarray
    b: np.ndarray | None
    pads: tuple[int, ...]
    kind: tuple[object, ...]

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.w.shape[2:]

    @property
    def channels(self) -> int:
        return int(self.w.shape[0])


@dataclass(frozen=True)
class MergeConvolutions(BlockPass):
    """Merge sibling convolutions of one kernel shape; fill 1×1 kernels up to 3×3 where a sibling has those.

    Where all results go side by side into one Concat, the merged one takes their place there and nothing is copied.

    before: %1 = Conv(%x, %a); %2 = Conv(%x, %b)      after: %3 = Conv(%x, %ab); %1, %2 = Split(%3) {axis=1}
    """

    pays: Pays = always
    widen: bool = True
    """Whether 1×1 kernels may become 3×3 ones."""

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for group in _groups(graph, rw):
            by_kernel: dict[tuple[int, ...], list[Sibling]] = {}
            for sibling in group:
                by_kernel.setdefault(sibling.kernel, []).append(sibling)
            wide = by_kernel.get((3, 3), [])
            thin = by_kernel.get((1, 1), [])
            if self.widen and wide and thin and self._merge(graph, rw, [*wide, *thin]):
                changed = True
                by_kernel.pop((3, 3))
                by_kernel.pop((1, 1))
            for siblings in by_kernel.values():
                changed |= len(siblings) > 1 and self._merge(graph, rw, siblings)
        return changed

    def _merge(self, graph: Graph, rw: Rewriter, siblings: Sequence[Sibling]) -> bool:
        concat = _joined(siblings)
        order = {v: i for i, v in enumerate(concat.operands)} if concat is not None else {}
        members = sorted(siblings, key=lambda s: order.get(s.node.output, 0))
        old = [s.node for s in members]
        merged = _merged(graph, members)
        made = [merged]
        if concat is None:
            sizes = graph.add_constant(np.array([s.channels for s in members], np.int64))
            split = graph.add_node(Split(axis=1), [merged.output, sizes], before=_first(old), name=merged.name,
                                   types=[node.output.type for node in old])  # fmt: skip
            made.append(split)
        if not self.pays(old, made):
            for node in reversed(made):
                constants = [v for v in node.operands if v.data is not None]
                rw.erase(node)
                for v in constants:
                    if not v.is_used:
                        graph.erase_constant(v)
            return rw.no_match("costs more than it saves", old[0])
        if concat is None:
            for node, part in zip(old, made[-1].outputs, strict=True):
                rw.replace(node, part)
            return True
        _take_place(rw, concat, old, merged)
        return True


def _groups(graph: Graph, rw: Rewriter) -> Iterable[list[Sibling]]:
    """Convolutions of the same input that may be merged but for their kernels, in order."""
    found: dict[tuple[object, ...], list[Sibling]] = {}
    for node in graph:
        sibling = _sibling(node, rw)
        if sibling is not None:
            found.setdefault((node.operands[0], sibling.kind), []).append(sibling)
    return [group for group in found.values() if len(group) > 1]


def _sibling(node: Node, rw: Rewriter) -> Sibling | None:
    """The node as a convolution that can be merged."""
    conv = next(iter(node.body)) if isinstance(node.op, Fused) and node.body is not None else node
    op = conv.op
    if not isinstance(op, Conv):
        return None
    outer = dict(zip(node.body.inputs, node.inputs, strict=True)) if node.body is not None else {}
    operands = [outer.get(v, v) for v in conv.operands]
    constants = [None if v is None else v.data for v in operands[1:]]
    if operands[0] is not node.operands[0] or any(data is None for data in constants):
        rw.no_match("the weights are not constant", node)
        return None
    tail = _tail(node, conv)
    if op.group != 1 or op.auto_pad not in ("NOTSET", "VALID") or tail is None or len(node.outputs) != 1:
        rw.no_match("in groups, with automatic pads, or with a second operand behind it", node)
        return None
    w = constants[0]
    assert w is not None
    rank = w.ndim - 2
    pads = op.pads if op.pads is not None and op.auto_pad == "NOTSET" else (0,) * (2 * rank)
    same = (op.strides or (1,) * rank, op.dilations or (1,) * rank)
    begins, ends = pads[:rank], pads[rank:]
    padding = (tuple(2 * p + 1 - k for p, k in zip(begins, w.shape[2:], strict=True)),
               tuple(end - begin for begin, end in zip(begins, ends, strict=True)))  # fmt: skip
    kind = (same, padding, tail, node.output.tensor.layout, w.dtype, len(constants))
    return Sibling(node, conv, w, constants[1] if len(constants) > 1 else None, tuple(pads), kind)


def _tail(node: Node, conv: Node) -> tuple[object, ...] | None:
    """What is fused behind the convolution, None unless it takes each element by itself."""
    if node.body is None:
        return ()
    steps: list[object] = []
    last = conv.output
    for inner in list(node.body)[1:]:
        others = [v for v in inner.operands if v is not last]
        if not isinstance(inner.op, Elementwise) or len(inner.operands) - len(others) != 1:
            return None
        if any(v.data is None or v.data.size != 1 for v in others):
            return None
        places = tuple(None if v is last or v is None else v.data.tobytes() for v in inner.inputs)  # type: ignore[union-attr]
        steps.append((inner.op, places))
        last = inner.output
    return tuple(steps) if node.body.outputs == (last,) else None


def _joined(siblings: Sequence[Sibling]) -> Node | None:
    """The Concat over channels that alone uses all results, and side by side."""
    users = {user for s in siblings for user, _ in s.node.output.uses}
    if len(users) != 1 or any(len(s.node.output.uses) != 1 or s.node.output.output_uses for s in siblings):
        return None
    (concat,) = users
    if not isinstance(concat.op, Concat) or concat.op.axis not in (1, 1 - concat.output.tensor.rank):
        return None
    places = sorted(i for s in siblings for _, i in s.node.output.uses)
    return concat if places == list(range(places[0], places[0] + len(places))) else None


def _merged(graph: Graph, members: Sequence[Sibling]) -> Node:
    """The convolution with the channels of all, before the first of them."""
    kernel = max(s.kernel for s in members)
    model = next(s for s in members if s.kernel == kernel)
    w = np.concatenate([_filled(s.w, kernel) for s in members])
    channels = w.shape[0]
    operands: list[Value | None] = [model.node.operands[0], graph.add_constant(w)]
    if model.b is not None:
        operands.append(graph.add_constant(np.concatenate([s.b for s in members if s.b is not None])))
    before = _first([s.node for s in members])
    types = [_widened(model.node.output.tensor, channels)]
    if model.node.body is None:
        return graph.add_node(model.node.op, operands, before=before, name=before.name, types=types)
    body = model.node.body.clone()
    for v in body.inputs[1:]:
        v.type = TensorType(v.tensor.dtype, (channels, *v.tensor.dims[1:]))
    for inner in body:
        inner.output.type = _widened(inner.output.tensor, channels)
    return graph.add_node(model.node.op, operands, before=before, name=before.name, types=types, bodies={"body": body})


def _widened(t: TensorType, channels: int) -> TensorType:
    return TensorType(t.dtype, (t.dims[0], channels, *t.dims[2:]), t.layout)


def _filled(w: np.ndarray, kernel: tuple[int, ...]) -> np.ndarray:
    """The kernel in the middle of zeros."""
    margins = [((k - own) // 2,) * 2 for k, own in zip(kernel, w.shape[2:], strict=True)]
    return np.pad(w, [(0, 0), (0, 0), *margins])


def _first(nodes: Sequence[Node]) -> Node:
    """The first of some nodes in their graph's order."""
    wanted = set(nodes)
    node = next(iter(wanted))
    assert node.graph is not None
    return next(n for n in node.graph if n in wanted)


def _take_place(rw: Rewriter, concat: Node, old: Sequence[Node], merged: Node) -> None:
    """Let the merged result stand where the old ones stood in the Concat."""
    results = [node.output for node in old]
    operands = [merged.output if v is results[0] else v for v in concat.operands if v not in results[1:]]
    if len(operands) == 1:
        rw.replace(concat, merged.output)
    else:
        joined = rw.graph.add_node(concat.op, operands, before=concat, name=concat.name, types=[concat.output.type])
        rw.replace(concat, joined.outputs)
    for node in old:
        rw.erase(node)


__all__ = ["MergeConvolutions", "always"]
