"""Taps of a convolution that meet nothing but padding are left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node
from ...ir.ops.contraction import Conv
from ...ir.ops.geometry import WindowGeometry
from ...ir.types import ceil_div
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class TrimTaps(BlockPass):
    """Cut the first and last taps of constant weights that lie beside the image for every output.

    Small images have them: a 3×3 convolution of 1×1 pixels is its middle tap alone, and so is one whose dilation is
    the image's size or more, as in the pyramids of DeepLab. Padding is not read (see `FoldPad`), so what is left out
    added nothing.

    before: %y = Conv(%x: f32[N,8,4,4], %w: f32[8,8,3,3]) {dilations=[6,6], pads=[6,6,6,6]} : f32[N,8,4,4]
    after:  %y = Conv(%x, the middle of %w: f32[8,8,1,1]) : f32[N,8,4,4]
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if type(node.op) is Conv and _trimmed(node, rw):
                changed = True
        return changed


def _trimmed(node: Node, rw: Rewriter) -> bool:
    """Replace the node, if some of its taps meet padding alone."""
    x, w, *rest = node.inputs
    assert x is not None and w is not None and isinstance(node.op, Conv)
    if w.data is None:
        rw.no_match("the weights are no constant", node)
        return False
    geometry = node.op.geometry(x.tensor, w.tensor)
    kept = [_kept(geometry, axis) for axis in range(geometry.rank)]
    if all(last - first == size for (first, last, *_), size in zip(kept, geometry.kernel, strict=True)):
        rw.no_match("every tap meets the image, or a size is open", node)
        return False
    pads = [side[end] for end in (0, 1) for *_, side in kept]
    if not all(isinstance(n, int) for n in pads):  # of another axis, by auto_pad, where a stride divides an open size
        rw.no_match("the padding is that of an open size", node)
        return False
    taps = (slice(None), slice(None), *(slice(first, last) for first, last, *_ in kept))
    weights = rw.before(node).const(np.ascontiguousarray(w.data[taps]))
    kernel = tuple(last - first for first, last, *_ in kept)
    dilations = tuple(d if k > 1 else 1 for d, k in zip(geometry.dilations, kernel, strict=True))
    op = node.op.replace(
        auto_pad="NOTSET",
        kernel_shape=kernel,
        dilations=dilations if any(d != 1 for d in dilations) else None,
        pads=tuple(pads),
    )
    rw.replace_op(node, op, [x, weights, *rest])
    return True


def _kept(s: WindowGeometry, axis: int) -> tuple[int, int, tuple[int, int]]:
    """Of an axis: the first tap that is kept, the one behind the last, and the pads that they need."""
    size, stride, dilation = s.kernel[axis], s.strides[axis], s.dilations[axis]
    known = s.input[axis], s.output[axis], s.pads_begin[axis], s.pads_end[axis]
    if not all(isinstance(n, int) for n in known):
        return 0, size, (s.pads_begin[axis], s.pads_end[axis])  # type: ignore[return-value]
    n_in, n_out, begin, end = (int(n) for n in known)  # type: ignore[arg-type]
    met = []
    for tap in range(size):
        output = max(0, ceil_div(begin - tap * dilation, stride))  # the first whose window has the tap past the margin
        if output < n_out and output * stride - begin + tap * dilation < n_in:
            met.append(tap)
    whole = 0, size, (begin, end)
    if not met:
        return whole
    first, last = min(met[0], begin // dilation), met[-1] + 1
    before = begin - first * dilation
    after = max(0, (n_out - 1) * stride + (last - 1 - first) * dilation + 1 - n_in - before)
    outputs = (n_in + before + after - (last - 1 - first) * dilation - 1) // stride + 1
    return (first, last, (before, after)) if outputs == n_out else whole
