"""Small results of constant operands are computed while importing: shapes and scales that later nodes need to know.

Large ones wait for the constant-folding pass, which has a byte budget.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.graph import Node, Value
from ..ir.ops.base import Control, Host
from ..ir.types import DType, TensorType
from .evaluate import EvaluationError, evaluate_node
from .limits import Limits


def fold(node: Node, limits: Limits) -> Sequence[Value] | None:
    """Constants in place of a node whose operands are constants, None if it stays as it is."""
    if not _is_foldable(node, limits):
        return None
    try:
        arrays = evaluate_node(node, [None if v is None else v.data for v in node.inputs])
    except EvaluationError:  # the reference cannot run it: the compiled code will
        return None
    if not all(_fits(array, value) for array, value in zip(arrays, node.outputs, strict=False)):
        return None
    graph, names = node.graph, [value.name for value in node.outputs]
    assert graph is not None
    graph.erase(node)
    return [graph.add_constant(array, name) for array, name in zip(arrays, names, strict=False)]


def _is_foldable(node: Node, limits: Limits) -> bool:
    if isinstance(node.op, (Control, Host)) or not node.op.deterministic or node.op.domain == "parax":
        return False
    if any(v.data is None or v.data.size > 16 * limits.fold_numel for v in node.operands):
        return False
    for value in node.outputs:
        if not isinstance(value.type, TensorType) or not value.type.is_static or value.known is not None:
            return False
        numel = value.type.numel
        if not isinstance(numel, int) or numel > limits.fold_numel:
            return False
    return True


def _fits(array: np.ndarray, value: Value) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and DType.from_numpy(array.dtype) == type_.dtype and array.shape == type_.shape
