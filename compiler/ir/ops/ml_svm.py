"""Support vector regression of ai.onnx.ml: kernels between rows and support vectors, and their weighted sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, TensorType, Type
from .base import Attr, Floats, In, InferContext, op
from .casting import cast_to
from .ml_scores import DOMAIN, TRANSFORMS, Features, Model, as_rows, check_choice, row_type, transformed

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def kernel_values(g: PyAny, rows: PyAny, vectors: np.ndarray, kind: str, params: Floats) -> PyAny:
    """[rows, vectors] of kernel(row, vector), in the rows' element type.

    Args:
        params: gamma, coef0 and degree; none: zeros.
    """
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    dtype = rows.type.dtype
    if kind == "RBF":
        return g.Exp(g.Mul(cast_to(g, _squared_distances(g, rows, vectors), dtype), -gamma))
    products = g.MatMul(rows, g.const(vectors.T, dtype))
    if kind == "LINEAR":
        return products
    moved = g.Add(g.Mul(products, gamma), coef0)
    return g.Tanh(moved) if kind == "SIGMOID" else g.Pow(moved, g.const(degree, dtype))


def _squared_distances(g: PyAny, rows: PyAny, vectors: np.ndarray) -> PyAny:
    """|x|² - 2 x·v + |v|² about the vectors' mean, in f64: what cancels is beyond what f32 holds."""
    middle = vectors.astype(np.float64).mean(axis=0)
    centred = vectors - middle
    x = g.Sub(cast_to(g, rows, F64), g.const(middle))
    products = g.MatMul(x, g.const(-2 * centred.T))
    lengths = g.Add(g.ReduceSumSquare(x, [1]), g.const((centred**2).sum(axis=1)))
    return g.Max(g.Add(products, lengths), g.const(0.0, F64))


@op(since=1, domain=DOMAIN)
class SVMRegressor(Model):
    """f32[rows, 1]: Σ coefficient · kernel(x, support vector) + rho; with one_class, 1 where that is positive, else -1.

    Without support vectors the coefficients are of the features. onnx.reference has no transforms, and ONNX Runtime
    leaves all but PROBIT of one number out, against the specification.
    """

    x: In[Features]
    coefficients: Attr[Floats] = ()
    kernel_params: Attr[Floats] = ()
    kernel_type: Attr[str] = "LINEAR"
    n_supports: Attr[int] = 0
    one_class: Attr[int] = 0
    post_transform: Attr[str] = "NONE"
    rho: Attr[Floats] = ()
    support_vectors: Attr[Floats] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_choice(ctx, "post_transform", self.post_transform, TRANSFORMS)
        check_choice(ctx, "kernel_type", self.kernel_type, _KERNELS)
        if len(self.kernel_params) not in (0, 3):
            ctx.fail("kernel_params must be gamma, coef0 and degree", expected=3, found=len(self.kernel_params))
        if len(self.rho) != 1 or not self.coefficients:
            ctx.fail("one rho and coefficients are needed", found=f"{len(self.rho)} and {len(self.coefficients)}")
        n, features = self.n_supports, len(self.coefficients)
        if n < 0 or (n > 0 and (features != n or not self.support_vectors or len(self.support_vectors) % n)):
            ctx.fail("a coefficient and as many numbers are needed for each support vector", expected=f"{n} vectors",
                     found=f"{features} coefficients, {len(self.support_vectors)} numbers")  # fmt: skip
        features = len(self.support_vectors) // n if n else features
        return [TensorType(F32, (row_type(ctx, features)[0], 1))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        rows = as_rows(g, x)
        dtype = rows.type.dtype
        if self.n_supports:
            vectors = np.asarray(self.support_vectors, np.float32).reshape(self.n_supports, -1)
            rows = kernel_values(g, rows, vectors, self.kernel_type, self.kernel_params)
        scores = g.Add(g.MatMul(rows, g.const(np.reshape(self.coefficients, (-1, 1)), dtype)), self.rho[0])
        if self.one_class:
            scores = g.Where(g.Greater(scores, 0.0), g.const(1.0, dtype), g.const(-1.0, dtype))
        return cast_to(g, transformed(g, scores, self.post_transform), F32)
