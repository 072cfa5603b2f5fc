"""What a file is, by its first bytes: so that a wrong one is called by its name ("this is a plan").

Owns the signatures of what people hand over by mistake. Reads a few kilobytes, for ZIP archives the list of members;
decides nothing: whether a file can be read is for its reader to say, and this is asked once that has failed.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .errors import ParaxError

HEAD_NBYTES = 4096
_MOST_MODELS, _MOST_MODEL_NBYTES = 16, 32 << 20  # beside a file, searched for its name
_CHUNK_NBYTES = 1 << 20


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: as in "this is …".
        hint: what to do where an ONNX model or a plan is wanted.
    """

    name: str
    hint: str | None = None


_EXPORT = "export it to ONNX first: torch.onnx.export(model, inputs, 'model.onnx')"
_CONVERT = "convert it to ONNX first: tf2onnx does that"
_UNPACK = "unpack it first"
EITHER = Kind("an ONNX model or a plan")
MODEL = Kind("an ONNX model", "compile it first: parax compile")
PLAN = Kind("a plan", "`parax run`, `bench` and `inspect` take it; here the ONNX model is needed that it was made from")
EMPTY = Kind("an empty file", "was it copied completely?")
_INPUT = "it may be an input: --input NAME=@FILE"
ARRAY, ARRAYS = Kind("a NumPy array", _INPUT), Kind("an archive of NumPy arrays", _INPUT)
PNG, JPEG = Kind("a PNG picture", _INPUT), Kind("a JPEG picture", _INPUT)
DATA = Kind("external data of an ONNX model", "give the .onnx file that belongs to it")
TEXT = Kind("a text file")
TORCH, TORCH_EXPORT = Kind("a PyTorch file", _EXPORT), Kind("a program saved by torch.export", _EXPORT)

