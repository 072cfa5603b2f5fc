"""Bytes to ModelProto, under limits, with the checks that need no graph: versions, operator sets, function names.

Knows protobuf and files; nothing of operators or the IR.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, ModelProto

from ...errors import InvalidModel, ResourceLimit, UnsupportedOp, UsageError
from .apart import Apart, read_apart
from .limits import Limits

FunctionKey = tuple[str, str, str]
"""(domain, name, overload)"""
Source = str | Path | bytes | ModelProto


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


def read_model(source: Source, limits: Limits) -> ModelFile:
    """Reads and checks a model.

    Raises:
        UsageError: the file cannot be read.
        InvalidModel: it is no ONNX model, or breaks the format's rules.
        UnsupportedOp: it needs a newer version of ONNX.
        ResourceLimit: it is too large.
    """
    folder, apart = None, None
    given: object = source
    if not isinstance(given, (str, Path, bytes, bytearray, memoryview, ModelProto)):
        expected, found = "a path, a file's bytes or a ModelProto", type(given).__name__
        raise UsageError("not a model", where="model", expected=expected, found=found)
    if isinstance(source, ModelProto):
        model = source
    elif isinstance(source, (str, Path)):
        folder = Path(source).parent
        data = _read(Path(source), limits)
        apart = data if isinstance(data, Apart) else None
        model = _parse(data.message if isinstance(data, Apart) else data, limits)
    else:
        model = _parse(bytes(source), limits)
    if not model.HasField("graph"):
        raise InvalidModel("not an ONNX model: there is no graph", hint="is the file complete?")
    _check_ir_version(model)
    return ModelFile(model, folder, _opsets(model), _functions(model), apart)


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


def _parse(data: bytes, limits: Limits) -> ModelProto:
    if len(data) > limits.file_nbytes:
        expected = f"at most {limits.file_nbytes} bytes"
        raise ResourceLimit("the model is too large", expected=expected, found=len(data))
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidModel("not an ONNX model: malformed protobuf", hint="is the file complete?") from error
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
