"""What callers hand in as a file: its path, its bytes, or a file that is open. Owns the error of what is none of these.

Knows nothing of what the bytes are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import TextIOBase
from pathlib import Path
from typing import Protocol

from .errors import ResourceLimit, UsageError, WrongType

PIECE_NBYTES = 64 << 20
_Key = tuple[str, str]


class Readable(Protocol):
    """A binary file that is open: a real one, a temporary one, a BytesIO, a member of an archive."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes from where the file stands; none at its end."""
        ...


File = str | os.PathLike[str] | bytes | bytearray | memoryview | Readable


def path_or_bytes(
    given: object, what: str, *, expected: str, most_nbytes: int | None = None, hints: Mapping[_Key, str] | None = None
) -> Path | bytes:
    """The path as it is; of bytes and of an open file, from where that stands, the content.

    Args:
        given: the caller's. what: it is to be, in a word. expected: all that it may be, in words.
        most_nbytes: of an open file.
        hints: (package, class) → what to do with such an object, or one of a class derived from it.

    Raises:
        WrongType: none of these, or a file that was opened as text.
        UsageError: the file cannot be read. ResourceLimit: it holds more.
    """
    if isinstance(given, (str, os.PathLike)):
        return Path(os.fsdecode(given))
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    read = getattr(given, "read", None)
    if callable(read) and not isinstance(given, type):
        return _content(given, read, what, most_nbytes)
    found = "None" if given is None else f"an object of type {_name(type(given))}"
    keys = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(given).__mro__}
    hint = next((hint for key, hint in (hints or {}).items() if key in keys), None)
    raise WrongType(f"not a {what}", where=what, expected=expected, found=found, hint=hint)


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _content(file: object, read: Callable[[int], object], what: str, most_nbytes: int | None) -> bytes:
    name = getattr(file, "name", None)
    where = f"{what} {name!r:.200}" if isinstance(name, str) else what
    if isinstance(file, TextIOBase):
        raise _opened_as_text(where)
    pieces: list[bytes] = []
    n_left = most_nbytes
    while True:
        piece = _piece(read, where)
        if not piece:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.append(piece)
        if n_left is not None:
            n_left -= len(piece)
            if n_left < 0:
                raise ResourceLimit(f"the {what} is too large", where=where, expected=f"at most {most_nbytes} bytes")


def _piece(read: Callable[[int], object], where: str) -> bytes:
    try:
        piece = read(PIECE_NBYTES)
    except MemoryError:
        raise
    except Exception as error:  # whatever the caller's object raises: closed, open for writing, a broken archive
        raise UsageError("cannot be read", where=where, found=f"{type(error).__name__}: {error}"[:200]) from error
    if isinstance(piece, str):
        raise _opened_as_text(where)
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise UsageError("cannot be read", where=where, expected="bytes", found=f"{type(piece).__name__} from read()")
    return bytes(piece)


def _opened_as_text(where: str) -> WrongType:
    return WrongType("the file is open as text", where=where, expected="a binary file", hint='open it with "rb"')
