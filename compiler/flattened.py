"""Results that are no tensors, as tensors that can be compared: what they are made of, and how it is put together.

Knows Python objects as sessions give them: lists, dicts, None; see `runtime.host_values`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Flattened = tuple[str, list[np.ndarray]]


def flattened(value: Any) -> Flattened:
    """A text of the structure, equal for values that may be compared element by element, and the tensors in it.

    Maps of the same keys in a sequence become one tensor, [maps, keys].
    """
    if isinstance(value, list):
        if value and all(isinstance(item, dict) and item.keys() == value[0].keys() for item in value):
            keys = sorted(value[0])
            return f"{len(value)} maps of {keys}", [_numbers([[item[key] for key in keys] for item in value])]
        parts = [flattened(item) for item in value]
        return f"[{', '.join(form for form, _ in parts)}]", [array for _, arrays in parts for array in arrays]
    if isinstance(value, dict):
        return flattened([value])
    if value is None:
        return "nothing", []
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}", [array]


def _numbers(values: list[Any]) -> np.ndarray:
    """Numbers and texts out of maps; floats, which are Python's there, as f32 where that holds them."""
    array = np.array(values)
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    return narrow if np.array_equal(narrow, array, equal_nan=True) else array
