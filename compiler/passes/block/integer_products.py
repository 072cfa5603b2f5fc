"""Products of dequantised operands become products of whole numbers, which are exact, and one scale.

    (a - za)·sa ⊗ (w - zw)·sw = ((a - za) ⊗ (w - zw)) · (sa·sw),   ⊗ a sum of products

Owns which products those are, and where their scales go: with QuantizeLinear's into one factor, where nothing but a
Relu lies between. What follows else (a bias, an activation, QuantizeLinear) stays as it is and is computed in f32 from
the sums: results differ from the model's by f32's roundings alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement
from ...ir.ops.contraction import Conv, Gemm, MatMul
from ...ir.ops.quantised_products import EXACT, heaviest, is_depthwise, magnitude, narrowed, shortened, takes_whole
from ...ir.ops.shape import Transpose
from ...ir.types import F32, I8, I32, U8
from ..base import BlockPass
from ..rewrite import Rewriter
from .quantised_images import image_of
from .quantised_steps import Dequantised, constant, dequantised, is_usual, round_to, step_behind

BYTES = (I8, U8)
LIMIT = 2**31  # sums below are i32
SAME_SCALE = 2.0**-21  # relative distance within which a bias is in units of the products


@dataclass(frozen=True)
class IntegerProducts(BlockPass):
    """Conv, MatMul and Gemm of dequantised bytes by dequantised constants are computed in integers.

    before: %1 = DequantizeLinear(%q, %s, %z); %2 = DequantizeLinear(%w, %t); %3 = MatMul(%1, %2)
    after:  %1 = parax::WideningMatMul(%q - %z, %w); %3 = %1 · (%s · %t)

    Attributes:
        adds_quads: whether targets add four products of bytes in one instruction: a convolution of a few channels, as
            of an image, then gets further ones of nothing, and its padding around the image, so that a line of a
            filter reads whole quads.
    """

    adds_quads: bool = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if type(node.op) in (Conv, MatMul, Gemm):
                changed |= _rewritten(node, rw, self.adds_quads)
        return changed


def _rewritten(node: Node, rw: Rewriter, adds_quads: bool) -> bool:
    views, x = _views(node.inputs[0])
    a, w = dequantised(x), _weights(node.inputs[1])
    if a is None or w is None or a.q.tensor.dtype not in BYTES or w.q.tensor.dtype not in BYTES:
        return rw.no_match("not both operands are dequantised bytes", node)
    image = image_of(node) if adds_quads and not views else None
    axis = _output_axis(node) if image is None else 0
    if not a.is_whole or axis is None or not (w.is_whole or w.axis % w.q.tensor.rank == axis):
        return rw.no_match("scales differ along a contracted axis, or it has no constant weights of whole pairs", node)
    weights = narrowed(w.q, w.zero if w.is_whole else _along(rw.before(node), w, axis))
    scale = np.ravel(a.scale * w.scale)
    if weights is None or not weights.size or not is_usual(scale) or (image and weights.dtype != np.int8):
        return rw.no_match("the weights are computed or no bytes, or their scales no usual ones", node)
    in_f32 = isinstance(node.op, Conv) and is_depthwise(node.op.group, node.operands[1].tensor)
    limit, most = (EXACT, 255) if in_f32 else (LIMIT, magnitude(a.q, a.zero))
    largest = most * heaviest(weights, axis)
    if largest >= limit:
        return rw.no_match("sums of so many products may leave i32, where those of the model are f32", node)
    g = rw.before(node)
    op, q = node.op, a.q
    if image is not None:
        op, q, weights = image.op, image.padded(g, a), image.weights(weights)
    sums = partial(_convolution, op=op, room=limit - largest) if isinstance(op, Conv) else _matrix
    short = shortened(g, q, a.zero)
    for view in reversed(views):
        short = g.add(view.op, [short, *view.inputs[1:]])
    product = sums(g, node, short, weights, scale)
    step = step_behind(node) if product.addend is None else None
    if step is not None and is_usual(scale / step.scale):
        round_to(step, product.scaled(g, step.scale), g, node, rw)
    else:
        rw.replace(node, product.scaled(g))
    return True


def _views(v: Value | None) -> tuple[list[Node], Value | None]:
    """Reshapes and transposes above a value, nearest first, and what they view: one scale is that of all elements."""
    chain: list[Node] = []
    while v is not None and (node := v.producer) is not None and is_view(node):
        chain.append(node)
        v = node.inputs[0]
    return chain, v


def is_view(node: Node) -> bool:
    """Whether its result has the elements of its first operand, in an order that nothing else decides."""
    moves = isinstance(node.op, Transpose) or (isinstance(node.op, Movement) and node.op.is_view)
    return moves and len(node.outputs) == 1 and all(v.is_constant for v in node.operands[1:])


def _weights(v: Value | None) -> Dequantised | None:
    """What dequantises constants, transposed before they are multiplied or not."""
    made = v.producer if v is not None else None
    if made is None or not isinstance(made.op, Transpose):
        return dequantised(v)
    found = dequantised(made.inputs[0])
    if found is None or found.q.data is None:
        return found
    perm = made.op.perm or tuple(reversed(range(found.q.data.ndim)))
    turned = constant(made, np.ascontiguousarray(found.q.data.transpose(perm)))
    return replace(found, q=turned, axis=perm.index(found.axis % len(perm)))


def _along(g: GraphBuilder, w: Dequantised, axis: int) -> Value | None:
    """Zero points along an axis, shaped to broadcast against the weights."""
    if w.zero is None or w.zero.data is None or not w.zero.tensor.rank:
        return w.zero
    return g.const(w.zero.data.reshape([-1] + [1] * (w.q.tensor.rank - 1 - axis)))


def _output_axis(node: Node) -> int | None:
    """The axis of the weights that the result has; None where a kernel of whole numbers does not serve the product."""
    op, w = node.op, node.operands[1].tensor
    if isinstance(op, Conv):
        return 0 if takes_whole(op.group, w) else None
    if w.rank != 2 or not w.is_static or (isinstance(op, Gemm) and op.transA):
        return None
    return 0 if isinstance(op, Gemm) and op.transB else 1


@dataclass(frozen=True)
class Product:
    """sums · factor + beta · addend: whole numbers, f64 that broadcasts to them, and f32 or none."""

    sums: Value
    factor: np.ndarray
    addend: Value | None = None
    beta: float = 1.0

    def scaled(self, g: GraphBuilder, step: float = 1.0) -> Value:
        """In f32, in units of a step."""
        factor = (self.factor / step).astype(np.float32)
        y: Value = g.Mul(g.Cast(self.sums, to=F32), factor if factor.size > 1 else factor.reshape(()))
        if self.addend is None:
            return y
        return g.Add(y, self.addend if self.beta == 1 else g.Mul(self.addend, self.beta))


def _convolution(
    g: GraphBuilder, node: Node, x: Value, w: np.ndarray, scale: np.ndarray, *, op: Conv, room: int
) -> Product:
    """By `op`. `room`: what a bias may add to the sums and still be an i32."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    shape = (-1, *[1] * (w.ndim - 2))
    start = _in_units(bias, scale, room)
    y: Value = g.WideningConv(x, g.const(w), None if start is None else g.const(start), **op.attributes())
    addend = g.Reshape(bias, np.array(shape, np.int64)) if bias is not None and start is None else None
    return Product(y, scale.reshape(shape if scale.size > 1 else ()), addend)


