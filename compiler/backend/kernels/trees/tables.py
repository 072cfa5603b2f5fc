"""What bit vectors read of the tops of trees, as it lies in a plan's weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....ir.graph import Node
from ....ir.ops.tree_nodes import WIDE_BITS_AT, Packed, Unpacked, unpacked
from ....ir.ops.tree_walk import WalkTrees
from ....ir.types import F32, I32, U32, DType
from ....kernel_ir.loops import PtrType
from ...lowering import LowerContext, Operand
from .cost import Tile, tile_of, walked, with_tops
from .node_test import has_own_bits
from .tops import Shape, Tops, shape_of, tops_of

Parameters = list[tuple[str, PtrType, Operand]]


@dataclass(frozen=True)
class Ensemble:
    """The trees of a node, as constants have them, and what they cost a target.

    Attributes:
        x: the element type of features. features: that tops test, of a block, must fit a core's second cache.
        walking: cycles of a row whose walks begin at the roots. top: cycles of a row with tops, by tops.
    """

    op: WalkTrees
    dtype: DType
    nodes: Unpacked
    roots: np.ndarray
    weights: np.ndarray
    shape: Shape
    tile: Tile

    @property
    def walking(self) -> float:
        """Cycles of a row whose walks begin at the roots."""
        return walked(self.tile, self.shape, self.roots)

    def tops(self, least_share: float) -> Tops:
        """Whose nodes have at least a share of their tree's leaves."""
        return tops_of(self.shape, self.nodes, self.roots, least_share)

    def cycles(self, tops: Tops) -> float:
        """Of a row with these."""
        return with_tops(self.tile, self.shape, tops, self.op.features)

    def parameters(self, ctx: LowerContext, tops: Tops) -> Parameters:
        """The tables of the tops' nodes and exits."""
        weights, features = ctx.weights, self.nodes.features[tops.nodes]
        words = features * self.tile.rows
        if has_own_bits(self.op):
            words |= self.nodes.bits[tops.nodes] << WIDE_BITS_AT
        thresholds = self.nodes.thresholds[tops.nodes].astype(self.dtype.numpy)
        found: Parameters = [
            ("tops", PtrType(I32), weights.add(tops.firsts)),
            ("offsets", PtrType(U32), weights.add(words.astype(np.uint32))),
            ("thresholds", PtrType(self.dtype), weights.add(thresholds)),
            ("masks", PtrType(U32), weights.add(tops.masks)),
        ]
        if self.votes_by_exit(tops):
            votes = self.weights[self.nodes.leaves[tops.exits]].astype(self.dtype.numpy)
            return [*found, ("exits", PtrType(self.dtype), weights.add(votes))]
        return [*found, ("exits", PtrType(I32), weights.add(tops.exits))]

    def votes_by_exit(self, tops: Tops) -> bool:
        """Whether an exit is a vote, for the only target."""
        return tops.whole and bool(self.op.one_vote) and self.op.n_targets == 1


def ensemble_of(ctx: LowerContext, node: Node) -> Ensemble | None:
    """The trees of a node; None where its operands are no constants, or form no trees."""
    assert isinstance(node.op, WalkTrees)
    x, words, roots, _, _, weights = (v for v in node.operands)
    if words.data is None or roots.data is None or weights.data is None:
        return None
    op, dtype = node.op, x.tensor.dtype
    packed = Packed(np.asarray(words.data), bool(op.short))
    nodes = unpacked(packed, np.float32 if dtype == F32 else np.float64, op.test, bool(op.missing))
    shape = shape_of(nodes, np.asarray(roots.data))
    if shape is None:
        return None
    tile = tile_of(ctx.target, op, dtype)
    return Ensemble(op, dtype, nodes, np.asarray(roots.data), np.asarray(weights.data), shape, tile)
