"""A 1×1 convolution moves into the depthwise-pointwise block that reads it: MobileNet-v2's inverted residual as one.

Owns which blocks grow. Their kernel expands a few rows at a time into memory of its core, so that the expanded tensor,
the largest of the network, is never stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.call_rows import ANY, CallRows
from ...ir.graph import Graph, Node
from ...ir.ops.base import Fused
from ...ir.types import F32
from ..base import BlockPass
from ..rewrite import Rewriter
from .convolution_chain import (
    CHANNELS_LAST,
    is_pointwise,
    is_read_once,
    merge_with_readers,
    outer,
    reader,
    root,
    root_operands,
    tail_reads,
)


@dataclass(frozen=True)
class FuseExpansion(BlockPass):
    """Merge a pointwise convolution, with its tail, into the depthwise-pointwise block behind it.

    before: %1 = Conv(%x, %u); %2 = fused<DepthwisePointwise>(%1, %w, %v) {…}
    after: %2 = fused<InvertedResidual>(%x, %u, %w, %v) {…}

    Cores that share an image expand the rows between their parts twice, and tiles end with each row: that pays where
    the expanded tensor would go through the last-level cache or memory.

    Attributes:
        least_nbytes: of one image's expanded tensor; smaller ones stay in the second-level cache anyway.
        most_depth: channels of the input; with more, the multiplication outweighs what storing its result takes
            (measured: MobileNet-v1's one of 64 channels gains nothing at batch 1 and loses 3 % of the network at 8).
        calls: what images of open sizes are judged by.
    """

    least_nbytes: int = 1 << 20
    most_depth: int = 32
    calls: CallRows = ANY

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        return merge_with_readers(graph, rw, filter(is_pointwise, graph), self._refusal, "InvertedResidual")

    def _refusal(self, node: Node) -> str | None:
        """Why `node` may not join its reader, None if it may."""
        between = node.output
        if not is_read_once(node):
            return "the expanded tensor has other readers"
        second = reader(node)
        if not (isinstance(second.op, Fused) and second.op.kind == "DepthwisePointwise"):
            return "no depthwise-pointwise block reads the expanded tensor"
        if outer(second, root(second).inputs[0]) is not between:
            return "the block reads the expanded tensor elsewhere than in its depthwise convolution"
        if tail_reads(node):
            return "the expansion's tail reads other tensors"
        x = root_operands(node)[0]
        if any(v.tensor.dtype != F32 for v in (*root_operands(node), between)):
            return "not f32"
        if any(v.tensor.axis_order != CHANNELS_LAST for v in (x, between)):
            return "not channels-last"
        sizes = [math.prod(self.calls.usual(v.tensor.dims[1:])) for v in (x, between, second.output)]
        if sizes[1] * 4 < self.least_nbytes:
            return "a small tensor"
        if sizes[1] < max(sizes[0], sizes[2]):
            return "the tensor between is smaller than the block's input or result"
        depth = x.tensor.dims[1]
        if not isinstance(depth, int) or depth > self.most_depth:
            return "a deep product"
        return None