def _in_units(bias: Value | None, scale: np.ndarray, room: int) -> np.ndarray | None:
    """A constant bias below `room` that is dequantised by the products' scales, or was, as whole numbers."""
    if bias is not None and bias.data is not None and bias.tensor.dtype == F32:
        units = np.rint(bias.data / scale)
        near = np.allclose(units * scale, bias.data, rtol=SAME_SCALE, atol=0)
        return units.astype(np.int32) if near and np.abs(units).max(initial=0) < room else None
    made = dequantised(bias)
    if made is None or made.q.tensor.dtype != I32 or made.q.data is None:
        return None
    if made.zero is not None and made.zero.data is not None and made.zero.data.any():
        return None
    if np.abs(made.q.data.astype(np.int64)).max(initial=0) >= room:
        return None
    near = np.allclose(made.scale, scale if scale.size == 1 or made.scale.size > 1 else -1, rtol=SAME_SCALE, atol=0)
    return np.asarray(made.q.data) if near else None


def _matrix(g: GraphBuilder, node: Node, a: Value, w: np.ndarray, scale: np.ndarray) -> Product:
    op, c = node.op, node.inputs[2] if len(node.inputs) > 2 else None
    alpha, beta = (op.alpha, op.beta) if isinstance(op, Gemm) else (1.0, 1.0)
    if isinstance(op, Gemm) and op.transB:
        w = np.ascontiguousarray(w.T)
    return Product(g.WideningMatMul(a, g.const(w)), scale * alpha, c if beta else None, beta)
