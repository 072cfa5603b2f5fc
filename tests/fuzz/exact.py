"""onnx.reference with its mistakes mended: what it rounds to float32 on the way, or computes wrong in any type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from . import exact_recurrent, exact_sampling, exact_windows
from .graphs import all_nodes

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


class Gemm(OpRun):  # type: ignore[misc]
    """onnx.reference's own multiplies integers by alpha as floats."""

    def _run(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, alpha: float = 1.0, beta: float = 1.0,
        transA: int = 0, transB: int = 0,
    ) -> tuple[np.ndarray]:  # fmt: skip
        if a.dtype.kind in "iu":
            if alpha != 1.0 or (c is not None and beta != 1.0):
                raise ValueError("ONNX does not say how an integer times alpha is rounded")
            product = (a.T if transA else a) @ (b.T if transB else b)
            return ((product if c is None else product + c).astype(a.dtype),)
        wide = [None if v is None else v.astype(np.float64) for v in (a, b, c)]
        product = alpha * ((wide[0].T if transA else wide[0]) @ (wide[1].T if transB else wide[1]))
        return ((product if c is None or beta == 0.0 else product + beta * wide[2]).astype(a.dtype),)


OPERATORS = (
    Erf, LRN, MeanVarianceNormalization, GlobalMaxPool, Gemm,
    *exact_recurrent.OPERATORS, *exact_sampling.OPERATORS, *exact_windows.OPERATORS,
)  # fmt: skip


def evaluator(model: onnx.ModelProto) -> Any:
    """An onnx.reference evaluator of the model."""
    return ReferenceEvaluator(_named(model), new_ops=list(OPERATORS))


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name for every result: onnx.reference hands one without to operands that are left out."""
    if all(all(node.output) for node in all_nodes(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for number, node in enumerate(all_nodes(copy.graph)):
        node.output[:] = [name or f"unused_{number}_{i}" for i, name in enumerate(node.output)]
    return copy


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The model's outputs."""
    session = evaluator(model)
    return dict(zip(session.output_names, session.run(None, feeds), strict=True))
