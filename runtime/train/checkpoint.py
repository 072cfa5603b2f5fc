"""Checkpoints: everything that a training needs to go on bit for bit, in one safetensors file each.

A checkpoint is written beside its place, brought to the disk, and renamed: it is there whole or not at all. Settings
lie in the file's own metadata as JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CorruptPlan, UsageError
from ...files import replacing
from .arguments import require_whole

VERSION = 1
_KEY = "parax"
_NAME = re.compile(r"step-(\d+)\.safetensors")
# as files.replacing calls them: with the number of the process
_PARTIAL = re.compile(r"\.(?:step-\d+|best)\.safetensors\.(\d+)-[0-9a-f]+\.tmp")
BEST = "best.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and everything else as JSON holds it: `steps` done, `batches`, what the caller adds."""

    tensors: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all, and see it to the disk.

    Raises:
        UsageError: the place cannot be written.
    """
    from safetensors.numpy import save  # here: an extra

    metadata = {_KEY: json.dumps({"version": VERSION, **checkpoint.facts}, sort_keys=True)}
    content = save({name: np.ascontiguousarray(array) for name, array in checkpoint.tensors.items()}, metadata)
    with replacing(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def read(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        UsageError: no such file. CorruptPlan: not a checkpoint of this version, or damaged.
    """
    from safetensors import SafetensorError, safe_open  # here: an extra

    if not path.is_file():
        raise UsageError("no such checkpoint", where=str(path))
    try:
        with safe_open(path, "np") as file:
            facts = json.loads((file.metadata() or {}).get(_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptPlan("the checkpoint is damaged", where=str(path), found=str(error)[:200]) from error
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        found = facts.get("version") if isinstance(facts, dict) else "another safetensors file"
        raise CorruptPlan("not a checkpoint of this version of parax", where=str(path), expected=f"version {VERSION}",
                          found=found)  # fmt: skip
    return Checkpoint(tensors, facts)


class Checkpoints:
    """The checkpoints of one training in a folder: the last `keep`, and the best."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        """Raises UsageError: the folder cannot be made, or none would be kept."""
        require_whole("keep", keep, 1)
        self.folder, self.keep = folder, keep
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError("no folder for checkpoints", where=str(folder), found=str(error)) from error
        self._clear()

    def _clear(self) -> None:
        """Take away what processes that were killed while they wrote have left."""
        for path in self.folder.iterdir():
            found = _PARTIAL.fullmatch(path.name)
            if found and not Path("/proc", found[1]).exists():
                path.unlink(missing_ok=True)

    def write(self, checkpoint: Checkpoint, is_best: bool = False) -> None:
        """Write the next one, then let go of those that are not kept."""
        write(self.folder / f"step-{checkpoint.facts['steps']:09d}.safetensors", checkpoint)
        if is_best:
            write(self.folder / BEST, checkpoint)
        for path in self.paths()[: -self.keep]:
            path.unlink(missing_ok=True)

    def paths(self) -> list[Path]:
        """Those that are there, oldest first; the best apart."""
        found = [(int(m[1]), p) for p in self.folder.iterdir() if (m := _NAME.fullmatch(p.name))]
        return [path for _, path in sorted(found)]

    def last_steps(self) -> int:
        """Steps that were done at the newest; 0 where there is none."""
        paths = self.paths()
        return int(_NAME.fullmatch(paths[-1].name)[1]) if paths else 0  # type: ignore[index]

    def last(self) -> Checkpoint | None:
        """The newest, or None."""
        paths = self.paths()
        return read(paths[-1]) if paths else None


def _sync_folder(folder: Path) -> None:
    """So that the new name is on the disk as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
