"""Writes the ZIP container of a plan: members stored uncompressed, each payload on a 64-byte boundary.

Apart from `container`, which reads them, because zipfile brings in five modules that no plan needs to start.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

from ..files import replacing
from .container import ALIGNMENT, LOCAL_HEADER, Bytes

_ALIGN_FIELD = 0xD935  # the extra field that zipalign uses for padding
_ZIP64_LIMIT = (1 << 31) - 1


def write_container(path: Path, members: Iterable[tuple[str, Bytes]], comment: bytes) -> None:
    """Write the members, in order, to `path`: whole or not at all.

    Raises:
        UsageError: the place cannot be written (folder missing, no permission, disk full).
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = comment
        for name, data in members:
            _write_member(archive, file.tell(), name, data)


def _write_member(archive: zipfile.ZipFile, offset: int, name: str, data: Bytes) -> None:
    info = zipfile.ZipInfo(name)  # the default date, 1980, keeps equal plans equal in every byte
    info.external_attr = 0o644 << 16
    info.file_size = len(data)
    large = len(data) > _ZIP64_LIMIT
    header = offset + LOCAL_HEADER.size + len(name.encode()) + (20 if large else 0)
    padding = -header % ALIGNMENT
    if padding:
        padding += ALIGNMENT if padding < 6 else 0
        info.extra = struct.pack("<HHH", _ALIGN_FIELD, padding - 4, ALIGNMENT) + bytes(padding - 6)
    with archive.open(info, "w", force_zip64=large) as member:
        member.write(data)
