"""DFT and STFT whose lengths or axis only the run knows: NumPy's transforms in double precision, rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford_tensor
from .base import one_number

COMPLEX_NBYTES = 16


def dft(settings: Mapping[str, Any], x: np.ndarray, length: Any = None, axis: Any = None) -> np.ndarray:
    """The transform of [..., 1 or 2]; operands and attributes are DFT-20's. Raises InvalidInput for impossible ones."""
    rank = x.ndim
    at = -2 if axis is None else int(one_number("DFT: axis", axis))
    if not -rank <= at < rank or at % rank == rank - 1:
        raise InvalidInput("DFT: impossible axis", expected=f"in [{-rank}, {rank}), not the last", found=at)
    at %= rank
    inverse, onesided = bool(settings.get("inverse", 0)), bool(settings.get("onesided", 0))
    samples = x.shape[at]
    n = 2 * (samples - 1) if inverse and onesided else samples
    n = n if length is None else int(one_number("DFT: dft_length", length))
    if n < 1:
        raise InvalidInput("DFT: impossible length of a transform", expected="1 or more", found=n)
    afford_tensor([*x.shape[:at], n, *x.shape[at + 1 : -1]], 2 * COMPLEX_NBYTES, "DFT")
    signal = _numbers(x)
    if inverse and onesided:
        return np.asarray(np.fft.irfft(signal, n, at)[..., None])
    if inverse:
        return _parts(np.fft.ifft(signal, n, at))
    return _parts(np.fft.rfft(signal.real, n, at) if onesided else np.fft.fft(signal, n, at))


def stft(settings: Mapping[str, Any], signal: np.ndarray, step: Any, window: Any = None, length: Any = None
         ) -> np.ndarray:  # fmt: skip
    """Transforms of windows of [N, samples, 1 or 2]; operands and attributes are STFT-17's. Raises InvalidInput."""
    hop, samples = int(one_number("STFT: frame_step", step)), signal.shape[1]
    n = len(window) if length is None else int(one_number("STFT: frame_length", length))
    if window is not None and np.shape(window) != (n,):
        found = list(np.shape(window))
        raise InvalidInput("STFT: the window must have frame_length numbers", expected=[n], found=found)
    if hop < 1 or not 1 <= n <= samples:
        raise InvalidInput("STFT: impossible windows", expected=f"a step of 1 or more and a length of 1 to {samples}",
                           found=f"{hop} and {n}")  # fmt: skip
    afford_tensor([signal.shape[0], (samples - n) // hop + 1, n], 3 * COMPLEX_NBYTES, "STFT")
    frames = np.lib.stride_tricks.sliding_window_view(_numbers(signal), n, axis=1)[:, ::hop]
    if window is not None:
        frames = frames * np.asarray(window).astype(np.float64)
    return _parts(np.fft.rfft(frames.real, axis=-1) if settings.get("onesided", 1) else np.fft.fft(frames, axis=-1))


def _numbers(x: np.ndarray) -> np.ndarray:
    """[..., 1 or 2] as complex numbers."""
    wide = x.astype(np.float64)
    y = np.zeros(x.shape[:-1], np.complex128)
    y.real = wide[..., 0]
    if x.shape[-1] == 2:
        y.imag = wide[..., 1]
    return y


def _parts(y: np.ndarray) -> np.ndarray:
    """Complex numbers as [..., 2]."""
    return np.stack([y.real, y.imag], axis=-1)
