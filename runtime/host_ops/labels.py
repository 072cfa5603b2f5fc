"""Values looked up by strings, or that are strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Attributes, host_op


@host_op("LookUp", "parax")
def look_up(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """values[i] where x equals keys[i], default elsewhere; NaN is equal to itself."""
    x, keys, values, default = map(np.asarray, inputs)
    of_key = {_hashed(key): value for key, value in zip(keys.tolist(), values.tolist(), strict=True)}
    found = [of_key.get(_hashed(key), default.item()) for key in x.reshape(-1).tolist()]
    y = np.empty(x.size, values.dtype)
    y[:] = found
    return [y.reshape(x.shape)]


def _hashed(key: Any) -> Any:
    return "NaN of a number" if isinstance(key, float) and key != key else (key,)
