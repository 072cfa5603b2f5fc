"""What kernels of convolutions do: Winograd's algorithms, padded vectors, taps in the padding left out.

Owns these counts for the cost model, and which family of kernels serves a convolution; they follow `conv`'s candidates
and `winograd`, for vectors of LANES whatever the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ....costs.cost import Cost, Sizes
from ....costs.node_cost import Choice, KernelCosts
from ....ir.graph import Node
from ....ir.ops.bf16_products import Bf16Conv, Bf16ConvTranspose
from ....ir.ops.contraction import Conv
from ....ir.ops.quantised_products import takes_columns
from ....ir.ops.widening import WideningConv
from ....ir.types import BF16, F32, DType
from ..matmul.cost import LANES, padded, product_items, widened
from .winograd import counts as winograd

FEW_CHANNELS = 8  # input channels of a group below which a tap is too short a run for the register tile


def _conv_of(node: Node) -> Conv:
    assert isinstance(node.op, Conv)
    return node.op


def _kind(node: Node, sizes: Sizes) -> str:
    op, w = _conv_of(node), sizes.shape(node.operands[1])
    inputs, outputs, kernel = w[1], w[0] // op.group, w[2:]  # channels are a group's
    if op.group > 1:
        return "depthwise" if inputs == 1 and outputs == 1 else "grouped"
    if inputs < FEW_CHANNELS:
        return "few-channels"
    filtered, direct = winograd.KINDS[_dtype(op)]
    if math.prod(kernel) == 1:
        return "conv1x1" if _dtype(op) == F32 else direct
    plane = len(kernel) == 2 and set(op.dilations or (1,)) == {1} and not isinstance(op, WideningConv)
    return filtered if plane and inputs % LANES == 0 and outputs % LANES == 0 else direct


def _dtype(op: Conv) -> DType:
    """Of its products, as far as Winograd's algorithms know them."""
    return BF16 if isinstance(op, Bf16Conv) else F32


