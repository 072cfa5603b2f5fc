"""BatchNormalization at inference is a scale and a shift per channel: they move into the convolution before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.bands import rounded, scaled
from ...ir.graph import Graph, Node
from ...ir.ops.contraction import Conv, ConvTranspose
from ...ir.ops.normalization import BatchNormalization, scaled_and_shifted
from ...ir.types import F64, TensorType
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class FoldBatchNorm(BlockPass):
    """Fold BatchNormalization into the Conv, ConvTranspose or Gemm that feeds it; alone it becomes Mul and Add.

    before: %1 = Conv(%x, %w, %b); %2 = BatchNormalization(%1, %scale, %bias, %mean, %var)
    after:  %2 = Conv(%x, %w', %b')     with s = scale/√(var+ε): w' = w·s, b' = (b − mean)·s + bias
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if not isinstance(node.op, BatchNormalization) or len(node.outputs) != 1:
                continue
            statistics = [v.data if v is not None else None for v in node.inputs[1:5]]
            if any(s is None for s in statistics) or getattr(node.op, "training_mode", False):
                rw.no_match("statistics are not constant", node)
                continue
            scale, bias, mean, var = (s.astype(np.float64) for s in statistics if s is not None)
            factor = scale / np.sqrt(var + node.op.epsilon)
            if not self._fold(node, factor, bias - mean * factor, rw):
                self._affine(node, factor, bias - mean * factor, rw)
            changed = True
        return changed

    def _fold(self, node: Node, factor: np.ndarray, shift: np.ndarray, rw: Rewriter) -> bool:
        x = node.inputs[0]
        assert x is not None
        conv = x.producer
        if conv is None or type(conv.op) not in (Conv, ConvTranspose) or len(x.uses) != 1 or x.output_uses:
            return rw.no_match("no convolution of a single use feeds it", node)
        w, b = conv.inputs[1], conv.inputs[2] if len(conv.inputs) > 2 else None
        if w is None or w.data is None or (b is not None and b.data is None):
            return rw.no_match("the convolution's weights are not constant", node)
        dtype = w.data.dtype
        if type(conv.op) is Conv:
            weights = scaled(w.data, factor.reshape(-1, *[1] * (w.data.ndim - 1)))
        else:  # [Cin, Cout/group, ...]: output channel = group·(Cout/group) + column
            group = conv.op.group  # type: ignore[attr-defined]
            shaped = w.data.reshape(group, -1, *w.data.shape[1:])
            weights = scaled(shaped, factor.reshape(group, 1, -1, *[1] * (w.data.ndim - 2)))
            weights = None if weights is None else weights.reshape(w.data.shape)
        old = 0.0 if b is None or b.data is None else b.data.astype(np.float64)
        bias = rounded(old * factor + shift, dtype)
        if weights is None or bias is None:
            return rw.no_match("the weights' type does not hold the scaled weights or the bias", node)
        graph = rw.graph
        new_w = graph.add_constant(weights, w.name)
        new_b = graph.add_constant(bias, f"{node.output.name}.bias")
        folded = graph.add_node(conv.op, [conv.inputs[0], new_w, new_b], before=conv, name=conv.name)
        rw.replace(node, folded.output)
        rw.erase(conv)
        return True

    def _affine(self, node: Node, factor: np.ndarray, shift: np.ndarray, rw: Rewriter) -> None:
        x = node.inputs[0]
        assert x is not None and isinstance(x.type, TensorType)
        shape = (-1, *[1] * (x.type.rank - 2))
        work = np.float64 if x.type.dtype == F64 else np.float32
        factors = [v.astype(work).reshape(shape) for v in (factor, shift)]
        g = rw.before(node)
        rw.replace(node, scaled_and_shifted(g, x, *map(g.const, factors)))
