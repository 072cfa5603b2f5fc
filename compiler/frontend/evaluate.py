"""Nodes and graphs computed by onnx.reference: for constant folding, and as the oracle of tests.

Slow and exact; knows the exporter, not the backend.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from ...errors import ParaxError
from ..ir.graph import Graph, Node
from .exporter import export_node, to_onnx


class EvaluationError(ParaxError):
    """onnx.reference cannot compute this; the reason is its own exception."""


def evaluate_node(node: Node, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The outputs of one node for operand values (None where an optional operand is omitted).

    Raises EvaluationError if onnx.reference cannot run the operator on them, or is known to run it wrongly.
    """
    if _is_misread(node):
        raise EvaluationError("onnx.reference ignores some attributes of this node", where=node.where)
    model = export_node(node)
    given = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
    return _run(model, given, node.where)


def _is_misread(node: Node) -> bool:
    """onnx.reference's recurrent operators know neither activations, clip, input_forget nor sequence lengths."""
    if node.op.name not in ("RNN", "GRU", "LSTM"):
        return False
    attributes = node.op.explicit_attributes()
    has_lengths = len(node.inputs) > 4 and node.inputs[4] is not None
    return has_lengths or not attributes.keys().isdisjoint({"activations", "clip", "input_forget"})


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
