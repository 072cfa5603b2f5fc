"""The pass that rounds constant weights of products to fp16, which kernels keep in 16 bits where that pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph
from ...ir.types import F16, F32
from ..base import DataflowPass
from ..rewrite import Rewriter
from .layers import Layer, Refuse
from .quantize_weights import weight_layers


@dataclass(frozen=True)
class RoundWeights(DataflowPass):
    """Round constant weights of MatMul and Gemm to the nearest fp16; activations and sums stay as they are.

    before: %y = MatMul(%x, %w)
    after:  %1 = Cast(%w.f16) {to=f32}; %y = MatMul(%x, %1)

    Args:
        left_out: names of the results of products that stay as they are.
    """

    left_out: frozenset[str] = frozenset()

    on_bodies = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        layers = [layer for layer in fp16_layers(graph, rw.no_match) if layer.name not in self.left_out]
        for layer in layers:
            g = rw.before(layer.node)
            rounded = g.const(layer.weights.astype(F16.numpy), name=f"{layer.name}.weights")
            layer.node.set_input(1, g.Cast(rounded, to=F32))
        return bool(layers) or rw.no_match("no product to round")


def fp16_layers(graph: Graph, refuse: Refuse = lambda reason, node: None) -> list[Layer]:
    """The products of a graph whose weights fp16 has numbers near, in order: none rounds to an infinity."""
    found = []
    for layer in weight_layers(graph, refuse):
        with np.errstate(over="ignore"):
            fits = np.isfinite(layer.weights.astype(F16.numpy)).all()
        if fits:
            found.append(layer)
        else:
            refuse("weights beyond the greatest fp16, 65,504", layer.node)
    return found
