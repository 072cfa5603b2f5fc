"""The pass that evens out the channels of activations that will be rounded, at the weights' expense.

Owns which constants before a product may take a factor for each channel. Powers of two are divided and multiplied by,
so that the graph's f32 results stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.contraction import Conv
from ...ir.ops.elementwise import Add, LeakyRelu, Mul, Relu, Sub
from ...ir.ops.normalization import LayerNormalization, RMSNormalization
from ...ir.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from ..base import DataflowPass
from ..rewrite import Rewriter
from .layers import Layer, layers_of

HOMOGENEOUS = (Relu, LeakyRelu, MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool)
"""f(x / s) = f(x) / s for s above zero, channel by channel."""
MOST = 12  # powers of two, up or down, that a channel is moved by
FEWEST = 2  # of some channel, that make a node of its own worth while
Edit = tuple[Node, int, int]
"""A constant that takes the factors: its node, its place there, and its axis, from the end, that they lie along."""


@dataclass(frozen=True)
class EqualiseChannels(DataflowPass):
    """Divide each channel of what products read by a power of two of its own, and multiply their weights by it.

    before: %1 = Conv(%x, %w, %b); %2 = Relu(%1); %y = Conv(%2, %v)
    after:  %1 = Conv(%x, %w / s, %b / s); %2 = Relu(%1); %y = Conv(%2, %v · s)

    One scale serves all channels of an activation, so one channel that reaches far takes the others' steps. What
    reaches far is shared between both operands, as Xiao et al., "SmoothQuant", ICML 2023; where the factors go into
    the weights of the layer before, that is the cross-layer equalisation of Nagel et al., "Data-Free Quantization
    Through Weight Equalization and Bias Correction", ICCV 2019.

    Args:
        reach: name of a value that products read → f64[channels], the greatest magnitude of each channel.
        inserts: whether a Mul divides what no constant before can.
        alone: whether the reach alone says by what is divided, whatever the weights are: where they alone are rounded,
            those that meet large activations are to be large, as Lin et al., "AWQ", MLSys 2024.
    """

    reach: Mapping[str, np.ndarray] = field(default_factory=dict)
    inserts: bool = False
    alone: bool = False

    on_bodies = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        every = {layer.node: layer for layer in layers_of(graph, rw.no_match)}
        read: dict[Value, list[Layer]] = {}
        for layer in every.values():
            read.setdefault(layer.activations, []).append(layer)
        changed = False
        for value, layers in read.items():
            if value.name in self.reach and len({layer.contracted for layer in layers}) == 1:
                changed |= self._equalise(value, layers, every, rw)
        return changed

    def _equalise(self, value: Value, layers: list[Layer], every: Mapping[Node, Layer], rw: Rewriter) -> bool:
        powers = balance(self.reach[value.name], layers, self.alone)
        if not powers.any():
            return rw.no_match("its channels are alike", value)
        axis = -1 if layers[0].contracted == -1 else 1 - value.tensor.rank
        divided = _divided_before(value, len(layers), axis, every)
        factors = np.ldexp(np.float32(1), powers)
        if divided is not None:
            for node, place, along in divided:
                data = node.operands[place].data
                assert data is not None
                node.set_input(place, rw.graph.add_constant(data * _along(1 / factors, along)))
        elif self.inserts and np.abs(powers).max() >= FEWEST:
            first = next(node for node in rw.graph if any(node is layer.node for layer in layers))
            less = rw.before(first).Mul(value, _along(1 / factors, axis))
            for layer in layers:
                layer.node.set_input(0, less)
        else:
            return rw.no_match("no constants before it take factors", value)
        for layer in layers:
            weights = layer.weights * factors_of(layer, factors)
            layer.node.set_input(1, rw.graph.add_constant(weights))
        return True


def balance(reach: np.ndarray, layers: list[Layer], alone: bool = False) -> np.ndarray:
    """The power of two, i32[channels], to divide each channel by.

    A channel's reach and its greatest weight, by that of the weight's row, are brought to the same size; the reach
    counts alone where that is asked for, or each row has one weight for a channel, as in a depthwise convolution. A
    channel that is zero everywhere stays.
    """
    weights = np.max([relative_weights(layer, len(reach)) for layer in layers], axis=0)
    depthwise = all(layer.weights.shape[1] == 1 and isinstance(layer.node.op, Conv) for layer in layers)
    used = (reach > 0) & (weights > 0)
    if not used.any():
        return np.zeros(len(reach), np.int32)
    logs = np.log2(reach, where=used, out=np.zeros(len(reach)))
    if not (alone or depthwise):
        logs = (logs - np.log2(weights, where=used, out=np.zeros(len(reach)))) / 2
    powers = np.where(used, np.rint(logs - np.median(logs[used])), 0)
    return np.clip(powers, -MOST, MOST).astype(np.int32)


def relative_weights(layer: Layer, channels: int) -> np.ndarray:
    """The greatest magnitude of a weight of each input channel, f64[channels], by the greatest of its row."""
    by_row = np.abs(np.moveaxis(layer.weights, layer.channels, 0)).astype(np.float64)
    by_row = by_row.reshape(*by_row.shape[:2], -1).max(-1)  # [results, channels of a group]
    by_row /= np.maximum(by_row.max(1, keepdims=True), np.finfo(np.float32).tiny)
    groups = channels // by_row.shape[1]
    return by_row.reshape(groups, -1, by_row.shape[1]).max(1).reshape(-1)


def factors_of(layer: Layer, factors: np.ndarray) -> np.ndarray:
    """f32[channels] as they stand along a layer's weights."""
    weights = layer.weights
    if not isinstance(layer.node.op, Conv):
        return factors[None, :] if layer.channels == 0 else factors[:, None]
    groups = len(factors) // weights.shape[1]
    by_group = np.repeat(factors.reshape(groups, -1), len(weights) // groups, axis=0)  # [results, channels of a group]
    return by_group.reshape(*by_group.shape, *[1] * (weights.ndim - 2))


def _divided_before(value: Value, n_readers: int, axis: int, every: Mapping[Node, Layer]) -> list[Edit] | None:
    """The constants that divide a value, if they are divided; None where there are none, or others read the value."""
    if value.output_uses or len(value.uses) != n_readers or value.tensor.shape is None:
        return None
    edits: list[Edit] = []
    while (node := value.producer) is not None:
        op, found = node.op, value
        if isinstance(op, HOMOGENEOUS) and not any(output.is_used for output in node.outputs[1:]):
            value = node.operands[0]
        elif isinstance(op, (Add, Sub, Mul)) and (place := _constant(node)) is not None:
            edits.append((node, place, axis))
            if isinstance(op, Mul):
                return edits
            value = node.operands[1 - place]
        else:
            own = _own_constants(node, axis, every.get(node))
            return None if own is None else [*edits, *own]
        of_another_rank = value.tensor.shape is None or value.tensor.rank != found.tensor.rank
        if value.output_uses or len(value.uses) != 1 or of_another_rank:
            return None
    return None


def _constant(node: Node) -> int | None:
    """The place of an element-wise node's constant operand, where the other has the shape of the result."""
    for place in (0, 1):
        constant, other = node.operands[place], node.operands[1 - place]
        if constant.data is not None and not other.is_constant and other.tensor.shape == node.output.tensor.shape:
            return place
    return None


def _own_constants(node: Node, axis: int, layer: Layer | None) -> list[Edit] | None:
    """The constants of a product, or of a normalisation of lines, that a factor for each of its results goes into."""
    if isinstance(node.op, (LayerNormalization, RMSNormalization)):
        places = [i for i in (1, 2) if i < len(node.inputs) and node.inputs[i] is not None]
        vectors = all(node.operands[i].data is not None and node.operands[i].tensor.rank == 1 for i in places)
        alone = not any(output.is_used for output in node.outputs[1:])
        return [(node, i, -1) for i in places] if axis == -1 and vectors and alone else None
    if layer is None or axis != (-1 if layer.contracted == -1 else 1 - node.output.tensor.rank):
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and bias.data is None:
        return None
    edits: list[Edit] = [(node, 1, layer.channels - layer.weights.ndim)]
    return edits if bias is None else [*edits, (node, 2, -1)]


def _along(factors: np.ndarray, axis: int) -> np.ndarray:
    """f32[channels] as they stand along an axis that counts from the end."""
    return factors.reshape(-1, *[1] * (-axis - 1))


__all__ = ["EqualiseChannels", "balance"]
