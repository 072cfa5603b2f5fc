"""Operators of ai.onnx.ml that prepare features: scaled, filled in, cut, put together. All are made of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, Dim, TensorType, Type
from .base import Any, Attr, Floats, In, InferContext, Int64, Ints, Variadic, op
from .casting import cast_to
from .ml_scores import DOMAIN, Features, Model, as_rows, check_choice, exact_type, row_type


def _check_per_feature(ctx: InferContext, name: str, values: Sequence[object]) -> None:
    """Fails unless there is one value for all features, which are the last axis, or one for each."""
    if len(values) > 1:
        features = ctx.shape(0)[-1] if ctx.rank(0) else 1
        ctx.equal(features, len(values), f"{name} must have one number, or one for each feature")


@op(since=1, domain=DOMAIN)
class Scaler(Model):
    """f32: (X - offset) * scale, for all features or one by one."""

    x: In[Features]
    offset: Attr[Floats] = ()
    scale: Attr[Floats] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        for name in ("offset", "scale"):
            _check_per_feature(ctx, name, getattr(self, name))
        return [TensorType(F32, ctx.shape(0))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        y = cast_to(g, x, exact_type(x.type.dtype))
        for operator, values in ((g.Sub, self.offset), (g.Mul, self.scale)):
            if values:
                y = operator(y, g.const(values if len(values) > 1 else values[0], y.type.dtype))
        return cast_to(g, y, F32)


@op(since=1, domain=DOMAIN)
class Normalizer(Model):
    """f32: each row divided by its largest element (MAX), its L1 or its L2 norm; as it is where that is 0.

    MAX is of the elements, as the specification and ONNX Runtime have it; onnx.reference's is of their magnitudes.
    """

    x: In[Features]
    norm: Attr[str] = "MAX"

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_choice(ctx, "norm", self.norm, ("MAX", "L1", "L2"))
        row_type(ctx)
        return [TensorType(F32, ctx.shape(0))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        wide = cast_to(g, x, exact_type(x.type.dtype))
        norm = {"MAX": g.ReduceMax, "L1": g.ReduceL1, "L2": g.ReduceL2}[self.norm](wide, [-1])
        one = g.const(1.0, wide.type.dtype)
        return cast_to(g, g.Div(wide, g.Where(g.Equal(norm, 0.0), one, norm)), F32)


@op(since=1, domain=DOMAIN)
class Imputer(Model):
    """X with what is missing, a value or NaN, filled in, for all features or one by one."""

    x: In[Features]
    imputed_value_floats: Attr[Floats] = ()
    imputed_value_int64s: Attr[Ints] = ()
    replaced_value_float: Attr[float] = 0.0
    replaced_value_int64: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        is_float = ctx.tensor(0).dtype.is_float
        values = self.imputed_value_floats if is_float else self.imputed_value_int64s
        if not values:
            name = "imputed_value_floats" if is_float else "imputed_value_int64s"
            ctx.fail(f"{name} is needed for {ctx.tensor(0).dtype}", found="none")
        if not is_float:
            low, high = ctx.tensor(0).dtype.whole_range
            if any(not low <= v <= high for v in values):
                ctx.fail("imputed_value_int64s beyond the element type", expected=ctx.tensor(0).dtype,
                         found=max(values, key=abs))  # fmt: skip
        _check_per_feature(ctx, "imputed values", values)
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        dtype = x.type.dtype
        values = self.imputed_value_floats if dtype.is_float else self.imputed_value_int64s
        filled = g.const(values if len(values) > 1 else values[0], dtype)
        if not dtype.is_float:
            low, high = dtype.whole_range
            if not low <= self.replaced_value_int64 <= high:
                return g.Identity(x)
            return g.Where(g.Equal(x, g.const(self.replaced_value_int64, dtype)), filled, x)
        if math.isnan(self.replaced_value_float):
            return g.Where(g.IsNaN(x), filled, x)
        return g.Where(g.Equal(x, g.const(self.replaced_value_float, dtype)), filled, x)


@op(since=1, domain=DOMAIN)
class Binarizer(Model):
    """1 where X > threshold, else 0, in X's type."""

    x: In[Features]
    threshold: Attr[float] = 0.0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        dtype, threshold = x.type.dtype, self.threshold
        if not dtype.is_float:  # x > threshold says the same of its whole part, where the type holds it
            low, high = dtype.whole_range
            if math.isnan(threshold) or threshold >= high:
                return g.Mul(x, 0)
            if threshold < low:
                return g.Add(g.Mul(x, 0), 1)
            threshold = math.floor(threshold)
        return cast_to(g, g.Greater(x, g.const(threshold, dtype)), dtype)


@op(since=1, domain=DOMAIN)
class ArrayFeatureExtractor(Model):
    """The elements of the last axis of X that Y names, [..., indices]; of a vector, [1, indices]."""

    x: In[Any]
    y: In[Int64]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) < 1:
            ctx.fail("X needs an axis to take elements from", found=ctx.types[0])
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, y: PyAny) -> PyAny:
        rows = g.Unsqueeze(x, [0]) if x.type.rank == 1 else x
        return g.Gather(rows, g.Reshape(y, [-1]), axis=-1)


@op(since=1, domain=DOMAIN)
class FeatureVectorizer(Model):
    """f32: all inputs side by side, each [rows, columns] or [columns] of one row, cut or filled with zeros to its
    inputdimensions.
    """

    xs: Variadic[Features]
    inputdimensions: Attr[Ints] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        widths = self.inputdimensions
        if widths and (len(widths) != ctx.n_inputs or min(widths) < 1):
            ctx.fail("inputdimensions needs a size for each input", expected=f"{ctx.n_inputs} positive numbers",
                     found=str(widths)[:60])  # fmt: skip
        rows: Dim | None = None
        total: Dim = 0
        for i in range(ctx.n_inputs):
            shape = ctx.shape(i)
            if len(shape) not in (1, 2):
                ctx.fail(f"input {i} must have one or two axes", found=ctx.types[i])
            if widths and not isinstance(shape[-1], int):
                ctx.unsupported(f"columns of input {i} must be known at compile time", found=ctx.types[i])
            own = shape[0] if len(shape) == 2 else 1
            rows = own if rows is None else ctx.equal(rows, own, "all inputs must have as many rows")
            total += widths[i] if widths else shape[-1]
        assert rows is not None
        return [TensorType(F32, (rows, total))]

    def expand(self, g: PyAny, *xs: PyAny) -> PyAny:
        parts = []
        for i, x in enumerate(xs):
            part = as_rows(g, x, F32)
            columns, width = part.type.dims[1], (self.inputdimensions or (part.type.dims[1],) * len(xs))[i]
            if self.inputdimensions and width < columns:
                part = g.Slice(part, [0], [width], [1])
            elif self.inputdimensions and width > columns:
                part = g.Pad(part, np.array([0, 0, 0, width - columns]))
            parts.append(part)
        return g.Concat(*parts, axis=1) if len(parts) > 1 else g.Identity(parts[0])
