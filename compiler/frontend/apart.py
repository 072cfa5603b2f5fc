"""A model file read with its large tensors apart: mapped, or into arrays of their own, where protobuf would hold two
copies more.

Walks the file in protobuf's wire format, tag by tag, along graphs, initializers and attributes only; everything else
is copied as it is. A tensor that is read apart stays in the message with an entry of external data that names its
place. A file that is no such message is left to the parser, which says what is wrong with it. Knows bytes, not ONNX's
rules.

Sources: Protocol Buffers, Encoding; onnx.proto3 for the fields' numbers.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, StringStringEntryProto, TensorProto

from ..ir.mapped import MappedFile, map_file

LEAST_NBYTES = 1 << 16
"""Of raw data that is read apart, and of messages that are walked through."""
MAPPED_NBYTES = 1 << 20
"""Of raw data from which on it stays in the file. Less is copied to where its elements are aligned."""
MANY_FIELDS = 256
"""Of an attribute that protobuf's parser looks into, as lists may have millions of elements, each a field."""
_WINDOW_NBYTES = 1 << 16
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types; groups, which ONNX has none of, are left to the parser
_MOST_VARINT_NBYTES = 10
_MODEL = {7: "graph"}
_MESSAGES = {
    "graph": {1: "node", 5: "tensor"}, "node": {5: "attribute"}, "attribute": {5: "tensor", 6: "graph"},
}  # fmt: skip
_DATA_TYPE, _FLOAT_DATA, _RAW_DATA, _DOUBLE_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 2, 4, 9, 10, 13, 14
# Element types whose own fields hold them as memory does, and their sizes.
_PACKED: dict[int, tuple[int, int]] = {TensorProto.FLOAT: (_FLOAT_DATA, 4), TensorProto.DOUBLE: (_DOUBLE_DATA, 8)}
_MOST_DEPTH = 200


class Apart(NamedTuple):
    """A message without its large tensors.

    Attributes:
        message: the rest. arrays: each tensor's bytes. key: of the external data's entries that give a tensor's place
            in `arrays`; no file can have guessed it.
    """

    message: bytes
    key: str
    arrays: list[np.ndarray]


def read_apart(descriptor: int, nbytes: int) -> Apart:
    """A serialised ModelProto.

    Args:
        descriptor: of the open file. nbytes: its size.

    Raises:
        OSError: the file cannot be read.
        ValueError: it ends within a field, or has one that ONNX has not.
    """
    walk = _Walk(descriptor, nbytes)
    return Apart(b"".join(walk.message(0, nbytes, _MODEL, 0)), walk.key, walk.arrays)


class _Field(NamedTuple):
    """A field's number and wire type, where it begins, and from where to where its content reaches."""

    number: int
    wire: int
    at: int
    begin: int
    end: int


