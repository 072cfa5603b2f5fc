"""From a path on the command line to a plan: loads a plan.bin, or compiles an ONNX model on the way.

What comes through a pipe becomes a file of this run first: plans are mapped, and several readers see a model.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ... import env
from ...errors import InvalidModel, UsageError
from .console import Console

if TYPE_CHECKING:
    from ...runtime.plan import Plan
    from ..options import CompileOptions

ZIP_MAGIC = b"PK\x03\x04"
STDIN = ("-", "/dev/stdin", "/dev/fd/0")
BUNDLED = Path(env.__file__).parent / "models"  # beside env, in parax/, wherever that is installed


@contextmanager
def without_pipes(args: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Replace the models and plans among the arguments that come through pipes, `-` too, by files, while the body runs.

    Yields the file's path → what the user calls it, for messages.

    Raises:
        UsageError: two things would come from stdin, or it is a terminal.
    """
    files = [key for key in ("model", "plan", "file") if isinstance(getattr(args, key, None), Path)]
    values = [value.removeprefix("@") for key in ("input", "expect") for _, value in getattr(args, key, ())]
    if sum(str(place) in STDIN for place in [*(getattr(args, key) for key in files), *values]) > 1:
        raise UsageError("can be read only once", where="stdin")
    names: dict[str, str] = {}
    with ExitStack() as stack:
        for key in files:
            path: Path = getattr(args, key)
            if str(path) != "-" and (path.is_file() or path.is_dir() or not path.exists()):
                continue
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parax-")))
            copy = folder / ("stdin" if str(path) in STDIN else path.name)
            with copy.open("wb") as file, opened(path) as pipe:
                shutil.copyfileobj(pipe, file)
            names[str(copy)] = "stdin" if str(path) in STDIN else str(path)
            setattr(args, key, copy)
        yield names


def opened(path: Path) -> BinaryIO:
    """The file for reading, stdin for `-`.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if str(path) != "-":
            return path.open("rb")
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("is a terminal", where="stdin", hint="redirect a file: parax … - < FILE")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError as error:
        raise UsageError("cannot be read", where=str(path), found=error.strerror or error) from error


def is_plan(path: Path) -> bool:
    """Whether the file is to be read as a plan: it starts like one, or is named like one.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(4) == ZIP_MAGIC or path.suffix == ".bin"
    except OSError as error:
        from ...file_kinds import EITHER, named

        unread = UsageError("cannot be read", where=str(path), found=error.strerror)
        raise named(unread, path, EITHER) from error


def open_plan(path: Path, options: CompileOptions | None, console: Console) -> Plan:
    """The plan at `path`, or the plan of the ONNX model at `path` (compiled now, with a progress bar)."""
    if is_plan(path):
        from ...runtime import loading

        return loading.load(path)
    from .. import api

    with console.progress(path.name) as progress:
        return api.compile(path, options=options, progress=progress)


def check_model(path: Path) -> None:
    """Refuse a plan where only the ONNX model will do.

    Raises:
        InvalidModel: it is a plan. UsageError: it cannot be read.
    """
    from ...file_kinds import MODEL, PLAN, kind_of, refusal

    if is_plan(path) and kind_of(path) == PLAN:
        raise refusal(InvalidModel, str(path), PLAN, MODEL)
