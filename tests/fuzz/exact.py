"""onnx.reference with its mistakes mended: what it rounds to float32 on the way, or computes wrong in any type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Erf(OpRun):  # type: ignore[misc]
    """onnx.reference's own gives float32 numbers in whatever type."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.asarray(_erf(x.astype(np.float64))).astype(x.dtype),)


class LRN(OpRun):  # type: ignore[misc]
    """onnx.reference's own counts images instead of channels."""

    def _run(
        self, x: np.ndarray, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
    ) -> tuple[np.ndarray]:
        wide = x.astype(np.float64)
        before, after = (size - 1) // 2, size // 2
        padded = np.pad(wide**2, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        squares = sum((padded[:, i : i + x.shape[1]] for i in range(size)), np.zeros_like(wide))
        return ((wide / (bias + alpha / size * squares) ** beta).astype(x.dtype),)


class MeanVarianceNormalization(OpRun):  # type: ignore[misc]
    """Its definition has constants in float32, which do not go with float64."""

    def _run(self, x: np.ndarray, axes: list[int] | None = None) -> tuple[np.ndarray]:
        over, wide = tuple(axes or (0, 2, 3)), x.astype(np.float64)
        centred = wide - wide.mean(over, keepdims=True)
        return ((centred / (np.sqrt((centred**2).mean(over, keepdims=True)) + 1e-9)).astype(x.dtype),)


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """onnx.reference's own drops an axis."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


OPERATORS = (Erf, LRN, MeanVarianceNormalization, GlobalMaxPool)


def evaluator(model: onnx.ModelProto) -> Any:
    """An onnx.reference evaluator of the model."""
    return ReferenceEvaluator(model, new_ops=list(OPERATORS))


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's outputs."""
    session = evaluator(model)
    return dict(zip(session.output_names, session.run(None, feeds), strict=True))
