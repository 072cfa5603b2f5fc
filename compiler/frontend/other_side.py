"""Whose failure it is when another implementation, with which parax is compared, raises. Loads none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import ParaxError, UnsupportedOp

MOST_SHOWN = 1000
"""Characters of its message."""


@contextmanager
def other_side(name: str, hint: str | None = None) -> Iterator[None]:
    """Whatever another implementation raises inside is its failure, not one of parax.

    Raises:
        UnsupportedOp: it failed, in its own words.
    """
    try:
        yield
    except (ParaxError, MemoryError):
        raise
    except Exception as error:  # their exceptions have no common base below Exception
        text = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_SHOWN]
        raise UnsupportedOp(f"{name} failed: {text}", hint=hint) from error
