"""The log of a training: a line of JSON per step and evaluation, no more and no less of them than were done."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import UsageError
from ...files import write_whole

Record = dict[str, Any]


class Records:
    """A log that goes on behind a step.

    What was noted of later ones, by a training that ended before its next checkpoint, is taken away: these steps are
    done again.

    Args:
        path: the file. steps: that are done; 0 begins anew.

    Attributes:
        kept: the records of those steps.

    Raises:
        UsageError: the file cannot be read or written.
    """

    def __init__(self, path: Path, steps: int = 0) -> None:
        self.path = path
        self.kept = [record for record in read_records(path) if record["step"] <= steps] if steps else []
        write_whole(path, "".join(json.dumps(record) + "\n" for record in self.kept))
        try:
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise self._refused(error) from error

    def write(self, record: Record) -> None:
        """Note one. Raises UsageError: the file cannot be written, as the disk is full."""
        try:
            self._file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> UsageError:
        return UsageError("the log cannot be written", where=str(self.path), found=error.strerror or str(error),
                          hint="check the folder and the space left")  # fmt: skip

    def close(self) -> None:
        """End the file; what a full disk did not take is lost."""
        try:
            self._file.close()
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except UsageError:
            if error is None:
                raise


def read_records(path: Path) -> list[Record]:
    """The records of a log, but a last line that was cut off; none where there is no file, or a device.

    Raises:
        UsageError: it cannot be read, or is no log.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        if not all(isinstance(record, dict) and isinstance(record.get("step"), int) for record in records):
            raise ValueError("a line that is no record of a step")
    except (OSError, ValueError) as error:
        raise UsageError("not the log of a training", where=str(path), found=str(error)[:200],
                         hint="move it away, or choose another file") from error  # fmt: skip
    return records
