"""How long onnx.reference computes on a node, estimated from its operator and its operands' sizes alone.

Owns the estimate, in nanoseconds of a slow core. It follows from the model only, so that the same model always makes
the same plan; a clock would not. The reference is numpy for most operators and a loop in Python for the rest.
"""

from __future__ import annotations

import math
from itertools import zip_longest

from ..costs.cost import Sizes
from ..costs.node_cost import direct_flops
from ..ir.graph import Node
from ..ir.ops.base import Elementwise, Movement, Reduce, Window
from ..ir.ops.contraction import Conv, ConvTranspose
from ..ir.ops.gathering import Scatter
from ..ir.ops.recurrent import Recurrent

NUMPY, LOOP, ELEMENT = 5, 2_000, 20_000  # an operation on an element in numpy; a step of a loop; an element it visits
_VECTORISED = frozenset({
    "MatMul", "Gemm", "Einsum", "ConstantOfShape", "Range", "EyeLike", "OneHot", "Trilu", "Size", "Shape", "Gather",
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization",
    "ArgMax", "ArgMin", "CumSum", "DepthToSpace", "SpaceToDepth", "Split", "Pad", "Softmax", "LogSoftmax", "Hardmax",
    "CastLike", "LpNormalization", "MeanVarianceNormalization", "ReduceLogSumExp", "QuantizeLinear",
    "DequantizeLinear", "MatMulInteger", "QLinearMatMul", "NonZero", "Compress", "Unique", "TopK",
})  # fmt: skip
_ELEMENT_BY_ELEMENT = frozenset({"Erf", "Gelu", "GatherElements", "GatherND", "ReverseSequence"})


def reference_work(node: Node) -> float:
    """Nanoseconds, of the right order or too many; operands whose sizes are symbols count as typical ones."""
    sizes = Sizes({})
    given = [sizes.numel(v) for v in node.operands]
    made = [sizes.numel(v) for v in node.outputs]
    elements, name = sum(given) + sum(made), node.op.name
    if name == "Einsum":
        return NUMPY * (_einsum_terms(node, sizes) + elements)
    if name in ("MatMulInteger", "QLinearMatMul"):  # not taken apart yet, so that nothing has counted its products
        return NUMPY * (made[0] * sizes.shape(node.operands[0])[-1] + elements)
    if name in _ELEMENT_BY_ELEMENT or isinstance(node.op, Scatter):
        return float(ELEMENT * elements)
    if name in _VECTORISED or isinstance(node.op, (Elementwise, Movement, Reduce)):
        return NUMPY * (direct_flops(node) + elements * len(node.operands or (0,)))
    if isinstance(node.op, (Conv, ConvTranspose, Window, Recurrent)):
        return LOOP * direct_flops(node) + ELEMENT * elements
    return LOOP * sum(made) * max(given, default=1) + float(ELEMENT * elements)  # Resize visits all for each


def _einsum_terms(node: Node, sizes: Sizes) -> int:
    """Products that numpy's einsum adds up, which takes all labels in one nest of loops."""
    equation: str = getattr(node.op, "equation", "")
    longest: dict[str, int] = {}
    for term, operand in zip_longest(equation.split("->")[0].split(","), node.operands, fillvalue=None):
        if term is None or operand is None:
            continue
        head, _, tail = term.replace(" ", "").partition("...")
        shape = sizes.shape(operand)
        named = [*zip(head, shape), *zip(reversed(tail), reversed(shape))]
        named += [(str(i), d) for i, d in enumerate(reversed(shape[len(head) : len(shape) - len(tail)]))]
        for label, size in named:
            longest[label] = max(longest.get(label, 1), size)
    return math.prod(longest.values())
