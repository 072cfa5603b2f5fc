"""What callers hand in to ModelProto, under limits, with the checks that need no graph: versions, operator sets, names.

Knows protobuf and files; nothing of operators or the IR.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, ModelProto

from ...errors import InvalidModel, ParaxError, ResourceLimit, UnsupportedOp, UsageError, WrongType
from ...file_kinds import HEAD_NBYTES, MODEL, kind_of_bytes, named, refusal
from ...sources import File, path_or_bytes
from .apart import Apart, read_apart
from .limits import DEFAULT_LIMITS, Limits

FunctionKey = tuple[str, str, str]
"""(domain, name, overload)"""


class InFolder(NamedTuple):
    """A model and the folder that its external data may lie in."""

    model: Path | bytes | ModelProto
    folder: Path


Source = File | ModelProto | InFolder
"""What may be handed in. Of a file that is open, the content from where it stands."""
Settled = Path | bytes | ModelProto | InFolder
"""What can be read any number of times."""
_WHAT_TO_DO = {
    ("torch", "Module"): 'torch.compile(module, backend="parax") runs it, torch.onnx.export makes a model of it',
    ("torch", "ExportedProgram"): "torch.onnx.export makes a model of it",
    ("torch", "ONNXProgram"): "give its model_proto",
    ("onnx", "GraphProto"): "onnx.helper.make_model makes a model of it",
    ("onnx", "NodeProto"): "parax.onnx_backend.run_node runs it",
    ("onnxruntime", "InferenceSession"): "give the file that it was made from",
    ("parax", "Plan"): "it is compiled already: its session() runs it",
    ("parax", "Session"): "it is compiled already: its run() runs it",
}


@dataclass(frozen=True)
class ModelFile:
    """A parsed model.

    Attributes:
        model: the protobuf.
        folder: where external data may lie; None for a model that comes from memory.
        opsets: domain → version, "ai.onnx" written "".
        functions: the model-local functions. apart: its large tensors, where they are not in the protobuf.
    """

    model: ModelProto
    folder: Path | None
    opsets: dict[str, int]
    functions: dict[FunctionKey, FunctionProto]
    apart: Apart | None = None


def settled(source: Source, base_dir: str | os.PathLike[str] | None = None, limits: Limits = DEFAULT_LIMITS) -> Settled:
    """What was handed in, so that it can be read again: open files are read, here and only here.

    Args:
        base_dir: the folder of external data; None: beside the file, where there is one.

    Raises:
        WrongType: not a model, or not a folder's path. UsageError: the file cannot be read; no such folder.
    """
    if not isinstance(source, (ModelProto, InFolder)):
        expected = "a path, a file's bytes, a binary file object or an onnx.ModelProto"
        source = path_or_bytes(source, "model", expected=expected, most_nbytes=limits.file_nbytes, hints=_WHAT_TO_DO)
    if base_dir is None:
        return source
    if not isinstance(base_dir, (str, os.PathLike)):
        raise WrongType("not a path", where="base_dir", expected="text or a Path", found=repr(base_dir)[:200])
    folder = Path(os.fsdecode(base_dir))
    if "\0" in str(folder) or not folder.is_dir():
        raise UsageError("no such folder", where="base_dir", found=repr(str(folder))[:200])
    return InFolder(source.model if isinstance(source, InFolder) else source, folder)


def read_model(source: Source, limits: Limits) -> ModelFile:
    """Reads and checks a model.

    Raises:
        UsageError: see `settled`.
        InvalidModel: it is no ONNX model, or breaks the format's rules.
        UnsupportedOp: it needs a newer version of ONNX.
        ResourceLimit: it is too large.
    """
    source = settled(source, None, limits)
    given = source.model if isinstance(source, InFolder) else source
    try:
        model, apart = _model(given, limits)
    except (UsageError, InvalidModel, ResourceLimit) as error:
        raise _named(error, given) from error.__cause__
    beside = given.parent if isinstance(given, Path) else None
    folder = source.folder if isinstance(source, InFolder) else beside
    return ModelFile(model, folder, _opsets(model), _functions(model), apart)


def _model(given: Path | bytes | ModelProto, limits: Limits) -> tuple[ModelProto, Apart | None]:
    """The protobuf of a source, once it has a version and a graph, and its tensors that were read apart."""
    apart = None
    if isinstance(given, ModelProto):
        model = given
    elif isinstance(given, Path):
        data = _read(given, limits)
        apart = data if isinstance(data, Apart) else None
        model = _parse(data.message if isinstance(data, Apart) else data, limits, str(given))
    else:
        model = _parse(given, limits, None)
    if not model.HasField("graph"):
        raise InvalidModel("not an ONNX model: there is no graph", hint="is the file complete?")
    _check_ir_version(model)
    return model, apart


def _named(error: ParaxError, given: Path | bytes | ModelProto) -> ParaxError:
    """The error, saying what was given if it is something else than a model."""
    if isinstance(given, ModelProto):
        return error
    if isinstance(given, Path):
        return named(error, given, MODEL)
    kind = kind_of_bytes(given[:HEAD_NBYTES])
    return error if kind in (None, MODEL) else refusal(type(error), None, kind, MODEL)


def _read(path: Path, limits: Limits) -> bytes | Apart:
    """The file's bytes, its large tensors apart where it can be read so."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("not a regular file", where=str(path))
        if status.st_size > limits.file_nbytes:
            expected = f"at most {limits.file_nbytes} bytes"
            raise ResourceLimit("the model file is too large", where=str(path), expected=expected, found=status.st_size)
        with open(path, "rb") as file:
            try:
                return read_apart(file.fileno(), status.st_size)
            except ValueError:  # the parser says what is wrong, if anything is
                return file.read()
    except (OSError, ValueError) as error:
        raise UsageError("cannot be read", where=str(path), found=str(error)) from error


