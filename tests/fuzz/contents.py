"""What random tensors hold: ordinary numbers, or those on which kernels go wrong: Inf, NaN, denormals, -0, extremes."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
FLOATS = (F32, F64, F16, BF16)
SIGNED = tuple(np.dtype(n) for n in ("int8", "int16", "int32", "int64"))
UNSIGNED = tuple(np.dtype(n) for n in ("uint8", "uint16", "uint32", "uint64"))
INTS = SIGNED + UNSIGNED
BOOL, I32, I64 = np.dtype("bool"), np.dtype("int32"), np.dtype("int64")
I8, U8 = np.dtype("int8"), np.dtype("uint8")
ALL = (*FLOATS, *INTS, BOOL)
WEIGHTS = {F32: 10.0, F64: 3.0, F16: 3.0, BF16: 2.0, I64: 2.0, I32: 2.0, BOOL: 2.0}
MANTISSA = {F16: 10, BF16: 7, F32: 23, F64: 52}


def is_float(dtype: np.dtype) -> bool:
    """bfloat16 too, which numpy itself does not know."""
    return dtype in FLOATS


def epsilon(dtype: np.dtype) -> float:
    """The distance from 1 to the next number."""
    return 2.0 ** -MANTISSA[dtype]


def ceiling(dtype: np.dtype) -> float:
    """How large ordinary numbers of a float type may grow in a graph before they are scaled down."""
    return 200.0 if dtype == F16 else 1e4


def limits(dtype: np.dtype) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def random_array(
    rng: np.random.Generator, dtype: np.dtype, shape: Sequence[int], low: float, high: float, wild: bool = False
) -> np.ndarray:
    """Values in [low, high); of a wild graph some are special."""
    shape = tuple(shape)
    if dtype == BOOL:
        return rng.random(shape) < rng.choice([0.1, 0.5, 0.9])
    if not is_float(dtype):
        bottom, top = limits(dtype)
        low_int, high_int = max(int(np.floor(low)), bottom), min(int(np.ceil(high)), top)
        array = rng.integers(low_int, max(high_int, low_int), shape, endpoint=True, dtype=dtype)
        return _strewn(rng, array, np.array([bottom, top, 0, 1, bottom + 1], dtype)) if wild else array
    kind = rng.integers(0, 8)
    if kind == 0:
        array = np.round(rng.uniform(low, high, shape))
    elif kind == 1:
        array = rng.uniform(low, high, shape) * 10.0 ** rng.integers(-3, 1, shape)
    else:
        array = rng.uniform(low, high, shape)
    array = np.clip(array, low, high).astype(dtype)
    return _strewn(rng, array, special_floats(dtype)) if wild else array


def special_floats(dtype: np.dtype) -> np.ndarray:
    """Inf, NaN, zeros of both signs, denormals and the extremes of a float type."""
    info = ml_dtypes.finfo(dtype)
    tiny = float(info.smallest_subnormal)
    large = float(info.max) ** 0.4  # sums of products stay finite: whether they overflow is a matter of order
    usual = [
        np.inf,
        -np.inf,
        np.nan,
        0.0,
        -0.0,
        tiny,
        -tiny,
        float(info.tiny),
        large,
        -large,
        1.0,
        -1.0,
        0.5,
        2.5,
        -1.5,
    ]
    return np.array(usual, np.float64).astype(dtype)


def _strewn(rng: np.random.Generator, array: np.ndarray, special: np.ndarray) -> np.ndarray:
    """The array with some elements replaced by special ones, no, few or most of them."""
    share = rng.choice([0.0, 0.05, 0.3, 0.9])
    return np.where(rng.random(array.shape) < share, rng.choice(special, array.shape), array).astype(array.dtype)
