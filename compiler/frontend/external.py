"""External tensor data: files beside the model, mapped into memory. The model is not trusted to name them.

A location must stay inside the model's folder after symbolic links are resolved, and be a regular file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from onnx import StringStringEntryProto

from ...errors import InvalidModel
from ..ir.mapped import map_file
from .apart import Apart
from .parse import require_text


class ExternalData:
    """The files that tensors of one model may lie in; each is mapped once."""

    def __init__(self, folder: Path | None, apart: Apart | None = None) -> None:
        """`folder`: the model's; None if the model did not come from a file. `apart`: tensors that were read apart."""
        self._folder, self._apart = folder, apart
        self._maps: dict[str, memoryview] = {}

    def read(self, entries: Iterable[StringStringEntryProto], nbytes: int, where: str) -> memoryview:
        """The `nbytes` bytes that the entries (location, offset, length) point at.

        Of a tensor that was read apart, all of its bytes.

        Raises InvalidModel if the location is outside of the folder, or the file does not hold so many bytes.
        """
        fields: dict[str, str] = {}
        for entry in entries:
            require_text(where, entry.key, entry.value)
            if entry.key in fields:
                raise InvalidModel(f"external data with two {entry.key!r} entries", where=where)
            fields[entry.key] = entry.value
        if self._apart is not None and self._apart.key in fields:
            return self._apart.arrays[int(fields[self._apart.key])].data
        data = self._map(fields.get("location", ""), where)
        offset = _number(fields.get("offset", "0"), "offset", where)
        length = _number(fields.get("length", str(nbytes)), "length", where)
        if length != nbytes:
            raise InvalidModel("external data has the wrong length", where=where, expected=nbytes, found=length)
        if offset + nbytes > len(data):
            expected = f"{nbytes} bytes at offset {offset}"
            raise InvalidModel("the external data file is too short", where=where, expected=expected, found=len(data))
        return data[offset : offset + nbytes]

    def _map(self, location: str, where: str) -> memoryview:
        if location not in self._maps:
            self._maps[location] = _map_file(self._resolve(location, where), where)
        return self._maps[location]

    def _resolve(self, location: str, where: str) -> Path:
        if self._folder is None:
            hint = "pass the path of the model instead of its content, or base_dir"
            raise InvalidModel("external data, but the model is not in a folder", where=where, hint=hint)
        if not location or "\0" in location or "\\" in location or os.path.isabs(location):
            raise InvalidModel(
                "invalid location of external data",
                where=where,
                expected="a relative path inside the model's folder",
                found=repr(location[:200]),
            )
        folder = self._folder.resolve()
        try:
            path = (folder / location).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise InvalidModel("invalid location of external data", where=where, found=location[:200]) from error
        if ".." in Path(location).parts or not path.is_relative_to(folder):
            raise InvalidModel("external data outside of the model's folder", where=where, found=location[:200])
        return path


def _number(text: str, what: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidModel(f"invalid {what} of external data", where=where, expected="digits", found=text[:40])
    return int(text)


def _map_file(path: Path, where: str) -> memoryview:
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidModel("external data is not a regular file", where=where, found=path.name)
            if status.st_size == 0:
                return memoryview(b"")
            return memoryview(map_file(descriptor))
        finally:
            os.close(descriptor)
    except OSError as error:
        found = f"{path.name}: {error.strerror}"
        raise InvalidModel("external data cannot be read", where=where, found=found) from error
