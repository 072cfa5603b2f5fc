"""Gradients of the kinds of operators: they follow from what an operator computes, combines or moves.

    element-wise    x_i += dy · slope_i(xs), summed over the axes along which x_i was repeated
    reduction       x += dy · finish'(acc) · combine'(…) · map'(x)
    movement        x[index_map(j)] += dy[j]

What operators declare themselves (`Interfaces.gradient`) goes first. Owns no operator's name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.graph import Node, Value
from ...ir.ops.backward import Backward, filled, sizes
from ...ir.ops.base import Elementwise, Movement, Reduce
from ...ir.types import DType
from ...kernel_ir.builder import Builder
from ...kernel_ir.loops import KType
from .expression import Expression
from .slopes import Slope, Slopes

LARGEST_MAP = 1 << 24  # elements whose places are written out: those of movements whose inverse no operator is


def gradients_of(node: Node, back: Backward) -> Sequence[Value | None] | None:
    """Gradients of a node's operands; None where no rule says what they are."""
    declared = node.op.gradient(back)
    if declared is not None:
        return declared
    if isinstance(node.op, Elementwise):
        return [_elementwise(node, node.op, back, i) if i in back.wanted else None for i in range(len(node.inputs))]
    if isinstance(node.op, Reduce):
        return [_reduce(node, node.op, back)] + [None] * (len(node.inputs) - 1)
    if isinstance(node.op, Movement) and len(back.wanted) == 1 and back.wanted == {0}:
        return [_movement(node, node.op, back)] + [None] * (len(node.inputs) - 1)
    return None


def _elementwise(node: Node, op: Elementwise, back: Backward, i: int) -> Value | None:
    e = Expression.of_node(back.g, node, op)
    slope = _declared_derivative(node, op, back, i)
    if slope is None:
        slope = Slopes(e, i).result
    if isinstance(slope, float) and slope == 0:
        return None
    dtype, dy = back.inputs[i].tensor.dtype, back.dy
    if not isinstance(slope, float) or slope != 1:
        dy = back.g.Mul(dy, e.number(slope, dy.tensor.dtype) if isinstance(slope, float) else slope)
    result: Value = back.reduced_to(dy if dy.tensor.dtype == dtype else back.g.Cast(dy, to=dtype), i)
    return result


def _declared_derivative(node: Node, op: Elementwise, back: Backward, i: int) -> Slope | None:
    """What the operator says itself, where it does."""
    probe = Builder("probe", [(f"x{j}", KType(v.tensor.dtype)) for j, v in enumerate(node.operands)])
    if op.derivative(probe, i, *(probe[f"x{j}"] for j in range(len(node.operands)))) is None:
        return None
    e = Expression(back.g, node.inputs, lambda k, *xs: op.derivative(k, i, *xs), None, node.where)
    return e.value(e.result)


def _movement(node: Node, op: Movement, back: Backward) -> Value:
    """Every element of the result goes back to where it came from; places that several came from get their sum."""
    g, x = back.g, node.operands[0]
    if op.is_view:
        result: Value = g.Reshape(back.dy, sizes(g, x, x.tensor.dims), allowzero=1)
        return result
    if not x.tensor.is_static or not node.output.tensor.is_static:
        back.refuse("a movement of tensors of open sizes", node.output.type)
    shape, moved = x.tensor.static_shape, node.output.tensor.static_shape
    if math.prod(moved) > LARGEST_MAP:
        back.refuse(f"a movement of more than {LARGEST_MAP} elements", node.output.type)
    index = np.ix_(*(np.arange(d) for d in moved))
    places = np.zeros(moved, np.int64)
    for axis, along in enumerate(op.index_map(back.ctx, list(index))):
        places = places * shape[axis] + along
    scattered: Value = back.scattered(places)
    return scattered


