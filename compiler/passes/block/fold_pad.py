"""Margins of zeros become the pads of the window that reads them."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.bands import is_finite
from ...ir.graph import Graph, Node
from ...ir.ops.contraction import Conv
from ...ir.ops.pool import AveragePool
from ...ir.ops.slicing import Pad
from ...ir.types import TensorType
from ..base import BlockPass
from ..rewrite import Rewriter
from .algebraic_simplification import uniform


@dataclass(frozen=True)
class FoldPad(BlockPass):
    """Fold a Pad by zeros on spatial axes into a Conv, or an AveragePool that counts its padding.

    before: %1 = Pad(%x, [0,0,1,1,0,0,1,1]); %2 = Conv(%1, %w)      after: %2 = Conv(%x, %w) {pads=[1,1,1,1]}
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if type(node.op) not in (Conv, AveragePool):
                continue
            pads = _combined(node, rw)
            if pads is not None:
                pad = node.operands[0].producer
                assert pad is not None
                op = node.op.replace(pads=tuple(pads), auto_pad="NOTSET")
                rw.replace_op(node, op, [pad.operands[0], *node.inputs[1:]])
                changed = True
        return changed


def _combined(node: Node, rw: Rewriter) -> list[int] | None:
    """The window's pads and those before it together."""
    pad = node.operands[0].producer
    if pad is None or not isinstance(pad.op, Pad) or not isinstance(pad.operands[0].type, TensorType):
        rw.no_match("no Pad feeds it", node)
        return None
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    if pad.op.mode != "constant" or (value is not None and uniform(value) != 0) or pad.inputs[1].known is None:  # type: ignore[union-attr]
        rw.no_match("the margin is not of zeros", node)
        return None
    widths = pad.op.widths(pad.context())
    grows = all(isinstance(w, int) and w >= 0 for pair in widths for w in pair)
    if not grows or any(w != 0 for pair in widths[:2] for w in pair):
        rw.no_match("pads the batch or the channels, or crops", node)
        return None
    op = node.op
    weights = node.operands[1].data if type(op) is Conv else None
    if weights is not None and not is_finite(weights):
        rw.no_match("a zero of the margin times an infinite weight is NaN, pads are not read", node)
        return None
    if op.auto_pad not in ("NOTSET", "VALID"):  # type: ignore[attr-defined]
        rw.no_match("auto_pad depends on the padded size", node)
        return None
    if isinstance(op, AveragePool) and (not op.count_include_pad or op.ceil_mode):
        rw.no_match("the pool leaves its own padding out of the mean", node)
        return None
    own = op.pads if op.pads is not None and op.auto_pad == "NOTSET" else (0,) * (2 * len(widths[2:]))  # type: ignore[attr-defined]
    added = [*(w[0] for w in widths[2:]), *(w[1] for w in widths[2:])]
    pads = [int(a) + int(b) for a, b in zip(own, added, strict=True)]  # type: ignore[arg-type]
    rank = len(pads) // 2
    if isinstance(op, AveragePool):
        dilations = op.dilations or (1,) * rank
        extents = [(size - 1) * d + 1 for size, d in zip(op.kernel_shape, dilations, strict=True)]
        if any(pad >= extent for pad, extent in zip(pads, extents * 2, strict=True)):
            rw.no_match("a window would lie in the padding alone", node)
            return None
    return pads
