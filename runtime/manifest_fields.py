"""One object of untrusted JSON, field by field: every access is typed, and says where it failed, in CorruptPlan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import CorruptPlan

T = TypeVar("T")


class Fields:
    """One JSON object being read: every access is typed and says where it failed."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise CorruptPlan("malformed manifest", where=where, expected="an object", found=type(raw).__name__)
        self.raw: dict[str, Any] = raw
        self.where = where

    def at(self, key: str) -> str:
        """The place of a field, for messages."""
        return f"{self.where}.{key}"

    def bad(self, key: str, expected: str) -> CorruptPlan:
        """The error for a field that is not as expected."""
        found = repr(self.raw.get(key))[:80]
        return CorruptPlan("malformed manifest", where=self.at(key), expected=expected, found=found)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; the default where absent."""
        value = self.raw.get(key, default)
        if not isinstance(value, str):
            raise self.bad(key, "text")
        return value

    def choice(self, key: str, choices: tuple[str, ...] | frozenset[str], default: str | None = None) -> str:
        """One of some strings."""
        value = self.text(key, default)
        if value not in choices:
            raise self.bad(key, f"one of {', '.join(sorted(choices))}")
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in [low, high]; a field absent or null takes the default if there is one."""
        value = self.raw.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.bad(key, f"an integer in [{low}, {high}]")
        return value

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """An integer in [low, high] or null."""
        return None if self.raw.get(key) is None else self.integer(key, low, high)

    def digest(self, key: str) -> str:
        """64 lower-case hexadecimal digits."""
        value = self.text(key)
        if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
            raise self.bad(key, "a SHA-256 in hexadecimal")
        return value

    def items(self, key: str, read: Callable[[Any, str], T], optional: bool = False) -> tuple[T, ...]:
        """A list, each element read by `read(raw, where)`."""
        value = self.raw.get(key, [] if optional else None)
        if not isinstance(value, list):
            raise self.bad(key, "a list")
        return tuple(read(raw, f"{self.at(key)}[{i}]") for i, raw in enumerate(value))

    def mapping(self, key: str, read: Callable[[Any, str], T]) -> dict[str, T]:
        """An object, each value read by `read(raw, where)`; absent is empty."""
        value = self.raw.get(key, {})
        if not isinstance(value, dict):
            raise self.bad(key, "an object")
        return {name: read(raw, f"{self.at(key)}.{name}") for name, raw in value.items()}

    def get_object(self, key: str) -> dict[str, Any]:
        """A free-form object; absent is empty."""
        value = self.raw.get(key, {})
        if not isinstance(value, dict):
            raise self.bad(key, "an object")
        return value
