"""Large constants read band after band, so that nobody holds a second copy of one on its way into a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .mapped import forget
from .types import float_info

BAND_NBYTES = 4 << 20

Band = tuple[slice, ...]


def bands(array: np.ndarray, most: int = BAND_NBYTES) -> Iterator[Band]:
    """Indices of parts of at most `most` bytes, each as close together in memory as can be.

    >>> list(bands(np.zeros((2, 6)), 6 * 8)), list(bands(np.zeros((2, 6)).T, 3 * 8))[:2]
    ([(slice(0, 1, None), slice(None, None, None)), (slice(1, 2, None), slice(None, None, None))], \
[(slice(0, 3, None), slice(0, 1, None)), (slice(3, 6, None), slice(0, 1, None))])
    """
    whole = (slice(None),) * array.ndim
    if array.nbytes <= max(most, array.itemsize):
        yield whole
        return
    axis = max(range(array.ndim), key=lambda a: (array.shape[a] > 1, abs(array.strides[a])))
    step = max(1, most * array.shape[axis] // array.nbytes)
    for first in range(0, array.shape[axis], step):
        own = slice(first, min(first + step, array.shape[axis]))
        part = (*whole[:axis], own)
        for inner in bands(array[part], most):
            yield (*inner[:axis], own, *inner[axis + 1 :])


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """target[...] = source, in the target's element type; what was read of a mapped file is forgotten."""
    for band in bands(source):
        target[band] = source[band]
        forget(source[band])


def largest(array: np.ndarray) -> float:
    """The largest magnitude; NaN if there is one, 0 of nothing."""
    most = [np.float64(0.0)]
    for band in bands(array):
        most += [array[band].max(initial=0), -array[band].min(initial=0)]
        forget(array[band])
    return float(np.max(most))


def scaled(array: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """array · factor (of a shape that broadcasts to the array's) in f64, rounded to the array's element type.

    None where the type does not hold the products as well as it did the numbers: too large, or newly too small.
    """
    result = np.empty(array.shape, array.dtype)
    factors = np.broadcast_to(factor, array.shape)
    tiny = float(float_info(array.dtype).tiny)
    for band in bands(array):
        given, by = array[band].astype(np.float64), factors[band]
        with np.errstate(over="ignore", invalid="ignore"):
            result[band] = given * by
        forget(array[band])
        small = (np.abs(result[band]) < tiny) & (np.abs(given) >= tiny) & (by != 0)
        if not np.isfinite(result[band]).all() or small.any():
            return None
    return result


def rounded(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """f64 numbers in an element type; None where it does not hold one of them: too large, or too small and not 0."""
    with np.errstate(over="ignore"):
        result = np.asarray(numbers).astype(dtype)
    small = (np.abs(result) < float(float_info(dtype).tiny)) & (numbers != 0)
    return result if np.isfinite(result).all() and not small.any() else None


def turned(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """A C-contiguous copy of the array with its axes in another order."""
    result = np.empty([array.shape[axis] for axis in order], array.dtype)
    copy(result, array.transpose(order))
    return result


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two vectors of one length hold the same numbers."""
    return all(np.array_equal(a[i : i + BAND_NBYTES], b[i : i + BAND_NBYTES]) for i in range(0, a.size, BAND_NBYTES))


def greatest(array: np.ndarray) -> float:
    """The greatest magnitude of an element, as f32; infinite or not a number if one is."""
    most = np.float32(0)
    for band in bands(array):
        most = np.maximum(most, np.abs(array[band].astype(np.float32)).max(initial=0))
        forget(array[band])
    return float(most)


def is_finite(array: np.ndarray) -> bool:
    """Whether no element is infinite or not a number, as f32."""
    return math.isfinite(greatest(array))
