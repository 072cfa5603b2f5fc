"""Normalisations that an exporter took apart become one operator again, which has a kernel of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.arithmetic import Reciprocal
from ...ir.ops.base import Operator, Reduce
from ...ir.ops.elementwise import Add, Div, Exp, Mul, Sqrt, Sub
from ...ir.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from ...ir.types import F32, prod
from ..base import BlockPass
from ..rewrite import Rewriter
from .algebraic_simplification import uniform


@dataclass(frozen=True)
class FuseNormalization(BlockPass):
    """Recognise layer and RMS normalisation and softmax.

    before: %m = ReduceMean(%x); %d = Sub(%x, %m); %v = ReduceMean(Mul(%d, %d)); %y = Div(%d, Sqrt(Add(%v, eps)))
    after:  %y = LayerNormalization(%x, ones)     followed by Mul and Add of vectors: its scale and bias
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is graph and isinstance(node.op, (Div, Mul)) and node.output.is_used:
                changed |= _softmax(node, rw) if _is_exponential(node) else _normalization(node, rw)
        return changed


def _is_exponential(node: Node) -> bool:
    first = node.operands[0].producer
    return isinstance(node.op, Div) and first is not None and isinstance(first.op, Exp)


def _made_by(v: Value, *kinds: type[Operator]) -> Node | None:
    return v.producer if v.producer is not None and isinstance(v.producer.op, kinds) else None


def _axes(node: Node) -> tuple[int, ...]:
    assert isinstance(node.op, Reduce)
    return node.op.reduced_axes(node.context())


def _softmax(node: Node, rw: Rewriter) -> bool:
    """exp(x - max) / sum of it, along one axis."""
    exponential, total = node.operands
    exp, add = _made_by(exponential, Exp), _made_by(total, ReduceSum)
    if exp is None or add is None or add.operands[0] is not exponential or not add.op.keepdims:  # type: ignore[attr-defined]
        return rw.no_match("not divided by its own sum", node)
    axes = _axes(add)
    difference = _made_by(exp.operands[0], Sub)
    greatest = _made_by(difference.operands[1], ReduceMax) if difference is not None else None
    if difference is None or greatest is None or greatest.operands[0] is not difference.operands[0]:
        return rw.no_match("the greatest element is not taken away first", node)
    if len(axes) != 1 or _axes(greatest) != axes or not greatest.op.keepdims:  # type: ignore[attr-defined]
        return rw.no_match("not along one axis", node)
    rw.replace(node, rw.before(node).Softmax(difference.operands[0], axis=axes[0]))
    return True


def _normalization(node: Node, rw: Rewriter) -> bool:
    """d / sqrt(mean(d²) + eps), where d is x or x - mean(x)."""
    d, root = _quotient(node)
    variance = _made_by(root.operands[0], Add) if root is not None else None
    if d is None or variance is None:
        return rw.no_match("not divided by a deviation", node)
    mean, eps = (_made_by(variance.operands[0], ReduceMean), uniform(variance.operands[1]))
    square = _made_by(mean.operands[0], Mul) if mean is not None else None
    if mean is None or eps is None or square is None or list(square.operands) != [d, d]:
        return rw.no_match("not divided by the root of its own mean square", node)
    axes, t = _axes(mean), d.tensor
    sizes = [size for size in (t.dims[a] for a in axes) if isinstance(size, int)]
    trailing = axes == tuple(range(t.rank - len(axes), t.rank)) and len(sizes) == len(axes)
    if not trailing or not axes or t.dtype != F32 or not mean.op.keepdims:  # type: ignore[attr-defined]
        return rw.no_match("not over the last axes, of known size", node)
    if not node.output.tensor.same_logical(t):
        return rw.no_match("the constant beside the mean square has a shape of its own", node)
    x = _centred(d, axes)
    chain, scale, bias = _scale_and_bias(node, sizes, x is not None)
    g = rw.before(chain[-1])
    ones = scale if scale is not None else np.ones(sizes, np.float32)
    made = (g.LayerNormalization(x, ones, bias, axis=axes[0], epsilon=float(eps)) if x is not None
            else g.RMSNormalization(d, ones, axis=axes[0], epsilon=float(eps)))
    rw.replace(chain.pop(), made)
    while chain:
        rw.erase(chain.pop())
    return True


def _quotient(node: Node) -> tuple[Value | None, Node | None]:
    """(d, the Sqrt node) of d / sqrt(..) or d · (1 / sqrt(..))."""
    a, b = node.operands
    if isinstance(node.op, Div):
        return a, _made_by(b, Sqrt)
    for d, factor in ((a, b), (b, a)):
        inverse = _made_by(factor, Reciprocal, Div)
        if inverse is not None and (isinstance(inverse.op, Reciprocal) or uniform(inverse.operands[0]) == 1):
            root = _made_by(inverse.operands[-1], Sqrt)
            if root is not None:
                return d, root
    return None, None


def _centred(d: Value, axes: tuple[int, ...]) -> Value | None:
    """x, if d = x - mean(x) over the same axes."""
    sub = _made_by(d, Sub)
    mean = _made_by(sub.operands[1], ReduceMean) if sub is not None else None
    if sub is None or mean is None or mean.operands[0] is not sub.operands[0]:
        return None
    keeps = bool(mean.op.keepdims)  # type: ignore[attr-defined]
    return sub.operands[0] if keeps and _axes(mean) == axes else None


def _scale_and_bias(
    node: Node, sizes: list[int], may_shift: bool
) -> tuple[list[Node], Value | None, Value | None]:
    """The nodes from the quotient to the pattern's end; what multiplies and is added, in the normalised axes' shape."""
    chain: list[Node] = [node]
    scale: Value | None = None
    bias: Value | None = None
    for kind in (Mul, Add) if may_shift else (Mul,):
        v = chain[-1].output
        user = v.users[0] if len(v.uses) == 1 and not v.output_uses else None
        other = next((o for o in user.operands if o is not v), None) if user is not None else None
        if user is None or other is None or not isinstance(user.op, kind) or not _is_vector(other, sizes):
            continue
        chain.append(user)
        scale, bias = (other, bias) if kind is Mul else (scale, other)
    return chain, scale, bias


def _is_vector(v: Value, sizes: list[int]) -> bool:
    return list(v.tensor.dims) == sizes and v.tensor.dtype == F32 and prod(v.tensor.dims) != 1

