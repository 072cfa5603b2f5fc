"""Tables of a TOML file as dataclasses: every key is a field, and what does not fit is said with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ...errors import UsageError

T = TypeVar("T")


def read_table(cls: type[T], table: Any, where: str) -> T:
    """An instance of the dataclass from a table.

    Raises:
        UsageError: no table; a key that it has not, lacks or that is of another type; what the class itself refuses.
    """
    if not isinstance(table, Mapping):
        raise UsageError("not a table", where=where, expected=f"[{where}]", found=repr(table)[:60])
    types = get_type_hints(cls)
    own = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        check_key(key, own, where)
    given: dict[str, Any] = {}
    for name, field in own.items():
        if name in table:
            given[name] = _value(table[name], types[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            found = ", ".join(table) or "nothing"
            raise UsageError("a key is missing", where=f"[{where}]", expected=f"{name} = …", found=found)
    return cls(**given)


def check_key(key: str, known: Mapping[str, Any] | list[str], where: str) -> None:
    """Refuse a key that is not known. Raises UsageError."""
    if key not in known:
        near = get_close_matches(key, list(known), 1)
        raise UsageError("no such key", where=f"[{where}]", expected=", ".join(known), found=key,
                         hint=f"did you mean {near[0]}?" if near else None)  # fmt: skip


def _value(value: Any, type_: Any, where: str) -> Any:
    choices = get_args(type_) if get_origin(type_) is UnionType else (type_,)
    for choice in choices:
        if choice is float and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if choice in (int, str, bool) and type(value) is choice:
            return value
        if get_origin(choice) is dict and isinstance(value, dict):
            return value
        if get_origin(choice) in (tuple, Sequence) and isinstance(value, list):
            each = get_args(choice)
            if Ellipsis in each or len(each) in (1, len(value)):
                return tuple(_value(v, each[0], where) for v in value)
    expected = " or ".join(_worded(c) for c in choices if c is not NoneType)
    raise UsageError("a value of another type", where=where, expected=expected, found=repr(value)[:60])


_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false",
                          dict: "a table"}  # fmt: skip


def _worded(type_: Any) -> str:
    """A type as messages call it."""
    inner = get_args(type_)
    if get_origin(type_) not in (tuple, Sequence):
        return _NAMES.get(get_origin(type_) or type_, str(type_))
    count = "a list" if Ellipsis in inner or len(inner) == 1 else f"{len(inner)}"
    return f"{count}, each {_worded(inner[0])}"
