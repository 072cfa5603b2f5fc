"""Small results of constant operands are computed while importing: shapes and scales that later nodes need to know.

Large ones wait for the constant-folding pass. Both compute within the evaluator's budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..ir.graph import Node, Value
from ..ir.ops.base import Control, Host
from ..ir.ops.quantization import DequantizeLinear
from ..ir.types import BOOL, DType, SymDim, TensorType
from .evaluate import EvaluationError
from .limits import Limits

Evaluate = Callable[[Node, Sequence["np.ndarray | None"]], list[np.ndarray]]


def fold(node: Node, limits: Limits, evaluate: Evaluate, keeps_floats: bool = False) -> Sequence[Value] | None:
    """Constants in place of a node whose operands are constants, None if it stays as it is.

    Args:
        keeps_floats: nodes with operands of floats, single numbers apart, stay: they may be parameters.
    """
    if not _is_foldable(node, limits) or (keeps_floats and any(map(_may_be_trained, node.operands))):
        return None
    arrays = _known_arrays(node) or _evaluated(node, evaluate)
    if arrays is None or not all(_fits(array, value) for array, value in zip(arrays, node.outputs, strict=True)):
        return None
    graph, names = node.graph, [value.name for value in node.outputs]
    assert graph is not None
    graph.erase(node)
    return [graph.add_constant(array, name) for array, name in zip(arrays, names, strict=True)]


def _known_arrays(node: Node) -> list[np.ndarray] | None:
    """Integer results that inference has found already. Floats are left out: Python's are not rounded to f32."""
    arrays = []
    for value in node.outputs:
        dtype = value.tensor.dtype
        if value.known is None or not (dtype.is_int or dtype == BOOL) or dtype.numpy is None:
            return None
        if any(isinstance(item, SymDim) for item in value.known.flat):
            return None
        try:
            arrays.append(value.known.astype(dtype.numpy))
        except OverflowError:
            return None
    return arrays


def _evaluated(node: Node, evaluate: Evaluate) -> list[np.ndarray] | None:
    try:
        return evaluate(node, [None if v is None else v.data for v in node.inputs])
    except EvaluationError:  # the reference cannot run it, or not in time: the compiled code will
        return None


def _is_foldable(node: Node, limits: Limits) -> bool:
    if isinstance(node.op, (Control, Host)) or not node.op.deterministic or node.op.domain == "parax":
        return False
    if isinstance(node.op, DequantizeLinear) and node.output.tensor.rank > 1:
        return False  # weights, maybe: of whole numbers, as long as the passes have not seen their product
    if any(v.data is None or v.data.size > 16 * limits.fold_numel for v in node.operands):
        return False
    for value in node.outputs:
        if not isinstance(value.type, TensorType) or not value.type.is_static:
            return False
        numel = value.type.numel
        if not isinstance(numel, int) or numel > limits.fold_numel:
            return False
    return True


def _may_be_trained(v: Value) -> bool:
    return v.tensor.dtype.is_float and v.tensor.rank != 0


def _fits(array: np.ndarray, value: Value) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and DType.from_numpy(array.dtype) == type_.dtype and array.shape == type_.shape
