"""What an operator is given to declare its gradient: the node's values and the gradients that reach its results.

Operators write the vector-Jacobian product as graph nodes, through the builder they are given, so that it fuses, gets
its layouts and is compiled as everything else. Nothing here knows graphs: values are whatever the builder takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as PyAny
from typing import NoReturn

import numpy as np

from ..types import Dim
from .context import InferContext


@dataclass(frozen=True)
class Backward:
    """One node, seen from behind.

    Attributes:
        g: builds nodes behind the node. inputs: its operands, None where omitted. outputs: its results.
        received: gradient of what is differentiated with respect to each result, of its shape; None where that is 0.
        wanted: numbers of the operands whose gradients are needed.
        ctx: the node's types and known contents.
    """

    g: PyAny
    inputs: Sequence[PyAny]
    outputs: Sequence[PyAny]
    received: Sequence[PyAny]
    wanted: frozenset[int]
    ctx: InferContext

    @property
    def dy(self) -> PyAny:
        """The gradient of the first result. Raises UnsupportedOp where only another one has a gradient."""
        if self.received[0] is None:
            self.ctx.unsupported("the gradient of another result than the first")
        return self.received[0]

    def reduced_to(self, gradient: PyAny, i: int) -> PyAny:
        """A gradient summed over the axes along which operand `i` was repeated to get to that shape."""
        return sum_to(self.g, gradient, self.ctx.shape(i), self.ctx)

    def shape_of(self, i: int) -> PyAny:
        """The sizes of operand `i` as a tensor."""
        return sizes(self.g, self.inputs[i], self.ctx.shape(i))

    def zeros(self, i: int) -> PyAny:
        """A tensor of operand `i`'s type and shape, filled with 0."""
        return filled(self.g, self.inputs[i], 0.0)

    def total(self, x: PyAny, axes: Sequence[int]) -> PyAny:
        """The sum over axes, which stay with size 1; over none of them x itself."""
        return self.g.ReduceSum(x, np.array(axes, np.int64), keepdims=1) if axes else x

    def scattered(self, places: np.ndarray) -> PyAny:
        """Operand 0's gradient where element j of the result is a copy of its element places[j], counted flat: each
        place gets the sum over its copies. All sizes are known.
        """
        g, shape = self.g, self.ctx.tensor(0).static_shape
        dtype = self.ctx.tensor(0).dtype
        zeros = g.const(np.zeros(math.prod(shape), dtype.numpy))
        flat = g.Reshape(self.dy, np.array([places.size], np.int64), allowzero=1)
        summed = g.ScatterElements(zeros, places.reshape(-1).astype(np.int64), flat, reduction="add")
        return g.Reshape(summed, np.array(shape, np.int64), allowzero=1)

    def refuse(self, what: str, found: object = None) -> NoReturn:
        """Raises UnsupportedOp: the node has a gradient, but not one that is known here."""
        self.ctx.unsupported(f"no gradient of {what}", found)


def sizes(g: PyAny, value: PyAny, shape: Sequence[Dim]) -> PyAny:
    """The sizes of a value as a tensor: a constant where they are known."""
    if all(isinstance(d, int) for d in shape):
        return g.const(np.array(shape, np.int64))
    return g.Shape(value)


def filled(g: PyAny, like: PyAny, number: float) -> PyAny:
    """A tensor of the type and shape of another one, filled with a number."""
    one = g.const(np.asarray(number), like.tensor.dtype)
    return g.Expand(one, sizes(g, like, like.tensor.dims)) if like.tensor.dims else one


def sum_to(g: PyAny, gradient: PyAny, shape: Sequence[Dim], ctx: InferContext) -> PyAny:
    """The gradient of something of that shape that numpy's broadcasting has repeated: the sum over its copies.

    Raises:
        UnsupportedOp: which axes were repeated is known only when the model runs.
    """
    have = gradient.tensor.dims
    extra = len(have) - len(shape)
    axes = list(range(extra))
    for axis, (wide, own) in enumerate(zip(have[extra:], shape, strict=True), extra):
        if own == 1 and wide != 1:
            axes.append(axis)
        elif own != wide:
            ctx.unsupported("a gradient of an operand that may be repeated", f"{own} and {wide} on axis {axis}",
                            hint="fix the dimension when compiling")
    if axes:
        gradient = g.ReduceSum(gradient, np.array(axes, np.int64), keepdims=1)
    return g.Squeeze(gradient, np.arange(extra, dtype=np.int64)) if extra else gradient
