"""The ZIP container of a plan: members stored uncompressed, each payload on a 64-byte boundary, read through one mmap.

Any unzip lists such a file. Knows bytes and member names; not what a manifest is. The digest of the manifest lives in
the archive's comment, so that every byte that matters is covered by a digest.
"""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import CorruptPlan, UsageError
from ..files import replacing

ALIGNMENT = 64
WEIGHTS = "weights.bin"  # the member that is mapped and checked while the rest is read
Bytes = bytes | bytearray | memoryview
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ALIGN_FIELD = 0xD935  # the extra field that zipalign uses for padding
_ZIP64_LIMIT = (1 << 31) - 1
_MAX_MEMBERS = 1024


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
    header = offset + _LOCAL_HEADER.size + len(name.encode()) + (20 if large else 0)
    padding = -header % ALIGNMENT
    if padding:
        padding += ALIGNMENT if padding < 6 else 0
        info.extra = struct.pack("<HHH", _ALIGN_FIELD, padding - 4, ALIGNMENT) + bytes(padding - 6)
    with archive.open(info, "w", force_zip64=large) as member:
        member.write(data)


class Container:
    """A read-only mapped container.

    Attributes:
        path: where it came from.
        comment: the archive's comment.
        members: name → read-only view of the payload; no copy is made.
    """

    def __init__(self, path: Path) -> None:
        """Map and check the file.

        Raises:
            UsageError: the file cannot be read.
            CorruptPlan: not a container, or one whose directory and members disagree.
        """
        self.path = path
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise CorruptPlan("not a plan: the file is empty", where=str(path))
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                archive = zipfile.ZipFile(file)
                self.comment = archive.comment
                infos, end = archive.infolist(), archive.start_dir
        except OSError as error:
            raise UsageError("cannot read the plan", where=str(path), found=error.strerror or str(error)) from error
        except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error, IndexError) as error:
            raise CorruptPlan("not a plan, or a damaged one", where=str(path), found=str(error)) from error
        if len(infos) > _MAX_MEMBERS:
            raise CorruptPlan("too many members", where=str(path), expected=f"≤ {_MAX_MEMBERS}", found=len(infos))
        self.members: dict[str, memoryview] = {}
        view = memoryview(self._map)
        for info in infos:
            if info.filename in self.members:
                raise CorruptPlan("two members of one name", where=f"{path}:{info.filename}")
            start = self._payload_start(info, end)
            self.members[info.filename] = view[start : start + info.file_size]

    def _payload_start(self, info: zipfile.ZipInfo, end: int) -> int:
        """The offset of a member's bytes, once its local header agrees with the directory."""
        where = f"{self.path}:{info.filename}"
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1 or info.compress_size != info.file_size:
            raise CorruptPlan("member is compressed or encrypted", where=where, expected="stored as is")
        offset = info.header_offset
        if not 0 <= offset <= end - _LOCAL_HEADER.size:
            raise CorruptPlan("member starts outside the file", where=where)
        fields = _LOCAL_HEADER.unpack_from(self._map, offset)
        name_start = offset + _LOCAL_HEADER.size
        start = name_start + fields[9] + fields[10]
        same_name = self._map[name_start : name_start + fields[9]] == info.orig_filename.encode()
        if fields[0] != b"PK\x03\x04" or not same_name:
            raise CorruptPlan("local header and directory disagree", where=where)
        if info.file_size < 0 or start + info.file_size > end:
            raise CorruptPlan("member reaches outside the file", where=where)
        if start % ALIGNMENT:
            raise CorruptPlan("member is not aligned", where=where, expected=f"a multiple of {ALIGNMENT}", found=start)
        return start