_STARTS: tuple[tuple[bytes, Kind], ...] = (
    (b"\x93NUMPY", ARRAY),
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"GIF8", Kind("a GIF picture")),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", TORCH),  # before PyTorch 1.6: a pickle of a magic number
    (b"\x80\x02", Kind("a Python pickle", "it may hold a PyTorch model: " + _EXPORT)),
    (b"\x80\x03", Kind("a Python pickle")),
    (b"\x80\x04\x95", Kind("a Python pickle")),
    (b"\x80\x05\x95", Kind("a Python pickle")),
    (b"\x89HDF\r\n\x1a\n", Kind("an HDF5 file, perhaps a Keras model", _CONVERT)),
    (b"GGUF", Kind("a GGUF model", "parax compiles ONNX models only")),
    (b"version https://git-lfs.github.com/spec/", Kind("a pointer of Git LFS, not the file itself", "git lfs pull")),
    (b"\x1f\x8b", Kind("a gzip archive", _UNPACK)),
    (b"BZh", Kind("a bzip2 archive", _UNPACK)),
    (b"\xfd7zXZ\0", Kind("an xz archive", _UNPACK)),
    (b"\x28\xb5\x2f\xfd", Kind("a zstd archive", _UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", Kind("a 7z archive", _UNPACK)),
    (b"\x7fELF", Kind("a compiled program or object file")),
    (b"%PDF-", Kind("a PDF document")),
)
_AT: tuple[tuple[int, bytes, Kind], ...] = (
    (4, b"TFL3", Kind("a TensorFlow Lite model", "convert it to ONNX first: tf2onnx --tflite does that")),
    (4, b"ORTM", Kind("a model in ONNX Runtime's own format", "give the .onnx file that it was made from")),
    (8, b"WEBP", Kind("a WebP picture")),
    (257, b"ustar", Kind("a tar archive", _UNPACK)),
)
_TEXTS: tuple[tuple[str, Kind], ...] = (  # regular expressions, at the start, blanks and case ignored
    (r"<!doctype html|<html|<head", Kind("an HTML page, as of a download that failed", "download it again")),
    (r"<\?xml|<net ", Kind("an XML file, perhaps an OpenVINO model", "give the ONNX model that it was made from")),
    (r"<\s*ir_version", Kind("an ONNX model in text form", "onnx.parser.parse_model reads it, onnx.save writes it")),
    (r"ir_version\s*:", Kind("an ONNX model as protobuf text", "onnx.load(…, format='textproto') reads it")),
    (r"graph @?\w+\(", Kind("the text of a graph", "give the ONNX model that it was made from")),
    (r"[\[{]\s*([\"\[{}\]\d-]|true|false|null)", Kind("a JSON file")),
)
_MEMBERS: tuple[tuple[str, Kind], ...] = (  # regular expressions for a member of a ZIP archive
    (r"manifest\.json|code/.*\.o", PLAN),
    (r".*/data\.pkl", TORCH),
    (r"(.*/)?(archive_format|serialized_exported_program\.json)", TORCH_EXPORT),
    (r"model\.weights\.h5", Kind("a Keras model", _CONVERT)),
    (r".*\.npy", ARRAYS),
)


def kind_of(path: Path) -> Kind | None:
    """What is at `path`, a file or a folder; None where that is not known, or nothing can be read."""
    try:
        if path.is_dir():
            return _kind_of_folder(path)
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(HEAD_NBYTES)
        owner = _model_that_names(path)
        if owner:  # bare numbers may look like anything
            return Kind(f"external data of {owner.name}", f"give {owner}")
        if head.startswith(b"PK\x03\x04"):
            return _kind_of_archive(path, head)
        return _kind_by_name(path, head) or kind_of_bytes(head)
    except (OSError, ValueError):  # ValueError: a zero byte in the name
        return None


def kind_of_bytes(head: bytes) -> Kind | None:
    """What a file is that starts so, None where that is not known. Of a ZIP archive only the first member is seen."""
    if not head:
        return EMPTY
    for start, kind in _STARTS:
        if head.startswith(start):
            return kind
    for at, mark, kind in _AT:
        if head[at : at + len(mark)] == mark:
            return kind
    if head.startswith(b"PK\x03\x04"):
        nbytes = int.from_bytes(head[26:28], "little")  # of the first member's name
        return _kind_of_members([head[30 : 30 + nbytes].decode(errors="replace")]) if len(head) > 30 + nbytes else None
    if re.match(rb"[^\0]..\0\0\0\0\0\{\"", head[:10], re.DOTALL):  # the length of the JSON text behind it, in 8 bytes
        return Kind("a safetensors file: weights without a model", "give the .onnx file")
    if _starts_like_onnx(head):
        return MODEL
    return _kind_of_text(head)


def named(error: ParaxError, path: Path, wanted: Kind) -> ParaxError:
    """The error of a reader that wanted another kind of file, saying what is at `path`; itself where that is unknown.

    The class, and so the exit code, stays that of `error`.
    """
    kind = kind_of(path)
    if kind is None or kind == wanted:
        return error
    return refusal(type(error), str(path), kind, wanted)


def refusal(error: type[ParaxError], where: str | None, kind: Kind, wanted: Kind) -> ParaxError:
    """`model.pt: not an ONNX model; this is a PyTorch file; export it …`."""
    return error(f"not {wanted.name}: this is {kind.name}", where=where, hint=kind.hint)


def _starts_like_onnx(head: bytes) -> bool:
    """A ModelProto's first field is its version, a small number; a field that it has follows."""
    fields = (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72, 0xA2, 0xCA)  # tags of 2 to 8, 14, 20 and 25
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 64 and head[2] in fields


def _kind_of_text(head: bytes) -> Kind | None:
    try:
        text = head.decode("utf-8-sig") if len(head) < HEAD_NBYTES else head[:-4].decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if not all(letter.isprintable() or letter in "\t\r\n\f" for letter in text):
        return None
    for pattern, kind in _TEXTS:
        if re.match(pattern, text.lstrip(), re.IGNORECASE):
            return kind
    return TEXT


def _kind_of_archive(path: Path, head: bytes) -> Kind | None:
    try:
        with zipfile.ZipFile(path) as archive:
            return _kind_of_members(archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError):
        return kind_of_bytes(head)  # cut off, or damaged: what its first member says


def _kind_of_members(names: list[str]) -> Kind:
    for pattern, kind in _MEMBERS:
        if any(re.fullmatch(pattern, name) for name in names):
            return kind
    models = [name for name in names if name.endswith(".onnx")]
    return Kind(f"a ZIP archive with {models[0]} in it" if models else "a ZIP archive", _UNPACK)


def _kind_by_name(path: Path, head: bytes) -> Kind | None:
    """What bytes do not tell: TensorFlow's protobufs, and the bare numbers of external data."""
    if path.name == "saved_model.pb":
        return Kind("a TensorFlow SavedModel", _CONVERT)
    if path.suffix == ".pb" and head[:1] == b"\n":
        return Kind("a TensorFlow graph", _CONVERT)
    is_data = re.search(r"\.onnx[._]data$|\.data$|\.weights$", path.name)
    return DATA if head and is_data and kind_of_bytes(head) is None else None


def _model_that_names(path: Path) -> Path | None:
    """The ONNX model beside the file that has tensors in it."""
    # a StringStringEntryProto: field 1 "location", field 2 the file's name; a length up to 127 is one byte
    entry = b"\x0a\x08location\x12" + bytes([min(len(os.fsencode(path.name)), 127)]) + os.fsencode(path.name)
    for model in sorted(path.parent.glob("*.onnx"))[:_MOST_MODELS]:
        if model != path and model.is_file() and model.stat().st_size <= _MOST_MODEL_NBYTES and _holds(model, entry):
            return model
    return None


def _holds(file: Path, text: bytes) -> bool:
    with file.open("rb") as stream:
        return _occurs(iter(partial(stream.read, _CHUNK_NBYTES), b""), text)


def _occurs(chunks: Iterable[bytes], text: bytes) -> bool:
    behind = b""
    for chunk in chunks:
        if text in behind + chunk:
            return True
        behind = chunk[-len(text) :]
    return False


def _kind_of_folder(path: Path) -> Kind:
    if (path / "saved_model.pb").is_file():
        return Kind("the folder of a TensorFlow SavedModel", _CONVERT)
    models = sorted(path.glob("*.onnx"))
    return Kind("a folder", f"give the file in it: {models[0]}" if models else "give the file in it")