def _parse(data: bytes, limits: Limits, where: str | None) -> ModelProto:
    if len(data) > limits.file_nbytes:
        expected = f"at most {limits.file_nbytes} bytes"
        raise ResourceLimit("the model is too large", expected=expected, found=len(data))
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "is the file complete?"
        raise InvalidModel("not an ONNX model: malformed protobuf", where=where, hint=hint) from error
    return model


def _check_ir_version(model: ModelProto) -> None:
    if not model.HasField("ir_version") or model.ir_version < 1:
        found = model.ir_version if model.HasField("ir_version") else "none"
        raise InvalidModel("ir_version is missing or invalid", expected="at least 1", found=found)
    if model.ir_version > onnx.IR_VERSION:
        raise InvalidModel(
            "the file's format is newer than the installed onnx package",
            expected=f"ir_version at most {onnx.IR_VERSION}",
            found=model.ir_version,
        )


def _opsets(model: ModelProto) -> dict[str, int]:
    if not model.opset_import and model.ir_version < 3:
        return {"": 1}
    return read_opsets(model.opset_import, "the model")


def read_opsets(imports: object, where: str) -> dict[str, int]:
    """Domain → version of a list of OperatorSetIdProto. Raises InvalidModel, or UnsupportedOp for a future version."""
    opsets: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        require_text(where, entry.domain)
        domain, version = normal_domain(entry.domain), entry.version
        if opsets.get(domain, version) != version:
            raise InvalidModel(f"two versions of operator set {domain or 'ai.onnx'!r}", where=where)
        if version < 1:
            message = f"invalid version of operator set {domain or 'ai.onnx'!r}"
            raise InvalidModel(message, where=where, expected="at least 1", found=version)
        if domain == "" and version > onnx.defs.onnx_opset_version():
            raise UnsupportedOp(
                "the operator set is newer than the installed onnx package",
                where=where,
                expected=f"at most {onnx.defs.onnx_opset_version()}",
                found=version,
            )
        opsets[domain] = version
    return opsets


def require_text(where: str, *names: object) -> None:
    """Raises InvalidModel if a string of the file is not UTF-8: protobuf hands such a one over as bytes."""
    for name in names:
        if type(name) is not str:
            raise InvalidModel("a name is not valid UTF-8", where=where, found=repr(name)[:200])


def normal_domain(domain: str) -> str:
    """ONNX's own domain has two spellings; ours is ""."""
    return "" if domain == "ai.onnx" else domain


def _functions(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    functions: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        names = (function.domain, function.name, function.overload, *function.attribute)
        require_text("a function", *names, *function.input, *function.output)
        key = (normal_domain(function.domain), function.name, function.overload)
        if not function.name:
            raise InvalidModel("a model-local function has no name")
        if key in functions:
            raise InvalidModel(f"function {function.domain}::{function.name} is defined twice")
        functions[key] = function
    return functions
