"""A scale or shift by constants moves into the constant weights beside it.

Owns the algebra of (x · s + t) around convolutions and matrix products. s and t vary along one axis at most: the
channels of a convolution, the columns of a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.bands import rounded, scaled
from ...ir.graph import Graph, Node, Value
from ...ir.open_sums import is_open_sum
from ...ir.ops.contraction import Conv, Gemm, MatMul
from ...ir.ops.elementwise import Add, Div, Mul, Sub
from ...ir.types import F32, F64
from ..base import BlockPass
from ..rewrite import Rewriter
from .jumps import MODERATE, may_jump

AFFINE = (Add, Sub, Mul, Div)
EACH_STEP = "one product an element, rounded at every step for who jumps behind it"


@dataclass(frozen=True)
class Affine:
    """y = x · scale + shift, along one axis of `x` (vectors of its size, f64)."""

    x: Value
    scale: np.ndarray
    shift: np.ndarray

    @property
    def shifts(self) -> bool:
        return bool(np.any(self.shift))


@dataclass(frozen=True)
class FoldAffine(BlockPass):
    """Fold constant scales and shifts into the weights and bias of a neighbouring Conv, MatMul or Gemm.

    before: %1 = Conv(%x, %w); %2 = Mul(%1, 2.0)      after: %2 = Conv(%x, %w')     with w' = 2 · w
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is not graph:
                continue
            if isinstance(node.op, AFFINE) and len(node.outputs) == 1:
                changed |= _fold_behind(node, rw)
            elif type(node.op) in (Conv, MatMul):
                changed |= _fold_before(node, rw)
        return changed


def affine_of(node: Node, axis: int) -> Affine | None:
    """An element-wise node as scale and shift along `axis` (counted from the end) of its other operand.

    None for scales beyond MODERATE, too: they decide whether ordinary numbers become infinity or 0 on the way.
    """
    a, b = node.operands
    x, c = (b, a) if a.is_constant else (a, b)
    if c.data is None or x.is_constant or x.tensor.dims != node.output.tensor.dims or x.tensor.dtype not in (F32, F64):
        return None
    size = x.tensor.dims[axis] if -axis <= x.tensor.rank else None
    data = c.data.astype(np.float64)
    if not isinstance(size, int) or any(d != 1 for i, d in enumerate(data.shape) if i - data.ndim != axis):
        return None
    vector = np.broadcast_to(data.reshape(-1), (size,))
    one, zero = np.ones(size), np.zeros(size)
    if isinstance(node.op, Add):
        return Affine(x, one, vector)
    if isinstance(node.op, Sub):
        return Affine(x, one, -vector) if c is b else Affine(x, -one, vector)
    if isinstance(node.op, Div) and (c is a or not vector.all()):
        return None
    scale = vector if isinstance(node.op, Mul) else 1 / vector
    with np.errstate(divide="ignore"):
        moderate = (scale == 0) | (np.abs(np.log2(np.abs(scale))) <= MODERATE)
    return Affine(x, scale, zero) if moderate.all() else None


def _constant_product(v: Value) -> Node | None:
    """The convolution or product with constant weights (and bias) that alone feeds one reader of `v`."""
    node = v.producer
    if node is None or type(node.op) not in (Conv, MatMul, Gemm) or len(v.uses) != 1 or v.output_uses:
        return None
    weights = [w for w in node.inputs[1:] if w is not None]
    if any(w.data is None or w.tensor.dtype not in (F32, F64) for w in weights):
        return None
    return node if type(node.op) is not MatMul or weights[0].tensor.rank == 2 else None


def _fold_behind(node: Node, rw: Rewriter) -> bool:
    """Conv, Gemm or MatMul, then the affine node."""
    v = next((o for o in node.operands if not o.is_constant), None)
    product = _constant_product(v) if v is not None else None
    if v is not None and product is None and _scale_past_shift(node, v, rw):
        return True
    if v is None or product is None:
        return rw.no_match("no product with constant weights of a single use feeds it", node)
    axis = 1 - v.tensor.rank if type(product.op) is Conv else -1
    a = affine_of(node, axis)
    if a is None:
        return rw.no_match("no moderate scale or shift along the weights' columns", node)
    if type(product.op) is MatMul and a.shifts:
        return rw.no_match("a matrix product has no bias; the kernel adds it behind", node)
    if isinstance(product.op, Gemm) and product.op.beta == 0:
        return rw.no_match("the bias is multiplied by 0", node)
    if _rounds_each_step(product, node):
        return rw.no_match(EACH_STEP, node)
    w, b = product.inputs[1], product.inputs[2] if len(product.inputs) > 2 else None
    assert w is not None and w.data is not None
    weights = _scaled(w, a.scale, _column_axis(product))
    if weights is None:
        return rw.no_match("the weights' type does not hold the scaled weights", node)
    operands: list[object] = [product.inputs[0], weights]
    if type(product.op) is not MatMul and (b is not None or a.shifts):
        old = np.zeros(()) if b is None or b.data is None else b.data.astype(np.float64)
        beta = product.op.beta if isinstance(product.op, Gemm) else 1.0
        bias = rounded(old * a.scale + a.shift / beta, w.data.dtype)
        if bias is None:
            return rw.no_match("the weights' type does not hold the bias", node)
        operands.append(bias)
    rw.replace(node, rw.before(product).add(product.op, operands))
    rw.erase(product)
    return True


def _rounds_each_step(product: Node, last: Node) -> bool:
    """Whether the steps from a product to `last` have a right rounding each, and somebody behind may see it."""
    return not is_open_sum(product) and may_jump(last)


def _scale_past_shift(node: Node, v: Value, rw: Rewriter) -> bool:
    """(x + b) · c = x · c + b · c where x is a product that c can be folded into."""
    add = v.producer
    if not isinstance(node.op, (Mul, Div)) or add is None or not isinstance(add.op, Add):
        return False
    if len(v.uses) != 1 or v.output_uses:
        return False
    x, b = add.operands
    product = _constant_product(x)
    a = affine_of(node, -1)
    if product is None or type(product.op) is not MatMul or a is None or affine_of(add, -1) is None or b.data is None:
        return False
    shift = rounded(b.data.astype(np.float64) * a.scale, b.data.dtype)
    if shift is None or _rounds_each_step(product, node):
        return False
    g = rw.before(node)
    rw.replace(node, g.Add(g.Mul(x, a.scale.astype(b.data.dtype)), shift))
    rw.erase(add)
    return True


def _column_axis(product: Node) -> int:
    """The axis of the weights that counts the result's channels or columns."""
    if type(product.op) is Conv or (isinstance(product.op, Gemm) and product.op.transB):
        return 0
    return 1


def _scaled(w: Value, scale: np.ndarray, axis: int) -> np.ndarray | Value | None:
    assert w.data is not None
    if np.all(scale == 1):
        return w
    shape = [-1 if i == axis else 1 for i in range(w.data.ndim)]
    return scaled(w.data, scale.reshape(shape))


def _fold_before(node: Node, rw: Rewriter) -> bool:
    """The scale, then Conv or MatMul. A shift stays: Σ w·x - c·Σ w is not Σ w·(x - c) where x is near c."""
    v, w = node.operands[0], node.operands[1]
    first, b = v.producer, node.inputs[2] if len(node.inputs) > 2 else None
    constant = w.data is not None and (b is None or b.data is not None) and w.tensor.dtype in (F32, F64)
    if first is None or not isinstance(first.op, AFFINE) or not constant or len(v.uses) != 1 or v.output_uses:
        return rw.no_match("no scale or shift of a single use feeds it", node)
    convolution = type(node.op) is Conv
    a = affine_of(first, 1 - v.tensor.rank if convolution else -1)
    if a is None or a.shifts or (not convolution and w.tensor.rank != 2):
        return rw.no_match("not a scale, or no moderate one, along the contracted axis", node)
    if _rounds_each_step(node, node):
        return rw.no_match(EACH_STEP, node)
    assert w.data is not None
    if not convolution:
        weights = scaled(w.data, a.scale[:, None])
    else:
        group = node.op.group  # type: ignore[attr-defined]
        shape = (group, 1, w.data.shape[1], *[1] * (w.data.ndim - 2))
        weights = scaled(w.data.reshape(group, -1, *w.data.shape[1:]), a.scale.reshape(shape))
    if weights is None:
        return rw.no_match("the weights' type does not hold the scaled weights", node)
    rw.replace(node, rw.before(node).add(node.op, [a.x, weights.reshape(w.data.shape), *node.inputs[2:]]))
    rw.erase(first)
    return True
