"""What the models of ai.onnx.ml share: rows of features, transforms of scores, and labels of the best class.

Transforms and labels follow the specification; where it is silent, ONNX Runtime (`ml_common.h`): scores that one number
decides for two classes, which label wins.
"""

from __future__ import annotations

from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, I32, I64, STR, Dim, DType, TensorType
from .base import Composite, InferContext, TypeGroup
from .casting import cast_to

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
_NEAR_ZERO = 1e-7  # scores within it are zero to SOFTMAX_ZERO
_WINITZKI = 0.147  # of the approximation of the inverse error function


class Features(TypeGroup):
    """What models take for features."""

    dtypes = frozenset({F32, F64, I32, I64})


class Model(Composite):
    """An operator of ai.onnx.ml: says its types itself, as what it expands into may be large."""

    def known(self, ctx: InferContext) -> None:
        """Nothing: what models compute are no sizes."""
        return


def exact_type(dtype: DType) -> DType:
    """f32 for f32; for all others f64, which holds what they hold."""
    return F32 if dtype == F32 else F64


def row_type(ctx: InferContext, features: int | None = None) -> tuple[Dim, Dim]:
    """Rows and features of x, [rows, features], or [features] of one row.

    Args:
        features: as many as the model has; None: any number.
    """
    shape = ctx.shape(0)
    if len(shape) not in (1, 2):
        ctx.fail("x must have one or two axes", expected="[rows, features] or [features]", found=ctx.types[0])
    if features is not None:
        ctx.equal(shape[-1], features, "x must have the features of the model")
    return (shape[0] if len(shape) == 2 else 1), shape[-1]


def as_rows(g: PyAny, x: PyAny, dtype: DType | None = None) -> PyAny:
    """x as [rows, features] of an element type, as is or `exact_type`'s."""
    rows = g.Unsqueeze(x, [0]) if x.type.rank == 1 else x
    return cast_to(g, rows, dtype or exact_type(x.type.dtype))


def check_choice(ctx: InferContext, name: str, found: str, choices: tuple[str, ...]) -> None:
    """Fails where an attribute is none of the choices."""
    if found not in choices:
        ctx.fail(f"unknown {name}", expected=", ".join(choices), found=found[:60])


def transformed(g: PyAny, scores: PyAny, name: str) -> PyAny:
    """The scores of each row, [rows, classes], after a post_transform."""
    if name == "LOGISTIC":
        return g.Sigmoid(scores)
    if name == "SOFTMAX":
        return g.Softmax(scores, axis=-1)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(g, scores)
    return _probit(g, scores) if name == "PROBIT" else scores


def _softmax_zero(g: PyAny, scores: PyAny) -> PyAny:
    """Softmax in which zero scores keep no probability."""
    top = g.ReduceMax(scores, [1])
    e = g.Where(g.Greater(g.Abs(scores), _NEAR_ZERO), g.Exp(g.Sub(scores, top)), g.Mul(scores, g.Exp(g.Neg(top))))
    total, dtype = g.ReduceSum(e, [1]), scores.type.dtype
    return g.Where(g.Equal(total, 0.0), g.const(0.5, dtype), g.Div(e, total))


def _probit(g: PyAny, scores: PyAny) -> PyAny:
    """The inverse of the normal distribution by Winitzki's approximation of erf⁻¹, in f64: it cancels at 0.5."""
    p = cast_to(g, scores, F64)
    log = g.Log(g.Mul(g.Mul(p, 4.0), g.Sub(1.0, p)))
    v = g.Add(g.Mul(log, 0.5), 2 / (np.pi * _WINITZKI))
    root = g.Sqrt(g.Sub(g.Sqrt(g.Sub(g.Mul(v, v), g.Div(log, _WINITZKI))), v))
    y = g.Mul(g.Mul(g.Sign(g.Sub(p, 0.5)), root), np.sqrt(2))
    return cast_to(g, y, scores.type.dtype)


def of_two_classes(g: PyAny, score: PyAny, *, complement: bool) -> PyAny:
    """[rows, 2] scores from the second class's [rows, 1]: the first one's is 1 minus that, or the opposite."""
    return g.Concat(g.Sub(1.0, score) if complement else g.Neg(score), score, axis=1)


def check_labels(ctx: InferContext, ints: tuple[int, ...], strings: tuple[str, ...]) -> None:
    """Fails where a classifier has not the labels of at least two classes, of one type."""
    if ints and strings:
        ctx.fail("labels are either integers or strings", found="both")
    if len(strings or ints) < 2:
        ctx.unsupported("a classifier of fewer than two labels: what other classes are called, nothing says",
                        found=len(strings or ints))  # fmt: skip


def check_one_score(ctx: InferContext, transform: str) -> None:
    """Fails where one score for two classes has no transform of the first one's."""
    if transform == "PROBIT":
        ctx.unsupported("PROBIT of one score for two classes: nothing says what the first one's is")


def label_type(strings: tuple[str, ...], rows: Dim) -> TensorType:
    """Of the labels of all rows."""
    return TensorType(STR if strings else I64, (rows,))


def best_label(g: PyAny, scores: PyAny, strings: tuple[str, ...], ints: tuple[int, ...]) -> PyAny:
    """The label of the class of the largest score of each row, the first of them; strings are looked up on the host."""
    best = g.ArgMax(scores, axis=1, keepdims=0)
    if not strings and ints == tuple(range(len(ints))):
        return best
    labels = np.array(strings, object) if strings else np.asarray(ints, np.int64)
    return g.Gather(g.const(labels), best)
