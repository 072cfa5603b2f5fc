"""Numbers written as text, and read from it, as ONNX Runtime's Cast has them; numbers are told by whole texts alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InvalidInput


def float_text(number: float) -> str:
    """A number in 8 digits, as C's %.8g has it."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "INF" if number > 0 else "-INF"
    return f"{number:.8g}"


def fixed_text(number: float) -> str:
    """A number with six digits behind the point, as std::to_string has it."""
    return f"{number:f}"


def float_of_text(text: str, dtype: np.dtype[Any]) -> Any:
    """The number of that float type that a text is: plain, in scientific notation, INF or NaN in any case.

    Raises:
        InvalidInput: it is none, or has more than one.
    """
    plain = text.strip()
    try:
        if "_" in plain or not plain.isascii():
            raise ValueError
        with np.errstate(over="ignore"):
            return np.asarray(float(plain)).astype(dtype)[()]
    except ValueError:
        raise _no_number(text, dtype) from None


def int_of_text(text: str, dtype: np.dtype[Any]) -> int:
    """The whole number of that type that a text is.

    Raises:
        InvalidInput: it is none, or the type does not hold it.
    """
    plain = text.strip()
    try:
        if "_" in plain or not plain.isascii() or len(plain) > 40:
            raise ValueError
        found = int(plain)
    except ValueError:
        raise _no_number(text, dtype) from None
    low, high = (0, 1) if dtype.kind == "b" else _range(dtype)
    if not low <= found <= high and dtype.kind != "b":
        raise InvalidInput("a text is a number out of range", expected=f"{low} to {high}", found=f"{text!r:.80}")
    return found


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    bits = int("".join(c for c in dtype.name if c.isdigit()))  # of ml_dtypes, as int4
    return (0, (1 << bits) - 1) if dtype.name.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _no_number(text: str, dtype: np.dtype[Any]) -> InvalidInput:
    return InvalidInput("a text is no number", expected=f"one of {dtype}", found=f"{text!r:.80}")
