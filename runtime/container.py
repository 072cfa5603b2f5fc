"""The ZIP container of a plan: members stored uncompressed, each payload on a 64-byte boundary, read through one mmap.

Any unzip lists such a file. Knows bytes and member names; not what a manifest is. The digest of the manifest lives in
the archive's comment, so that every byte that matters is covered by a digest.

Reads the directory itself, stricter than zipfile, whose import alone would take 3 ms of every start: nothing before the
first member or behind the comment, one disk. Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from ..errors import CorruptPlan, UsageError

ALIGNMENT = 64
WEIGHTS = "weights.bin"  # the member that is mapped and checked while the rest is read
Bytes = bytes | bytearray | memoryview
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_MAX_COMMENT_NBYTES = (1 << 16) - 1
_IN_EXTRA_FIELD = 0xFFFFFFFF  # a size or offset that stands in the ZIP64 field
_ENCRYPTED, _STORED = 1, 0
_MAX_MEMBERS = 1024


class Container:
    """A read-only mapped container.

    Attributes:
        path: the file, or None. where: what errors call it.
        comment: the archive's comment.
        members: name → read-only view of the payload; no copy is made.
    """

    def __init__(self, source: Path | bytes) -> None:
        """Map the file, or keep its bytes where a file would be mapped, and check it.

        Raises:
            UsageError: the file cannot be read.
            CorruptPlan: not a container, or one whose directory and members disagree.
        """
        self.path = source if isinstance(source, Path) else None
        self.where = "the plan's bytes" if self.path is None else str(self.path)
        self._map = _mapped(source) if isinstance(source, Path) else _kept(source)
        self.members: dict[str, memoryview] = {}
        try:
            start, end = self._find_directory()
            self._read_directory(start, end)
        except (ValueError, struct.error) as error:  # a name that is no UTF-8, a record that is cut off
            raise CorruptPlan("not a plan, or a damaged one", where=self.where, found=str(error)) from error

    def _find_directory(self) -> tuple[int, int]:
        """Where the directory starts and ends; sets the comment."""
        at = self._map.rfind(b"PK\x05\x06", max(0, len(self._map) - _MAX_COMMENT_NBYTES - _END.size))
        if at < 0:
            raise self._bad("no directory at the end of the file")
        _, disk, first_disk, _, _, size, start, comment_nbytes = _END.unpack_from(self._map, at)
        self.comment = self._map[at + _END.size :]
        end, locator = at, at - _LOCATOR64.size
        if locator >= 0 and self._map[locator : locator + 4] == b"PK\x06\x07":
            _, _, end, _ = _LOCATOR64.unpack_from(self._map, locator)
            if end != locator - _END64.size:
                raise self._bad("the directory's end is not where the file says")
            signature, _, _, _, disk, first_disk, _, _, size, start = _END64.unpack_from(self._map, end)
            if signature != b"PK\x06\x06":
                raise self._bad("the directory's end is not where the file says")
        if disk or first_disk or len(self.comment) != comment_nbytes or start + size != end:
            raise self._bad("the directory's end and the file disagree")
        return start, end

    def _read_directory(self, start: int, end: int) -> None:
        """Fill `members` from the directory in [start, end)."""
        view, at = memoryview(self._map).toreadonly(), start
        while at < end:
            fields = _ENTRY.unpack_from(self._map, at)
            flags, method, packed, size, name_nbytes, extra_nbytes = *fields[3:5], *fields[8:12]
            offset = fields[16]
            at += _ENTRY.size
            raw_name = self._map[at : at + name_nbytes]
            at += name_nbytes
            extra = self._map[at : at + extra_nbytes]
            at += extra_nbytes + fields[12]
            name = raw_name.decode()
            where = f"{self.where}:{name}"
            if fields[0] != b"PK\x01\x02" or at > end:
                raise self._bad("the directory is damaged")
            if name in self.members:
                raise CorruptPlan("two members of one name", where=where)
            if len(self.members) == _MAX_MEMBERS:
                raise CorruptPlan("too many members", where=self.where, expected=f"≤ {_MAX_MEMBERS}")
            if _IN_EXTRA_FIELD in (packed, size, offset):
                size, packed, offset = _large(extra, size, packed, offset)
            if method != _STORED or flags & _ENCRYPTED or packed != size:
                raise CorruptPlan("member is compressed or encrypted", where=where, expected="stored as is")
            payload = self._payload_start(raw_name, offset, size, start, where)
            self.members[name] = view[payload : payload + size]

    def _payload_start(self, raw_name: bytes, offset: int, size: int, end: int, where: str) -> int:
        """The offset of a member's bytes, once its local header agrees with the directory, which begins at `end`."""
        if offset > end - LOCAL_HEADER.size:
            raise CorruptPlan("member starts outside the file", where=where)
        fields = LOCAL_HEADER.unpack_from(self._map, offset)
        name_start = offset + LOCAL_HEADER.size
        start = name_start + fields[9] + fields[10]
        if fields[0] != b"PK\x03\x04" or self._map[name_start : name_start + fields[9]] != raw_name:
            raise CorruptPlan("local header and directory disagree", where=where)
        if start + size > end:
            raise CorruptPlan("member reaches outside the file", where=where)
        if start % ALIGNMENT:
            raise CorruptPlan("member is not aligned", where=where, expected=f"a multiple of {ALIGNMENT}", found=start)
        return int(start)

    def _bad(self, found: str) -> CorruptPlan:
        return CorruptPlan("not a plan, or a damaged one", where=self.where, found=found)


def _mapped(path: Path) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise CorruptPlan("not a plan: the file is empty", where=str(path))
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        found = getattr(error, "strerror", None) or str(error)
        raise UsageError("cannot read the plan", where=repr(str(path))[1:-1], found=found) from error


def _kept(content: bytes) -> mmap.mmap:
    """A copy on a boundary of a page, so that members are aligned as in a file."""
    if not content:
        raise CorruptPlan("not a plan: there are no bytes")
    kept = mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept[:] = content
    return kept


def _large(extra: bytes, *given: int) -> list[int]:
    """Size, size in the archive and offset, those that did not fit into 32 bits from the ZIP64 extra field.

    Raises:
        ValueError, struct.error: the field is not there, or too short.
    """
    at = 0
    while True:
        kind, nbytes = struct.unpack_from("<HH", extra, at)
        at += 4
        if kind == 1:
            break
        at += nbytes
    found = []
    for value in given:
        if value == _IN_EXTRA_FIELD:
            (value,) = struct.unpack_from("<Q", extra[: at + nbytes], at)
            at += 8
            nbytes -= 8
        found.append(value)
    return found
