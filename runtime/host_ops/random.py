"""Where random numbers of models without a seed begin."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from .base import Attributes, host_op


@host_op("FreshSeed", "parax")
def fresh_seed(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """64 bits of the operating system's, as an i64."""
    return [np.frombuffer(secrets.token_bytes(8), np.int64).reshape(()).copy()]
