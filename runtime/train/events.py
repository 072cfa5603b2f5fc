"""The records of a training as events that TensorBoard shows; tensorboardX writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError

_NOT_CURVES = ("step", "epoch", "best", "evaluation")


class Events:
    """An event file in a folder: `train/<what>` of each step, `test/<what>` of each evaluation.

    Args:
        folder: of one training. steps: that are done; what an earlier file has of later ones is hidden.

    Raises:
        UsageError: tensorboardX is not installed; the folder cannot be written.
    """

    def __init__(self, folder: Path, steps: int = 0) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UsageError("events need tensorboardX", found=error,
                             hint="pip install 'parax[tensorboard]'") from error  # fmt: skip
        self._folder = folder
        try:
            self._writer = SummaryWriter(str(folder), purge_step=steps + 1)
        except OSError as error:
            raise UsageError("events cannot be written", where=str(folder), found=error.strerror) from error

    def write(self, record: Mapping[str, Any]) -> None:
        """The curves of one record."""
        found = record.get("evaluation")
        group, values = ("train", record) if found is None else ("test", found)
        for name, value in values.items():
            if name not in _NOT_CURVES:
                self._writer.add_scalar(f"{group}/{name}", value, record["step"])

    def close(self) -> None:
        """Everything is in the file then."""
        self._writer.close()
