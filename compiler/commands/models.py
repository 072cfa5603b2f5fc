"""From a path on the command line to a plan: loads a plan.bin, or compiles an ONNX model on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ... import env
from ...errors import InvalidModel, UsageError
from .console import Console

if TYPE_CHECKING:
    from ...runtime.plan import Plan
    from ..options import CompileOptions

ZIP_MAGIC = b"PK\x03\x04"
BUNDLED = Path(env.__file__).parent / "models"  # beside env, in parax/, wherever that is installed


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