# -- items: pieces that cores can share
def _products(node: Node, sizes: Sizes) -> int:
    op, w, y = _conv_of(node), sizes.shape(node.operands[1]), sizes.shape(node.output)
    return product_items(op.group, y[0] * math.prod(y[2:]), w[0] // op.group)


def _image_rows(node: Node, sizes: Sizes) -> int:
    y = sizes.shape(node.output)
    return y[0] * math.prod(y[2:]) // max(1, y[-1])


def _grouped(node: Node, sizes: Sizes) -> int:
    shared = groups_share_vectors(_conv_of(node), sizes.shape(node.operands[1]))
    return _image_rows(node, sizes) if shared else _products(node, sizes)


_ITEMS: dict[str, Callable[[Node, Sizes], int]] = {
    **dict.fromkeys(("conv", "conv1x1", "winograd", "few-channels", "bf16-conv", "bf16-winograd"), _products),
    "grouped": _grouped, "depthwise": _image_rows,
}  # fmt: skip
KINDS = tuple(_ITEMS)
_FILTERED = {filtered for filtered, _ in winograd.KINDS.values()}


def _items(node: Node, sizes: Sizes) -> int:
    return _ITEMS[_kind(node, sizes)](node, sizes)


def _transposed_kind(node: Node, sizes: Sizes) -> str:
    return winograd.KINDS[BF16][1] if isinstance(node.op, Bf16ConvTranspose) else "conv-transpose"


def _transposed_items(node: Node, sizes: Sizes) -> int:
    x, w = sizes.shape(node.operands[0]), sizes.shape(node.operands[1])
    return product_items(1, x[0] * math.prod(x[2:]), math.prod(w[1:]))


# -- what the kernels do
def _counts(cost: Cost, node: Node, sizes: Sizes, tail_flops: float, choice: Choice) -> Cost:
    op, w = _conv_of(node), sizes.shape(node.operands[1])
    if isinstance(op, WideningConv):
        return widened(padded(cost, w[0], tail_flops), tail_flops)
    if cost.kind in _FILTERED:
        return _filtered(cost, node, sizes, tail_flops, choice)
    if cost.kind == "depthwise":
        return replace(cost, kernel_flops=(cost.flops - tail_flops) * _inner_taps(op, node) + tail_flops)
    if groups_share_vectors(op, w):
        return cost
    columns = w[0] // op.group
    halves = op.group == 1 and columns < 4 * LANES and w[1] % 2 == 0  # as `blocking.best_tiles`
    whole = padded(cost, columns, tail_flops, LANES // 2 if halves else LANES)
    if isinstance(op, Bf16Conv) and cost.kind == "few-channels":
        return replace(whole, kernel_flops=(whole.arithmetic - tail_flops) * _steps(op, node) + tail_flops)
    return whole


def _filtered(cost: Cost, node: Node, sizes: Sizes, tail_flops: float, choice: Choice) -> Cost:
    """By the algorithm of Winograd's that serves it best, if any does."""
    layer = _layer(node, sizes, cost)
    pace = winograd.pace_of(choice.machine, LANES, layer.dtype)
    chosen_for = tuple(replace(layer, images=n) for n in choice.calls.of(node.output.tensor.dims[0]))
    best = winograd.best_algorithm(chosen_for, LANES, pace) if choice.fp.winograd else None
    if best is None:
        return replace(cost, kind=winograd.KINDS[layer.dtype][1])
    block = winograd.block_tiles(chosen_for, best, LANES, pace)
    cycles = winograd.kernel_cycles(layer, best, LANES, pace, block)
    return replace(cost, kernel_flops=2 * LANES * cycles + tail_flops,
                   parallel_items=winograd.items(layer, best, LANES, block),
                   kernel_weight_nbytes=cost.weight_nbytes * best.all_points / math.prod(layer.taps))  # fmt: skip


def _layer(node: Node, sizes: Sizes, cost: Cost) -> winograd.Layer:
    w, y, dtype = sizes.shape(node.operands[1]), sizes.shape(node.output), _dtype(_conv_of(node))
    strides = tuple(_conv_of(node).strides or (1, 1))
    computed = node.operands[1].data is None or node.operands[1].producer is not None
    if dtype == BF16:  # a fused node's body does not see its constants, whose bytes are counted
        computed = cost.weight_nbytes < dtype.nbytes * math.prod(w)
    stride = strides[0], strides[1]
    return winograd.Layer(y[0], w[1], w[0], (w[2], w[3]), stride, (y[2], y[3]), computed, dtype)


def _steps(op: Conv, node: Node) -> float:
    """Steps of a line of a filter whose columns are multiplied in pairs, by those of f32."""
    w = node.operands[1].tensor
    return math.ceil(w.static_shape[-1] / 2) / w.static_shape[-1] if takes_columns(op, w) else 1.0


def _inner_taps(op: Conv, node: Node) -> float:
    """The share of all taps that read the input rather than padding."""
    geometry = op.geometry(node.operands[0].tensor, node.operands[1].tensor)
    share = 1.0
    for k, s, d, p, n, out in zip(geometry.kernel, geometry.strides, geometry.dilations, geometry.pads_begin,
                                  geometry.input, geometry.output, strict=True):  # fmt: skip
        if isinstance(p, int) and isinstance(n, int) and isinstance(out, int):
            inside = sum(0 <= o * s - p + t * d < n for o in range(out) for t in range(k))
            share *= inside / (out * k)
    return share


def groups_share_vectors(op: Conv, w: tuple[int, ...]) -> bool:
    """Whether registers hold several groups, each lane reading its own group's inputs: no zeros are multiplied."""
    return op.group > 1 and w[-1] > 1 and 1 < w[1] == w[0] // op.group and LANES % w[1] == 0


CONVOLUTION = KernelCosts(_items, _kind, _counts)
TRANSPOSED = KernelCosts(_transposed_items, _transposed_kind)
