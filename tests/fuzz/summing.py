"""How far sums may be off by the order of their terms, in units of rounding of what their terms' magnitudes sum to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .known import window_size

BLOCK = 1024
"""Terms that parax takes in, at most, before it adds them to those before: `kernels/matmul/blocking`, MOST_STEPS."""
BLOCKS_OF = 256
"""Terms of the shortest blocks, whose sums are added one after the other: `kernels/reduction/line_blocks`."""
MOST = 2**14
"""Terms for which the worst order counts; of more it would excuse a thousandth and anything beyond."""
EXTRA = 8
"""Roundings of the bias, of a factor, of the accumulators of a sum that are joined: see docs/commands.md."""
TAKEN_AWAY = {"Sub": 1, "BatchNormalization": 3}
"""The operand that is not added, of operators that have one."""


def _share(node: Any, inputs: list[Any], value: Any) -> float:
    """Of operators that reduce an operand: its elements by those of the result."""
    return np.size(inputs[0]) / max(np.size(value), 1)


TERMS: dict[str, Callable[[Any, list[Any], Any], float]] = {
    "MatMul": lambda node, inputs, value: np.shape(inputs[0])[-1],
    "Gemm": lambda node, inputs, value: np.shape(inputs[0])[0 if getattr(node, "transA", 0) else 1],
    "Conv": lambda node, inputs, value: math.prod(np.shape(inputs[1])[1:]),
    "ConvTranspose": lambda node, inputs, value: np.size(inputs[1]) / np.shape(inputs[1])[1],
    "Einsum": lambda node, inputs, value: math.prod(map(np.size, inputs)),
    "CumSum": lambda node, inputs, value: max(np.shape(value), default=1),
    "AveragePool": lambda node, inputs, value: window_size(node.onnx_node),
    "ReduceSum": _share,
    "ReduceMean": _share,
    "GlobalAveragePool": _share,
}
"""How many numbers, at most, an element of the result is a sum of; of other operators as many as they have operands."""


def error_in_blocks(terms: float) -> float:
    """Of a sum as parax adds it up: in blocks, each from zero. In units of rounding of the sum of magnitudes."""
    return min(terms, BLOCK) + terms / BLOCKS_OF + EXTRA


def error_in_sequence(terms: float) -> float:
    """Of a sum in any order, so also of one term after the other (Higham, "Accuracy and Stability of Numerical
    Algorithms", 2002, 4.2). In units of rounding of the sum of magnitudes."""
    return min(terms, MOST) + EXTRA


def magnitudes(node: Any, inputs: list[Any]) -> Any:
    """What a sum's terms come to, without their signs."""
    sizes = [np.abs(x) if getattr(x, "dtype", None) == np.float64 else x for x in inputs]
    if node.op_type in TAKEN_AWAY:
        sizes[TAKEN_AWAY[node.op_type]] = -sizes[TAKEN_AWAY[node.op_type]]
    (terms,) = node.run(*sizes)
    return terms


def terms_of(node: Any, inputs: list[Any], value: Any) -> float:
    """How many numbers an element of a sum's result is made of, or more."""
    count = TERMS.get(node.op_type)
    return max(float(count(node, inputs, value)) if count is not None else len(inputs), 1.0)
