"""What kernels of matrix products do: whole vectors of columns, panels that cores share, Strassen's algorithm.

Owns these counts for the cost model; they follow `blocking` and `strassen`, for vectors of LANES whatever the target.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ....costs.cost import Cost, Sizes
from ....costs.node_cost import Choice, KernelCosts
from ....ir.graph import Node
from ....ir.ops.bf16_products import Bf16MatMul
from ....ir.ops.contraction import Gemm, IntegralMatMul
from ....ir.ops.widening import WideningMatMul
from ....ir.types import F32
from ....targets.machine import Machine
from .strassen import counts as strassen

LANES = 16  # f32 elements of the widest vectors
TILE_ROWS = 6  # rows of the usual register tile
PANEL = 64  # columns of a panel
BF16 = "bf16-matmul"  # of tiles of their own, whose speed by f32's is the machine's
# Multiply-adds of i16 by i8 in the time of one of f32: 1.5 to 1.6 in products of 192 and 196 rows, 1.3 to 1.6 in
# convolutions (`docs/data-types.md`); two on CPUs that add products in the same instruction
WIDENING_SPEED = 1.5


def product_items(outer: int, rows: int, columns: int) -> int:
    """Pieces into which kernels may cut `outer` products, so that cores finish together: register tiles × panels."""
    return outer * -(-rows // (2 * TILE_ROWS)) * -(-columns // PANEL)


def padded(cost: Cost, columns: int, tail_flops: float, each: int = LANES) -> Cost:
    """Vectors, of `each` columns, that are not full multiply zeros."""
    whole = -(-columns // each) * each
    direct = cost.flops - tail_flops
    return replace(cost, kernel_flops=direct * whole / columns + tail_flops) if whole > columns else cost


def halved(
    cost: Cost, root: Node, columns: int, sizes: Sizes, tail_flops: float, machine: Machine | None
) -> Cost:  # fmt: skip
    """Large products with constant B take Strassen's algorithm, where items of a batch have rows enough."""
    weights, shape = math.prod(sizes.shape(root.operands[1])), sizes.shape(root.output)
    if not weights or cost.weight_nbytes < 4 * weights or len(shape) < 3 or columns % (2 * PANEL):  # no constant
        return cost
    rows, depth = math.prod(shape[1:-1]), weights // columns
    if rows < strassen.LEAST_ROWS or depth % (2 * LANES):
        return cost
    together, block = shape[0] * -(-rows // strassen.MOST_ROWS), min(rows, strassen.MOST_ROWS)
    usual = strassen.share(block, strassen.MOST_TOGETHER, depth, columns)
    if usual * strassen.pace_of(machine) > strassen.MAX_SHARE:
        return cost
    share = strassen.share(block, max(1, min(together, strassen.MOST_TOGETHER)), depth, columns)
    arithmetic = (cost.arithmetic - tail_flops) * share + tail_flops
    return replace(cost, kernel_flops=arithmetic, kind=strassen.KIND)


def _columns(node: Node, sizes: Sizes) -> int:
    """Columns of B."""
    b = sizes.shape(node.operands[1])
    return b[0 if isinstance(node.op, Gemm) and node.op.transB else -1] if len(b) > 1 else 1


def _kind(node: Node, sizes: Sizes) -> str:
    if isinstance(node.op, Bf16MatMul):
        return BF16
    return "matmul" if math.prod(sizes.shape(node.operands[1])[:-2]) == 1 else "batched-matmul"


def _items(node: Node, sizes: Sizes) -> int:
    outer, columns = math.prod(sizes.shape(node.operands[1])[:-2]), _columns(node, sizes)
    return product_items(outer, max(1, sizes.numel(node.output) // max(1, columns * outer)), columns)


def _may_be_rounded(cost: Cost, node: Node, sizes: Sizes) -> bool:
    """Whether a product is of f32 by one constant matrix, and not of whole numbers."""
    weights = math.prod(sizes.shape(node.operands[1]))
    single = all(v.tensor.dtype == F32 for v in (*node.operands[:2], node.output))
    constant = weights > 0 and cost.weight_nbytes >= 4 * weights
    return constant and single and cost.kind == "matmul" and not isinstance(node.op, IntegralMatMul)


def widened(cost: Cost, tail_flops: float) -> Cost:
    """Products of whole numbers, two in an instruction."""
    return replace(cost, kernel_flops=(cost.arithmetic - tail_flops) / WIDENING_SPEED + tail_flops)


def _counts(cost: Cost, node: Node, sizes: Sizes, tail_flops: float, choice: Choice) -> Cost:
    columns = _columns(node, sizes)
    whole = padded(cost, columns, tail_flops)
    if isinstance(node.op, WideningMatMul):
        return widened(whole, tail_flops)
    if choice.rounded is not None and _may_be_rounded(cost, node, sizes):
        arithmetic = (whole.arithmetic - tail_flops) / choice.rounded.speed + tail_flops
        nbytes = cost.weight_nbytes * choice.rounded.nbytes / 4
        return replace(whole, kernel_flops=arithmetic, kernel_weight_nbytes=nbytes)
    return halved(whole, node, columns, sizes, tail_flops, choice.machine) if choice.fp.strassen else whole


PRODUCT = KernelCosts(_items, _kind, _counts)
KINDS = ("matmul", "batched-matmul", strassen.KIND, BF16)
