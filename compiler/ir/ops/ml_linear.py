"""Linear models of ai.onnx.ml: a product by the coefficients, and what is done with the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, TensorType, Type
from .base import Attr, Floats, In, InferContext, Ints, Out, Strs, op
from .casting import cast_to
from .ml_scores import (
    DOMAIN,
    TRANSFORMS,
    Features,
    Model,
    as_rows,
    best_label,
    check_choice,
    check_labels,
    check_one_score,
    label_type,
    of_two_classes,
    row_type,
    transformed,
)


def _per_target(ctx: InferContext, coefficients: Floats, intercepts: Floats, targets: int) -> int:
    """Features of a model, whose lists must fit the number of its targets."""
    if targets < 1 or not coefficients or len(coefficients) % targets:
        ctx.fail("as many coefficients are needed for each target", expected=f"a multiple of {targets}",
                 found=len(coefficients))  # fmt: skip
    if intercepts and len(intercepts) != targets:
        ctx.fail("an intercept is needed for each target", expected=targets, found=len(intercepts))
    return len(coefficients) // targets


def _scores(g: PyAny, x: PyAny, coefficients: Floats, intercepts: Floats, targets: int) -> PyAny:
    """x · coefficientsᵀ + intercepts, [rows, targets], in f32 of f32 and in f64 of all else."""
    rows = as_rows(g, x)
    dtype = rows.type.dtype
    weights = np.asarray(coefficients, np.float32).reshape(targets, -1).T
    scores = g.MatMul(rows, g.const(weights, dtype))
    return g.Add(scores, g.const(intercepts, dtype)) if any(intercepts) else scores


@op(since=1, domain=DOMAIN)
class LinearRegressor(Model):
    """f32[rows, targets]: X · coefficientsᵀ + intercepts, transformed.

    ONNX Runtime leaves LOGISTIC, SOFTMAX and SOFTMAX_ZERO out where there is one target, against the specification.
    """

    x: In[Features]
    coefficients: Attr[Floats] = ()
    intercepts: Attr[Floats] = ()
    post_transform: Attr[str] = "NONE"
    targets: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_choice(ctx, "post_transform", self.post_transform, TRANSFORMS)
        features = _per_target(ctx, self.coefficients, self.intercepts, self.targets)
        return [TensorType(F32, (row_type(ctx, features)[0], self.targets))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        scores = _scores(g, x, self.coefficients, self.intercepts, self.targets)
        return cast_to(g, transformed(g, scores, self.post_transform), F32)


@op(since=1, domain=DOMAIN)
class LinearClassifier(Model):
    """The label of each row, and f32[rows, classes] scores: X · coefficientsᵀ + intercepts, transformed.

    One row of coefficients for two classes gives the second one's score s; the first one's is 1 - s, and -s where a
    transform follows. (onnx.reference takes -s always; ONNX Runtime leaves SOFTMAX and SOFTMAX_ZERO out here.)
    """

    x: In[Features]
    label: Out
    scores: Out
    classlabels_ints: Attr[Ints] = ()
    classlabels_strings: Attr[Strs] = ()
    coefficients: Attr[Floats] = ()
    intercepts: Attr[Floats] = ()
    multi_class: Attr[int] = 0
    post_transform: Attr[str] = "NONE"

    @property
    def _classes(self) -> int:
        return len(self.classlabels_strings) or len(self.classlabels_ints)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_choice(ctx, "post_transform", self.post_transform, TRANSFORMS)
        check_labels(ctx, self.classlabels_ints, self.classlabels_strings)
        targets = self._targets(row_type(ctx)[1])
        rows, _ = row_type(ctx, _per_target(ctx, self.coefficients, self.intercepts, targets))
        if targets == 1:
            check_one_score(ctx, self.post_transform)
        return [label_type(self.classlabels_strings, rows), TensorType(F32, (rows, self._classes))]

    def _targets(self, features: object) -> int:
        """Rows of coefficients: one for each class, or one for both of two."""
        one = len(self.intercepts) == 1 or (not self.intercepts and len(self.coefficients) == features)
        return 1 if self._classes == 2 and one else self._classes

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        targets = self._targets(x.type.dims[-1])
        scores = _scores(g, x, self.coefficients, self.intercepts, targets)
        if targets == 1:
            best = g.Greater(scores, 0.0)
            label = best_label(g, cast_to(g, g.Concat(g.Not(best), best, axis=1), F32),
                               self.classlabels_strings, self.classlabels_ints)  # fmt: skip
            scores = of_two_classes(g, scores, complement=self.post_transform == "NONE")
        else:
            label = best_label(g, scores, self.classlabels_strings, self.classlabels_ints)
        return [label, cast_to(g, transformed(g, scores, self.post_transform), F32)]
