"""A depthwise convolution moves into the 1×1 convolution that reads it.

Owns which pairs become one block. The kernel of a block computes a band of the depthwise rows into memory of its core
and multiplies it from there, so that the tensor between the two is never stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.call_rows import ANY, SEVERAL, CallRows
from ...ir.graph import Graph, Node
from ...ir.ops.contraction import Conv
from ...ir.types import F32
from ..base import BlockPass
from ..rewrite import Rewriter
from .convolution_chain import (
    CHANNELS_LAST,
    has_known_padding,
    is_depthwise,
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
class FuseDepthwise(BlockPass):
    """Merge a depthwise convolution, with its tail, into the pointwise one behind it.

    before: %1 = Conv(%x, %w) {group=8}; %2 = Conv(%1, %v)      after: %2 = fused<DepthwisePointwise>(%x, %w, %v) {…}

    A block reads x while it writes y. Where both are larger than the tensor d between them, x and d, then d and y, take
    less memory than x and y, and where the last-level cache does not hold those, what that saves it is worth more than
    not storing d. Measured on MobileNet-v1's strided layers at micro-batches of 4 on 2 × 1 core: of a Zen 4 with 16 MiB
    a core, 10 % of their time lost; of a Sapphire Rapids with 32 to 64 MiB, 5 % of the whole model's time won.

    Attributes:
        least_pixels: of the depthwise result's image. Smaller images have too few rows to share among cores while each
            core still uses every panel of the pointwise weights often.
        cache_nbytes: of the last-level cache, a core's share: that much x and y may take in a call of SEVERAL rows.
        calls: what images of open sizes are judged by.
    """

    least_pixels: int = 196
    cache_nbytes: float = 0.0
    calls: CallRows = ANY

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        grouped = (node for node in graph if isinstance(op := root(node).op, Conv) and op.group > 1)
        return merge_with_readers(graph, rw, grouped, self._refusal, "DepthwisePointwise")

    def _refusal(self, node: Node) -> str | None:
        """Why `node` may not join its reader, None if it may."""
        between = node.output
        if not is_read_once(node):
            return "the depthwise result has other readers"
        second = reader(node)
        pointwise = root(second)
        if not isinstance(pointwise.op, Conv) or outer(second, pointwise.inputs[0]) is not between:
            return "no convolution reads the depthwise result"
        t = between.tensor
        if t.rank != 4 or not all(isinstance(v.tensor.dims[1], int) for v in (between, second.output)):
            return "not images of a known number of channels"
        if math.prod(self.calls.usual(t.dims[2:])) < self.least_pixels:
            return "small images"
        if not is_depthwise(node) or not is_pointwise(second):
            return "not a depthwise and a pointwise convolution of constant weights"
        if not has_known_padding(node):
            return "padding of unknown size"
        values = [*root_operands(node), *root_operands(second), between, second.output]
        if any(v.tensor.dtype != F32 for v in values):
            return "not f32"
        tensors = [root_operands(node)[0], between, second.output]
        if any(v.tensor.axis_order != CHANNELS_LAST for v in tensors):
            return "not channels-last"
        if tail_reads(node):
            return "the depthwise tail reads other tensors"
        sizes = [math.prod(self.calls.usual(v.tensor.dims[1:])) for v in tensors]
        nbytes = 4 * SEVERAL * (sizes[0] + sizes[2])
        if min(sizes[0], sizes[2]) > sizes[1] and nbytes > self.cache_nbytes:
            return "input and result at once take more memory than either with the tensor between"
        return None
