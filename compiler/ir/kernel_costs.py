"""What parax's kernels do where that is not the direct algorithm: padded vectors, Winograd, Strassen, padding left out.

Owns these counts; they follow the backend's kernels, which it must not know.
"""

from __future__ import annotations

import math
from dataclasses import replace

from . import strassen, winograd
from .call_rows import CallRows
from .cost import Cost, Sizes
from .fp import Fp
from .graph import Node
from .ops.contraction import Conv, Gemm, MatMul

LANES = 16  # f32 elements of the widest vectors


def as_the_kernel(
    cost: Cost, root: Node, sizes: Sizes, tail_flops: float, fp: Fp, pace: winograd.Pace, calls: CallRows
) -> Cost:  # fmt: skip
    """The cost of a node whose first operation is `root` with what its kernel does, with the algorithms of a level."""
    if isinstance(root.op, Conv):
        return _convolution(cost, root.op, root, sizes, tail_flops, fp, pace, calls)
    if isinstance(root.op, (Gemm, MatMul)):
        columns = product_columns(root, sizes)
        padded = _padded(cost, columns, tail_flops)
        return _halved(padded, root, columns, sizes, tail_flops) if fp.strassen else padded
    return cost


def product_columns(root: Node, sizes: Sizes) -> int:
    """Columns of B."""
    b = sizes.shape(root.operands[1])
    return b[0 if isinstance(root.op, Gemm) and root.op.transB else -1] if len(b) > 1 else 1


def _padded(cost: Cost, columns: int, tail_flops: float) -> Cost:
    """Vectors that are not full multiply zeros."""
    whole = -(-columns // LANES) * LANES
    direct = cost.flops - tail_flops
    return replace(cost, kernel_flops=direct * whole / columns + tail_flops) if whole > columns else cost


def _halved(cost: Cost, root: Node, columns: int, sizes: Sizes, tail_flops: float) -> Cost:
    """Large products with constant B take Strassen's algorithm, where it is allowed."""
    weights = math.prod(sizes.shape(root.operands[1]))
    if not weights or cost.weight_nbytes < 4 * weights or columns < LANES:  # no constant
        return cost
    rows, depth = math.prod(sizes.shape(root.output)) // columns, weights // columns
    if not rows or not strassen.pays(rows, depth, columns):
        return cost
    direct = cost.arithmetic - tail_flops
    return replace(cost, kernel_flops=direct * strassen.arithmetic(depth, columns) + tail_flops,
                   kernel_weight_nbytes=cost.weight_nbytes * strassen.PRODUCTS / 4)  # fmt: skip


def _convolution(
    cost: Cost, op: Conv, root: Node, sizes: Sizes, tail_flops: float, fp: Fp, pace: winograd.Pace, calls: CallRows
) -> Cost:  # fmt: skip
    w = sizes.shape(root.operands[1])
    direct = cost.flops - tail_flops
    if cost.kind == "winograd":
        layer = _layer(op, root, sizes)
        chosen_for = [replace(layer, images=n) for n in calls.of(root.output.tensor.dims[0])]
        best = winograd.best_algorithm(chosen_for, LANES, pace) if fp.winograd else None
        if best is None:
            return replace(cost, kind="conv")
        block = winograd.block_tiles(tuple(chosen_for), best, LANES, pace)
        cycles = winograd.kernel_cycles(layer, best, LANES, pace, block)
        return replace(cost, kernel_flops=2 * LANES * cycles + tail_flops,
                       parallel_items=winograd.items(layer, best, LANES, block),
                       kernel_weight_nbytes=cost.weight_nbytes * best.all_points / math.prod(layer.taps))  # fmt: skip
    if cost.kind == "depthwise":
        return replace(cost, kernel_flops=direct * _inner_taps(op, root) + tail_flops)
    if cost.kind == "conv1x1" and not any(op.pads or ()) and fp.strassen:
        return _halved(cost, root, w[0], sizes, tail_flops)
    return cost if groups_share_vectors(op, w) else _padded(cost, w[0] // op.group, tail_flops)


def _layer(op: Conv, root: Node, sizes: Sizes) -> winograd.Layer:
    w, y = sizes.shape(root.operands[1]), sizes.shape(root.output)
    strides = tuple(op.strides or (1, 1))
    return winograd.Layer(y[0], w[1], w[0], (w[2], w[3]), (strides[0], strides[1]), (y[2], y[3]))


def _inner_taps(op: Conv, root: Node) -> float:
    """The share of all taps that read the input rather than padding."""
    geometry = op.geometry(root.operands[0].tensor, root.operands[1].tensor)
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