class _Walk:
    def __init__(self, descriptor: int, nbytes: int) -> None:
        self._descriptor, self._nbytes = descriptor, nbytes
        self._window, self._window_at = b"", 0
        self._file: MappedFile | None = None
        self.key = f"parax {secrets.token_hex(16)}"
        self.arrays: list[np.ndarray] = []

    def message(self, begin: int, end: int, inner: dict[int, str], depth: int) -> list[bytes]:
        """A message with what is large inside of its `inner` messages left out, in pieces."""
        if depth > _MOST_DEPTH:
            raise ValueError("nested too deeply")
        pieces: list[bytes] = []
        kept = begin  # from here on nothing has been copied yet
        for count, field in enumerate(self._fields(begin, end)):
            if count == MANY_FIELDS and inner is _MESSAGES["attribute"] and self._only_lists(begin, end):
                break
            kind = inner.get(field.number) if field.wire == _BYTES else None
            if kind is None or field.end - field.begin < LEAST_NBYTES:
                continue
            if kind == "tensor":
                content = self._tensor(field.begin, field.end)
            else:
                content = self.message(field.begin, field.end, _MESSAGES[kind], depth + 1)
            header = _varint(field.number << 3 | _BYTES) + _varint(sum(map(len, content)))
            pieces += [self._read(kept, field.at), header, *content]
            kept = field.end
        return [*pieces, self._read(kept, end)]

    def _only_lists(self, begin: int, end: int) -> bool:
        """Whether an attribute has no tensor and no graph, as the parser reads it. Raises ValueError if it cannot."""
        try:
            attribute = AttributeProto.FromString(self._read(begin, end))
        except DecodeError as error:
            raise ValueError("a malformed attribute") from error
        return not attribute.HasField("t") and not attribute.HasField("g")

    def _tensor(self, begin: int, end: int) -> list[bytes]:
        raw = self._content(list(self._fields(begin, end)))
        if raw is None:
            return [self._read(begin, end)]
        entry = StringStringEntryProto(key=self.key, value=str(len(self.arrays)))
        marks = TensorProto(external_data=[entry], data_location=TensorProto.EXTERNAL)
        self.arrays.append((self._mapped if raw.end - raw.begin >= MAPPED_NBYTES else self._array)(raw.begin, raw.end))
        return [self._read(begin, raw.at), self._read(raw.end, end), marks.SerializeToString()]

    def _content(self, fields: list[_Field]) -> _Field | None:
        """The only field of a tensor that has its elements, if they are many and lie there as in memory."""
        if any(f.number in (_EXTERNAL_DATA, _DATA_LOCATION) for f in fields):
            return None
        types = [self._number(f.begin, f.end)[0] for f in fields if f.number == _DATA_TYPE and f.wire == _VARINT]
        packed, nbytes = _PACKED.get(types[0] if len(types) == 1 else 0, (_RAW_DATA, 1))
        found = [f for f in fields if f.number in (_RAW_DATA, packed)]
        if len(found) != 1 or found[0].wire != _BYTES:
            return None
        size = found[0].end - found[0].begin
        return found[0] if size >= LEAST_NBYTES and (found[0].number == _RAW_DATA or size % nbytes == 0) else None

    def _fields(self, begin: int, end: int) -> Iterator[_Field]:
        at = begin
        while at < end:
            tag, content = self._number(at, end)
            wire = tag & 7
            if wire == _BYTES:
                length, content = self._number(content, end)
            elif wire == _VARINT:
                length = self._number(content, end)[1] - content
            elif wire in (_EIGHT, _FOUR):
                length = 8 if wire == _EIGHT else 4
            else:
                raise ValueError("an unknown wire type")
            if content + length > end:
                raise ValueError("a field reaches beyond its message")
            yield _Field(tag >> 3, wire, at, content, content + length)
            at = content + length

    def _number(self, at: int, end: int) -> tuple[int, int]:
        """A varint and where it ends."""
        data = self._near(at)
        value = 0
        for i in range(min(_MOST_VARINT_NBYTES, end - at, len(data))):
            value |= (data[i] & 0x7F) << 7 * i
            if data[i] < 0x80:
                return value, at + i + 1
        raise ValueError("a number reaches beyond its message")

    def _near(self, at: int) -> memoryview:
        """The bytes from `at` on, some of them."""
        start = at - self._window_at
        if not 0 <= start <= len(self._window) - _MOST_VARINT_NBYTES:
            self._window, self._window_at, start = os.pread(self._descriptor, _WINDOW_NBYTES, at), at, 0
        return memoryview(self._window)[start:]

    def _read(self, begin: int, end: int) -> bytes:
        return bytes(self._array(begin, end)) if end > begin else b""

    def _mapped(self, begin: int, end: int) -> np.ndarray:
        """Bytes of the file where they lie: in memory only while somebody looks at them."""
        self._file = self._file or map_file(self._descriptor)
        if end > len(self._file):
            raise ValueError("the file became shorter")
        return np.frombuffer(self._file, np.uint8, end - begin, begin)

    def _array(self, begin: int, end: int) -> np.ndarray:
        """Bytes of the file, aligned for every element type."""
        array = np.empty(end - begin, np.uint8)
        done = 0
        while done < array.size:
            got = os.preadv(self._descriptor, [array[done:].data], begin + done)
            if got <= 0:
                raise ValueError("the file became shorter")
            done += got
        return array


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
