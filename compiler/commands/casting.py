"""Arrays made to be of an input's element type, where that was asked for. Refuses what the type cannot hold."""

from __future__ import annotations

import numpy as np

from ...errors import UsageError
from ...runtime.dtypes import EXTENDED
from ...runtime.manifest import TensorSpec


def fitted(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    """The array in the input's element type: floats to the nearest, and to integers toward zero.

    Raises:
        UsageError: text and numbers, a number that the type cannot hold (out of range, or NaN as an integer).
    """
    dtype = spec.numpy
    if array.dtype == dtype:
        return array
    if spec.dtype in EXTENDED and dtype in (np.uint8, np.uint16):  # the bits of numbers, not numbers
        raise UsageError(f"{spec.dtype} needs the package ml_dtypes", where=where, hint="pip install ml_dtypes")
    is_text = (array.dtype.kind in "USOT", dtype.kind == "O")
    if is_text[0] != is_text[1] or (array.dtype.kind == "c" and dtype.kind != "c"):
        raise UsageError("cannot be cast", where=where, expected=dtype, found=array.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    lost = None if is_text[0] or dtype.kind == "b" else _first_lost(array, cast, spec)
    if lost is not None:
        raise UsageError("a number is out of range", where=where, expected=dtype, found=lost)
    return cast


def _first_lost(array: np.ndarray, cast: np.ndarray, spec: TensorSpec) -> object:
    """The first number that its new type does not hold, None where all are held."""
    if spec.dtype[0] not in "iu":
        kept = np.isfinite(cast) | ~np.isfinite(array)
    elif array.dtype.kind in "iub":
        kept = cast.astype(object) == array.astype(object) if spec.dtype in EXTENDED else cast == array
    else:
        whole = np.trunc(array)
        if spec.dtype in EXTENDED:
            kept = cast.astype(np.float64) == whole
        else:  # the least number above is a power of two, which floats have
            bounds = np.iinfo(spec.numpy)
            kept = (whole >= float(bounds.min)) & (whole < float(bounds.max // 2 + 1) * 2)
    return None if kept.all() else array[~kept].reshape(-1)[0].item()