def _reduce(node: Node, op: Reduce, back: Backward) -> Value:
    """The chain of finish, combine and map, each a few steps of a kernel."""
    g, x, y = back.g, node.operands[0], node.output
    axes = op.reduced_axes(back.ctx)
    widened = _with_axes(back, op, axes)
    combine = _combination(op, x.tensor.dtype)
    e = Expression(g, [x], op.map, None, node.where)
    mapped, dy = e.value(e.result), widened(back.dy)
    if combine == "add":
        dy = _through_finish(op, back, axes, dy, widened(y), mapped)
    elif combine in ("max", "min"):
        dy = _to_extremes(back, dy, mapped, widened(y), axes)
    else:
        dy = g.Mul(dy, _products_of_others(back, mapped, axes))
    slopes = Slopes(e, 0)
    full = dy if slopes.result == 1 else g.Mul(slopes.tensor(slopes.result, e.result), dy)
    if full.tensor.dims != x.tensor.dims:
        full = g.Expand(full, sizes(g, x, x.tensor.dims))
    result: Value = full
    return result


def _with_axes(back: Backward, op: Reduce, axes: tuple[int, ...]) -> Any:
    """What gives a tensor of the result's shape its reduced axes back, of size 1."""
    if op.keepdims or not axes:
        return lambda v: v
    return lambda v: back.g.Unsqueeze(v, np.array(axes, np.int64))


def _combination(op: Reduce, dtype: DType) -> str:
    """The opcode that combines two elements."""
    k = Builder("combine", [("a", KType(dtype)), ("b", KType(dtype))])
    op.combine(k, k["a"], k["b"])
    (only,) = k.func.body.ops
    return only.opcode


def _through_finish(op: Reduce, back: Backward, axes: tuple[int, ...], dy: Value, y: Value, mapped: Value) -> Value:
    """dy times the slope of what is done with the sum; the sum itself is made again where that needs it."""
    g = back.g
    acc = back.total(mapped, axes)
    e = Expression(g, [acc, _count(back, axes)], op.finish, y, back.ctx.where)
    slope = Slopes(e, 0)
    if isinstance(slope.result, float) and slope.result == 1:
        return dy
    result: Value = g.Mul(dy, slope.tensor(slope.result, e.result))
    return result


def _count(back: Backward, axes: tuple[int, ...]) -> Value:
    """Elements that make one, as a number of the tensor's type."""
    g, x = back.g, back.inputs[0]
    dims = [x.tensor.dims[a] for a in axes]
    if all(isinstance(d, int) for d in dims):
        result: Value = g.const(np.asarray(float(math.prod(dims))), x.tensor.dtype)
    else:
        picked = g.Gather(g.Shape(x), np.array(axes, np.int64))
        result = g.Cast(g.ReduceProd(picked, keepdims=0), to=x.tensor.dtype)
    return result


def _to_extremes(back: Backward, dy: Value, mapped: Value, y: Value, axes: tuple[int, ...]) -> Value:
    """To the elements that are the extreme, in equal shares."""
    g = back.g
    hits = g.Cast(g.Equal(mapped, y), to=mapped.tensor.dtype)
    result: Value = g.Mul(hits, g.Div(dy, back.total(hits, axes)))
    return result


def _products_of_others(back: Backward, mapped: Value, axes: tuple[int, ...]) -> Value:
    """Of each element: the product of all others, which a division by the element would not give where it is 0."""
    g, dims = back.g, mapped.tensor.dims
    if len(axes) > 1:  # as one axis behind the others
        kept = [a for a in range(len(dims)) if a not in axes]
        order = [*kept, *axes]
        moved = g.Transpose(mapped, perm=order)
        lines = g.Reshape(moved, np.array([*[0] * len(kept), -1], np.int64))
        others = g.Reshape(_exclusive(g, lines, len(kept)), sizes(g, moved, moved.tensor.dims))
        result: Value = g.Transpose(others, perm=[order.index(a) for a in range(len(dims))])
        return result
    others_of_one: Value = _exclusive(g, mapped, axes[0]) if axes else filled(g, mapped, 1.0)
    return others_of_one


def _exclusive(g: Any, x: Value, axis: int) -> Value:
    at = np.asarray(axis, np.int64)
    result: Value = g.Mul(g.CumProd(x, at, exclusive=1), g.CumProd(x, at, exclusive=1, reverse=1))
    return result
