"""Casts that operators expand with: none where the element type is the wanted one already."""

from __future__ import annotations

from typing import Any as PyAny

from ..types import F32, F64, DType


def cast_to(g: PyAny, v: PyAny, dtype: DType) -> PyAny:
    """`v` in the element type."""
    return v if v.type.dtype == dtype else g.Cast(v, to=dtype)


def as_float(g: PyAny, v: PyAny) -> PyAny:
    """`v` in f32; f64 stays. What is computed of halves in several steps is rounded to them once, at the end."""
    return v if v.type.dtype in (F32, F64) else g.Cast(v, to=F32)
