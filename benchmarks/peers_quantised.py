"""A model of the list in 8 bits, as ONNX Runtime's own quantiser makes it: the same file for every side.

QDQ, activations u8, weights i8 by channel, ranges from random inputs. Owns these settings; they are those that ONNX
Runtime's documentation advises for CPUs with VNNI.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from examples.models import feeds
from parax.errors import UsageError

N_SAMPLES, ROWS = 4, 2  # of random inputs, by which ranges are chosen


def quantised(name: str, source: Path, target: Path, *, small: bool) -> Path:
    """Write `source`, the list's model `name`, in 8 bits.

    Raises:
        UsageError: onnxruntime is not installed.
    """
    try:
        from onnxruntime import quantization  # optional: the extra "bench"
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed", hint="pip install 'parax[bench]'") from error

    folded = target.with_suffix(".folded.onnx")
    with quiet():
        quant_pre_process(str(source), str(folded), skip_symbolic_shape=True)
        kinds = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
        quantization.quantize_static(str(folded), str(target), Samples(name, small), per_channel=True, **kinds)
    folded.unlink()
    return target


class Samples:
    """Random inputs one after the other, as the quantiser asks for them."""

    def __init__(self, name: str, small: bool) -> None:
        self._left = (feeds(name, ROWS, seed=seed, small=small) for seed in range(N_SAMPLES))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next ones by name; None: there are no more."""
        return next(self._left, None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the quantiser's advice, which its settings answer."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


__all__ = ["quantised"]
