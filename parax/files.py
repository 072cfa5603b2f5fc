"""Files written whole or not at all: under a name of their own first, which then takes the old file's place.

Owns that and the error of a place that cannot be written; knows nothing of what is written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from .errors import UsageError

_STREAMS = ("/dev", "/dev/fd")  # their names may stand for files that others write, too: /dev/stdout


def check_writable(path: Path) -> None:
    """Refuse before the work rather than after it.

    Raises:
        UsageError: nothing can be written there.
    """
    if path.is_dir():
        raise UsageError("is a folder", where=str(path), expected="a file to write")
    if not path.parent.is_dir():
        raise UsageError("no such folder", where=str(path.parent), hint="make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError("cannot be written", where=str(path), hint="check the permissions, or choose another place")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing and seeking, that takes the place of `path` when the body has ended.

    If the body raises, what was at `path` stays as it was and nothing is left beside it. A link keeps pointing where
    it did. A pipe or a device gets everything at the end.

    Raises:
        UsageError: the place cannot be written (no such folder, no permission, disk full).
        BrokenPipeError: it is a pipe, and its reader has left.
    """
    try:
        if str(path.parent) in _STREAMS or (path.exists() and not path.is_file()):
            content = BytesIO()
            yield content
            path.write_bytes(content.getbuffer())
        else:
            with _in_place_of(Path(os.path.realpath(path))) as file:
                yield file
    except BrokenPipeError:  # whoever reads the pipe may leave
        raise
    except OSError as error:
        hint = "check the folder, its permissions and the space left, or choose another place"
        found = error.strerror or str(error)
        raise UsageError("cannot be written", where=str(path), found=found, hint=hint) from error


@contextmanager
def _in_place_of(path: Path) -> Iterator[BinaryIO]:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(f"{path.name} may not be written")
    partial = path.parent / f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            if mode is not None:
                with suppress(PermissionError):  # somebody else's, who lets us write to it
                    os.fchmod(handle, mode)
            yield file
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, or leave it as it was.

    Raises:
        UsageError: the place cannot be written.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def keep(path: Path, content: str | bytes) -> bool:
    """Write a file of a cache, in a folder for this user alone. False where that cannot be: no cache is no error."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, content)
    except (OSError, UsageError):
        return False
    return True
