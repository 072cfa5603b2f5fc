"""What callers hand in: whole numbers that are some, and objects of the kind that is asked for."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError


def require_whole(name: str, value: Any, least: int = 0, most: int | None = None) -> None:
    """Refuse what is no whole number, or out of range; a bool is none.

    Args:
        least, most: that it may be; None: any.

    Raises:
        UsageError: names it.
    """
    if type(value) is not int or value < least or (most is not None and value > most):
        wanted = "above 0" if least == 1 else f"{least} or more"
        raise UsageError(f"must be a whole number {wanted}" if most is None else "must be a whole number in range",
                         where=name, expected=None if most is None else f"{least} to {most}",
                         found=repr(value)[:60])  # fmt: skip


def require_kind(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> None:
    """Refuse an object of another kind.

    Args:
        expected: the kinds in words.

    Raises:
        UsageError: names it.
    """
    if not isinstance(value, kinds):
        raise UsageError("a value of another kind", where=name, expected=expected, found=repr(value)[:60])
