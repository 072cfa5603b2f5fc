"""Support vector machines of ai.onnx.ml: kernels between rows and support vectors, and their weighted sums."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .base import Attr, Float, Floats, In, InferContext, Ints, Operator, Out, Strs, op
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

_LEAST_PROBABILITY = 1e-7  # of a class against another, as libsvm and ONNX Runtime have it
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


def _check_kernel(ctx: InferContext, kind: str, params: Floats) -> None:
    """Fails where there is no such kernel, or it has not its three numbers."""
    check_choice(ctx, "kernel_type", kind, _KERNELS)
    if len(params) not in (0, 3):
        ctx.fail("kernel_params must be gamma, coef0 and degree", expected=3, found=len(params))


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
        _check_kernel(ctx, self.kernel_type, self.kernel_params)
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


@op(domain="parax")
class CoupleProbabilities(Operator):
    """[rows, classes] probabilities from those of each pair of classes, the first against the second, [rows, pairs].

    The second method of Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling",
    2004, as libsvm iterates it: until no class is off by 0.005 / classes, or 100 times.
    """

    pairs: In[Float]
    classes: Attr[int]
    row_axis = row_rules.along_axis
    axis = -1
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        rows, pairs = ctx.shape(0)
        ctx.equal(pairs, self.classes * (self.classes - 1) // 2, "a probability of each pair of classes is needed")
        return [TensorType(F64, (rows, self.classes))]


@op(since=1, domain=DOMAIN)
class SVMClassifier(Model):
    """The label of each row, and f32 scores, transformed.

    With support vectors each pair of classes has a score: Σ coefficient · kernel(x, vector) + rho of the vectors of
    both, above 0 for the first. The label is the class that most pairs are for, the first of several. Scores are the
    classes' probabilities where prob_a and prob_b give a pair's, 1 / (1 + exp(a · score + b)); else those of the pairs,
    [rows, pairs], and of two classes the opposite and the score. Without support vectors, X · coefficientsᵀ + rho[0].
    """

    x: In[Features]
    label: Out
    scores: Out
    classlabels_ints: Attr[Ints] = ()
    classlabels_strings: Attr[Strs] = ()
    coefficients: Attr[Floats] = ()
    kernel_params: Attr[Floats] = ()
    kernel_type: Attr[str] = "LINEAR"
    post_transform: Attr[str] = "NONE"
    prob_a: Attr[Floats] = ()
    prob_b: Attr[Floats] = ()
    rho: Attr[Floats] = ()
    support_vectors: Attr[Floats] = ()
    vectors_per_class: Attr[Ints] = ()

    @property
    def _classes(self) -> int:
        return len(self.classlabels_strings) or len(self.classlabels_ints)

    @property
    def _vectors(self) -> int:
        return sum(self.vectors_per_class)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_choice(ctx, "post_transform", self.post_transform, TRANSFORMS)
        _check_kernel(ctx, self.kernel_type, self.kernel_params)
        check_labels(ctx, self.classlabels_ints, self.classlabels_strings)
        if self._classes == 2 and not self.prob_a:
            check_one_score(ctx, self.post_transform)
        features = self._features_of_vectors(ctx) if self.vectors_per_class else self._features_of_classes(ctx)
        rows, _ = row_type(ctx, features)
        return [label_type(self.classlabels_strings, rows), TensorType(F32, (rows, self._n_scores))]

    @property
    def _n_scores(self) -> int:
        n = self._classes
        return n if n == 2 or self.prob_a or not self.vectors_per_class else n * (n - 1) // 2

    def _features_of_classes(self, ctx: InferContext) -> int:
        """Of a linear model."""
        n = len(self.coefficients)
        if self._classes == 2:
            ctx.unsupported("two classes without support vectors: ONNX Runtime and onnx.reference name other labels")
        if not n or n % self._classes or not self.rho:
            ctx.fail("coefficients of each class and a rho are needed", expected=f"{self._classes} rows of them",
                     found=f"{n} numbers, {len(self.rho)} rho")  # fmt: skip
        return n // self._classes

    def _features_of_vectors(self, ctx: InferContext) -> int:
        """Of a model with support vectors, checked."""
        n, vectors = self._classes, self._vectors
        pairs = n * (n - 1) // 2
        if len(self.vectors_per_class) != n or min(self.vectors_per_class) < 0 or not vectors:
            ctx.fail("a number of support vectors is needed for each class", expected=n, found=self.vectors_per_class)
        if not self.support_vectors or len(self.support_vectors) % vectors:
            ctx.fail("support vectors of one length are needed", expected=vectors, found=len(self.support_vectors))
        if len(self.coefficients) != (n - 1) * vectors:
            ctx.fail("a coefficient of each support vector for every other class is needed",
                     expected=(n - 1) * vectors, found=len(self.coefficients))  # fmt: skip
        lengths = {"rho": len(self.rho), "prob_a": len(self.prob_a), "prob_b": len(self.prob_b)}
        for name, found in lengths.items():
            if found != pairs and (name == "rho" or self.prob_a or self.prob_b):
                ctx.fail(f"{name} of each pair of classes is needed", expected=pairs, found=found)
        return len(self.support_vectors) // vectors

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        rows = as_rows(g, x)
        of_labels = self.classlabels_strings, self.classlabels_ints
        if not self.vectors_per_class:
            weights = np.reshape(self.coefficients, (self._classes, -1)).T
            scores = g.Add(g.MatMul(rows, g.const(weights, rows.type.dtype)), self.rho[0])
            return [best_label(g, scores, *of_labels), cast_to(g, transformed(g, scores, self.post_transform), F32)]
        pairs = self._pair_scores(g, rows)
        label = best_label(g, self._votes(g, pairs), *of_labels)
        if self.prob_a:
            scores = self._probabilities(g, pairs)
        else:
            scores = of_two_classes(g, pairs, complement=False) if self._classes == 2 else pairs
        return [label, cast_to(g, transformed(g, cast_to(g, scores, rows.type.dtype), self.post_transform), F32)]

    def _pair_scores(self, g: PyAny, rows: PyAny) -> PyAny:
        """[rows, pairs]: above 0 for the first class of a pair."""
        n, dtype = self._vectors, rows.type.dtype
        vectors = np.asarray(self.support_vectors, np.float32).reshape(n, -1)
        coefficients = np.reshape(self.coefficients, (-1, n))
        ends = np.cumsum(self.vectors_per_class)
        spans = [slice(end - count, end) for end, count in zip(ends, self.vectors_per_class)]
        weights = np.zeros((n, len(self.rho)))
        for pair, (i, j) in enumerate(itertools.combinations(range(self._classes), 2)):
            weights[spans[i], pair] = coefficients[j - 1, spans[i]]
            weights[spans[j], pair] = coefficients[i, spans[j]]
        values = kernel_values(g, rows, vectors, self.kernel_type, self.kernel_params)
        return g.Add(g.MatMul(values, g.const(weights, dtype)), g.const(np.array(self.rho), dtype))

    def _votes(self, g: PyAny, pairs: PyAny) -> PyAny:
        """[rows, classes], f32: how many pairs are for a class."""
        of_first = np.zeros((len(self.rho), self._classes), np.float32)
        of_second = np.zeros_like(of_first)
        for pair, (i, j) in enumerate(itertools.combinations(range(self._classes), 2)):
            of_first[pair, i] = of_second[pair, j] = 1
        first = cast_to(g, g.Greater(pairs, 0.0), F32)
        return g.Add(g.MatMul(first, g.const(of_first - of_second)), g.const(of_second.sum(axis=0)))

    def _probabilities(self, g: PyAny, pairs: PyAny) -> PyAny:
        """[rows, classes]."""
        dtype = pairs.type.dtype
        a, b = g.const(np.array(self.prob_a), dtype), g.const(np.array(self.prob_b), dtype)
        first = g.Sigmoid(g.Neg(g.Add(g.Mul(pairs, a), b)))
        least, most = g.const(_LEAST_PROBABILITY, dtype), g.const(1 - _LEAST_PROBABILITY, dtype)
        return g.CoupleProbabilities(g.Clip(first, least, most), classes=self._classes)
