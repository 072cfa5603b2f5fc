"""The pass that quantises: pairs of QuantizeLinear and DequantizeLinear around activations, i8 weights, i32 biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.quantization import DequantizeLinear, QuantizeLinear
from ..base import DataflowPass
from ..rewrite import Rewriter
from .affine import Affine, ValueRange, affine_of, least_scales, quantized_bias, quantized_weights
from .layers import Layer, readers_of, shared_ranges


@dataclass(frozen=True)
class Quantize(DataflowPass):
    """Round activations and constant weights of Conv, Gemm and MatMul to 8 bits, and what lies between them.

    before: %y = Conv(%x, %w, %b)
    after:  %q = QuantizeLinear(%x, s, z); %x' = DequantizeLinear(%q, s, z)
            %w' = DequantizeLinear(%w8, t); %b' = DequantizeLinear(%b32, s·t); %y = Conv(%x', %w', %b')

    Only who is quantised reads rounded activations: any other reader, and the graph's outputs, read them as they were.

    Args:
        ranges: name of a value → what it holds; what reads a value without one stays as it is.
        means: name of a value → f64[channels], by which a bias takes back what rounding the weights adds on average,
            as Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019; not
            of a MatMul, which has no bias, nor where there is no mean.
        left_out: names of the results of products that stay as they are.
        light: names of the results of products whose weights are kept small enough for instructions that add two
            products in i16: see `quantized_weights`.
    """

    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    means: Mapping[str, np.ndarray] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    light: frozenset[str] = frozenset()

    on_bodies = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        readers = readers_of(graph, self.ranges, self.left_out, rw.no_match)
        if not readers.layers:
            return rw.no_match("no product to quantise")
        affine = {value: affine_of(found) for value, found in shared_ranges(readers, self.ranges).items()}
        reads: dict[Value, list[tuple[Node, int]]] = {}
        for node, place, value in readers.reads():
            reads.setdefault(value, []).append((node, place))
        order = {node: i for i, node in enumerate(graph)}
        for layer in readers.layers:
            mean = self.means.get(layer.activations.name)
            quantize_layer(layer, affine[layer.activations], mean, rw.before(layer.node), layer.name in self.light)
        for value, places in reads.items():
            first = min((node for node, _ in places), key=order.__getitem__)
            rounded = rounded_value(value, affine[value], rw.before(first, ""))
            for node, place in places:
                node.set_input(place, rounded)
        return True


def rounded_value(value: Value, to: Affine, g: GraphBuilder) -> Value:
    """A value rounded to u8 and read again, as two nodes."""
    scale = g.const(np.asarray(to.scale), name=f"{value.name}.scale")
    zero = g.const(np.asarray(to.zero), name=f"{value.name}.zero_point")
    q: Value = g.add(QuantizeLinear(), [value, scale, zero], names=[f"{value.name}.quantized"])
    rounded: Value = g.add(DequantizeLinear(), [q, scale, zero], names=[f"{value.name}.rounded"])
    return rounded


def quantize_layer(layer: Layer, of_activations: Affine, mean: np.ndarray | None, g: GraphBuilder,
                   light: bool = False) -> None:  # fmt: skip
    """Let a product read its weights from i8, and its bias from i32 where it is one number a result.

    Args:
        mean: f64[channels] of the activations; None: the bias stays as it is.
        light: of the weights: see `quantized_weights`.
    """
    bias, name = layer.bias, layer.name
    least = None if bias is None else least_scales(bias, of_activations.scale)
    steps, scales = quantized_weights(layer.weights, layer.channels, least, light)
    w = g.const(steps, name=f"{name}.weights")
    read = g.add(DequantizeLinear(axis=layer.channels), [w, g.const(scales, name=f"{name}.weights.scale")],
                 names=[f"{name}.weights.rounded"])  # fmt: skip
    if mean is not None and layer.takes_bias:
        error = layer.weights - steps * scales.reshape([-1 if i == layer.channels else 1 for i in range(steps.ndim)])
        bias = (0.0 if bias is None else bias) + mean_result(error, layer, mean)
    layer.node.set_input(1, read)
    found = None if bias is None else quantized_bias(bias, of_activations.scale, scales)
    if found is not None:
        b = g.const(found[0], name=f"{name}.bias")
        read = g.add(DequantizeLinear(axis=0), [b, g.const(found[1], name=f"{name}.bias.scale")],
                     names=[f"{name}.bias.rounded"])  # fmt: skip
        layer.node.set_inputs([*layer.node.inputs[:2], read])


def mean_result(weights: np.ndarray, layer: Layer, mean: np.ndarray) -> np.ndarray:
    """What a layer with these weights makes of activations that are their mean everywhere, f64[results], no padding."""
    by_result = np.moveaxis(weights.astype(np.float64), layer.channels, 0)
    taps = by_result.reshape(*by_result.shape[:2], -1).sum(-1)  # [results, channels of a group]
    groups = len(mean) // taps.shape[1]
    return np.einsum("gmc,gc->gm", taps.reshape(groups, -1, taps.shape[1]), mean.reshape(groups, -1)).reshape(-1)
