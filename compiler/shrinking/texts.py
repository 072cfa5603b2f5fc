"""Models and arrays as Python text that makes exactly them again, for tests."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser, printer


def model_text(model: onnx.ModelProto) -> str | None:
    """An expression that parses the model's text, None where the text does not hold all of it."""
    text = printer.to_text(model)
    if not _comes_back(text, model) or '"""' in text or "\\" in text:
        return None
    return f'parser.parse_model("""\n{text}\n""")'


def _comes_back(text: str, model: onnx.ModelProto) -> bool:
    """Whether the text is the whole model: the text form has no infinities, among others."""
    try:
        again = parser.parse_model(text)
    except Exception:  # the parser's errors have no common base
        return False
    return [n.SerializeToString() for n in again.graph.node] == [n.SerializeToString() for n in model.graph.node] and [
        onnx.numpy_helper.to_array(t).tobytes() for t in again.graph.initializer
    ] == [onnx.numpy_helper.to_array(t).tobytes() for t in model.graph.initializer]


def array_text(array: np.ndarray) -> str:
    """A numpy expression that makes exactly this array."""
    dtype = f"np.dtype({array.dtype.name!r})"
    if (array.size <= 64 and array.dtype.name in ("float32", "float64", "bool")) or (
        array.dtype.kind in "iu" and array.size <= 256
    ):
        numbers = array.tolist()
        if "nan" not in str(numbers) and "inf" not in str(numbers) and 0 not in array.shape:
            return f"np.array({numbers}, {dtype})"
    return f"np.frombuffer(bytes.fromhex({array.tobytes().hex()!r}), {dtype}).reshape({array.shape})"
