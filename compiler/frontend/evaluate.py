"""Nodes and graphs computed by onnx.reference: for constant folding, and as the oracle of tests.

Slow and exact; knows the exporter, not the backend. Owns the budget of one compilation for folding.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from ...errors import ParaxError
from ..ir.graph import Graph, Node
from ..ir.mapped import forget
from ..ir.ops.base import Movement
from ..ir.types import TensorType
from .exporter import export_node, to_onnx
from .reference_mistakes import mistake_of
from .reference_work import reference_work

BASE_WORK, WORK_PER_BYTE = 4e9, 40.0  # nanoseconds by estimate, for any model, and more for a byte of its weights
FAILURE_WORK = 1e7  # of a node that the reference refuses: it is tried again after other passes
BASE_NBYTES, NBYTES_PER_BYTE = 1 << 30, 8  # of results, likewise


class EvaluationError(ParaxError):
    """onnx.reference cannot compute this; the reason is its own exception."""


class Evaluator:
    """`evaluate_node` within a budget for the whole model, by estimates: the same model makes the same plan.

    What is beyond it stays in the graph: kernels of ours compute it when the plan runs.

    Attributes:
        given_nbytes: of the model's own constants, which the budget grows with.
        work, nbytes: spent: nanoseconds by `reference_work`, bytes of results.
    """

    def __init__(self, most_nbytes: int | None = None) -> None:
        """`most_nbytes`: of all results together; None: by the size of the model."""
        self.given_nbytes, self.work, self.nbytes = 0, 0.0, 0
        self._most_nbytes = most_nbytes

    def __call__(self, node: Node, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """The outputs of one node for operand values. Raises EvaluationError as `evaluate_node`, or over budget."""
        work = reference_work(node)
        most = BASE_WORK + WORK_PER_BYTE * self.given_nbytes
        if self.work + work > most:
            raise EvaluationError("too much work to do while compiling", where=node.where,
                                  expected=f"{most - self.work:.3g} ns at most", found=f"{work:.3g} ns")  # fmt: skip
        sizes = [v.type.nbytes for v in node.outputs if isinstance(v.type, TensorType) and v.type.shape is not None]
        nbytes = sum(n for n in sizes if isinstance(n, int))
        room = self._room()
        if self.nbytes + nbytes > room:
            raise EvaluationError("too many bytes to make while compiling", where=node.where,
                                  expected=f"{room - self.nbytes} at most", found=nbytes)  # fmt: skip
        self.work += work
        self.nbytes += nbytes
        try:
            return evaluate_node(node, arrays)
        except EvaluationError:
            self.work += FAILURE_WORK
            raise

    def _room(self) -> int:
        by_size = BASE_NBYTES + NBYTES_PER_BYTE * self.given_nbytes
        return by_size if self._most_nbytes is None else min(self._most_nbytes, by_size)


def evaluate_node(node: Node, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The outputs of one node for operand values (None where an optional operand is omitted).

    Raises EvaluationError if onnx.reference cannot run the operator on them, or is known to run it wrongly.
    """
    mistake = mistake_of(node, arrays)
    if mistake:
        raise EvaluationError(f"onnx.reference {mistake}", where=node.where)
    model = export_node(node)
    given = {f"x{i}": _placed(node, array) for i, array in enumerate(arrays) if array is not None}
    results = _run(model, given, node.where)
    for value, result in zip(node.outputs, results):
        if isinstance(result, np.ndarray) and not _is_of_type(value.type, result):
            raise EvaluationError("onnx.reference makes another type", where=node.where, expected=value.type,
                                  found=f"{result.dtype}{list(result.shape)}")  # fmt: skip
    return results


def _placed(node: Node, array: np.ndarray) -> np.ndarray:
    """An operand where its elements are aligned: numpy's sums of others depend on where in the file they lay."""
    if isinstance(node.op, Movement) or array.flags.aligned:
        return array
    aligned = array.copy()
    forget(array)
    return aligned


def _is_of_type(t: Any, found: np.ndarray) -> bool:
    """Whether an array is what inference says; what it leaves open fits."""
    if not isinstance(t, TensorType):
        return True
    if t.dtype.numpy is not None and t.dtype.numpy != found.dtype and t.dtype.numpy.kind != "O":
        return False
    return t.shape is None or (
        len(t.shape) == found.ndim and all(not isinstance(d, int) or d == n for d, n in zip(t.shape, found.shape))
    )


def evaluate_graph(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name for inputs by name. Raises EvaluationError as `evaluate_node`."""
    results = _run(to_onnx(graph), feeds, f"graph {graph.name}")
    return dict(zip(graph.output_names, results, strict=True))


def _run(model: ModelProto, feeds: Mapping[str, Any], where: str) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator  # brings in hundreds of modules: only when something is computed

    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception as error:  # its operators raise anything
        raise EvaluationError(f"onnx.reference failed: {type(error).__name__}: {error}", where=where) from error
    return [result if isinstance(result, list) else np.asarray(result) for result in results]  # type: ignore[misc]
