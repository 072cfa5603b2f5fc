"""The pass that keeps constant weights of products in 4 or 8 bits, with a scale for each block of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph
from ...ir.ops.block_products import MatMulNBits
from ...ir.ops.contraction import Conv
from ...ir.types import ceil_div
from ..base import DataflowPass
from ..rewrite import Rewriter
from .compensated import block_scales, compensated_steps
from .layers import Layer, Refuse, layers_of


@dataclass(frozen=True)
class QuantizeWeights(DataflowPass):
    """Round constant weights of MatMul and Gemm to whole numbers; activations and sums stay as they are.

    before: %y = Gemm(%x, %w, %b)
    after:  %1 = com.microsoft::MatMulNBits(%x, %q, %scales); %y = Add(%1, %b)

    Args:
        bits: of a weight, 4 or 8. block_size: weights of a column that share a scale, a power of two from 16 on.
        left_out: names of the results of products that stay as they are.
        moments: name of what products read → f32[K, K], its lines' second moments, by which its products' weights are
            rounded one after the other: see `compensated_steps`; others go to the nearest numbers.
    """

    bits: int = 4
    block_size: int = 32
    left_out: frozenset[str] = frozenset()
    moments: Mapping[str, np.ndarray] = field(default_factory=dict)

    on_bodies = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        layers = [layer for layer in weight_layers(graph, rw.no_match) if layer.name not in self.left_out]
        for layer in layers:
            self._quantize(layer, rw.before(layer.node), rw)
        return bool(layers) or rw.no_match("no product to quantise")

    def _quantize(self, layer: Layer, g: GraphBuilder, rw: Rewriter) -> None:
        node, name = layer.node, layer.name
        columns = layer.weights if layer.channels == 0 else layer.weights.T
        moments = self.moments.get(layer.activations.name)
        if moments is None:
            packed, scales = rounded_blocks(columns, self.bits, self.block_size)
        else:
            steps, scales = compensated_steps(columns, moments, self.bits, self.block_size)
            packed = _packed(steps.reshape(*scales.shape, self.block_size), self.bits)
        n, depth = columns.shape
        op = MatMulNBits(K=depth, N=n, bits=self.bits, block_size=self.block_size)
        q, s = g.const(packed, name=f"{name}.weights"), g.const(scales, name=f"{name}.weights.scale")
        y = g.add(op, [layer.activations, q, s])
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        rw.replace(node, [y if bias is None else g.Add(y, bias)])


def weight_layers(graph: Graph, refuse: Refuse = lambda reason, node: None) -> list[Layer]:
    """The products of a graph whose weights may be rounded alone, in order."""
    found = []
    for layer in layers_of(graph, refuse):
        if isinstance(layer.node.op, Conv):
            refuse("a convolution", layer.node)
        else:
            found.append(layer)
    return found


def rounded_blocks(columns: np.ndarray, bits: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [N, K] to the nearest whole numbers, u8 [N, blocks, size · bits / 8], and scales, f32 [N, blocks].

    The weight of a block that lies farthest from zero becomes the least number, -2^(bits - 1), exactly but for the
    rounding of its scale; what is as far on the other side, the largest one. The zero point is 2^(bits - 1).
    """
    n, depth = columns.shape
    blocks, half = ceil_div(depth, size), 1 << bits - 1
    packed = np.empty((n, blocks, size * bits // 8), np.uint8)
    scales = np.empty((n, blocks), np.float32)
    several = max(1, (1 << 22) // max(1, blocks * size))  # columns at a time: f64 is large
    for first in range(0, n, several):
        some = columns[first : first + several].astype(np.float64)
        rows = np.zeros((len(some), blocks * size))
        rows[:, :depth] = some
        w = rows.reshape(len(some), blocks, size)
        scales[first : first + several] = block_scales(w, half)
        steps = np.rint(w / scales[first : first + several, :, None].astype(np.float64))
        packed[first : first + several] = _packed(np.clip(steps, -half, half - 1), bits)
    return packed, scales


def _packed(steps: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers from -2^(bits - 1) on as u8, with the zero point in their middle, two to a byte of 4 bits."""
    q = (steps + (1 << bits - 1)).astype(np.uint8)
    return q if bits == 8 else q[..., ::2] | q[..., 1::2] << 4
