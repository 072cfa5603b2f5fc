"""What dequantises, and what quantises a result: scales and zero points as passes need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Node, Value
from ...ir.ops.elementwise import Relu
from ...ir.ops.quantization import DequantizeLinear, QuantizeLinear
from ...ir.types import F32, DType
from ..rewrite import Rewriter

LEAST, MOST = 2.0**-100, 2.0**90  # of a scale of sums: sums below 2^31 times it are neither denormal nor infinite


@dataclass(frozen=True)
class Dequantised:
    """(q - zero) · scale, one scale or one for each index of `axis`; a constant scale, in f64."""

    q: Value
    scale: np.ndarray
    zero: Value | None
    axis: int

    @property
    def is_whole(self) -> bool:
        """Whether there is one scale and one zero point."""
        return self.scale.size == 1


def dequantised(v: Value | None) -> Dequantised | None:
    """What a DequantizeLinear to f32 by constant scales gives; None: anything else."""
    node = v.producer if v is not None else None
    if node is None or not isinstance(node.op, DequantizeLinear) or node.output.tensor.dtype != F32:
        return None
    q, scale, *rest = node.inputs
    zero = rest[0] if rest else None
    assert q is not None and scale is not None
    if node.op.block_size or scale.data is None or (zero is not None and zero.data is None):
        return None
    if zero is not None and zero.data is not None and zero.tensor.dims == (1,):
        zero = constant(node, zero.data.reshape(()))
    return Dequantised(q, scale.data.astype(np.float64), zero, node.op.axis)


def constant(node: Node, array: np.ndarray) -> Value:
    """A constant of the node's graph."""
    assert node.graph is not None
    return node.graph.add_constant(array)


@dataclass(frozen=True)
class Step:
    """The QuantizeLinear of one scale that alone reads a result, and the Relu between, if there is one."""

    node: Node
    relu: Node | None
    scale: float
    zero: np.ndarray | None


def step_behind(node: Node) -> Step | None:
    """The step that a node's result is rounded to, if nothing else reads it; one known scale and zero point."""
    reader = _only_reader(node)
    relu = reader if reader is not None and isinstance(reader.op, Relu) else None
    last = _only_reader(relu) if relu is not None else reader
    if last is None or not isinstance(last.op, QuantizeLinear) or last.op.block_size:
        return None
    _, scale, *rest = last.operands
    zero = rest[0].data if rest else None
    if scale.data is None or scale.data.size != 1 or (rest and (zero is None or zero.size != 1)):
        return None
    if scale.tensor.dtype != F32 or (last.op.precision and DType.from_code(last.op.precision) != F32):
        return None
    step = float(scale.data.reshape(()))
    return Step(last, relu, step, zero) if is_usual(step) else None


def _only_reader(node: Node) -> Node | None:
    v = node.output
    return v.users[0] if len(v.users) == 1 and not v.output_uses and v.users[0].inputs[0] is v else None


def round_to(step: Step, y: Value, g: GraphBuilder, node: Node, rw: Rewriter) -> None:
    """Let what a node's result is in units of a step, rounded, take the place of all up to the quantisation."""
    y = y if step.relu is None else g.Relu(y)
    zero = [] if step.zero is None else [g.const(step.zero.reshape(()))]
    rw.replace(step.node, g.RoundTo(y, *zero, to=step.node.output.tensor.dtype))
    for dead in (step.relu, node):
        if dead is not None:
            rw.erase(dead)


def is_usual(scale: np.ndarray | float) -> bool:
    """Whether sums of bytes and of their products times these are neither denormal nor infinite, NaN or negative."""
    return bool(np.all((np.asarray(scale) >= LEAST) & (np.asarray(scale) <= MOST)))
