"""What was made of a model, in a folder: exported once, compiled and compared again, timed when the machine is quiet.

Owns the folder's files; knows nothing of how they are made.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from parax.files import write_whole

from ..children import Record
from .sources import Feeds, Written

MODEL, PLAN = "model.onnx", "plan.bin"
_FEEDS, _EXPORTER, _RECORD = "feeds.npz", "exporter.txt", "record.json"


def folder_of(kept: Path, name: str, exporter: str) -> Path:
    """Where a model by an exporter is kept."""
    return kept / f"{name}-{exporter.replace(' ', '-')}"


def keep_written(written: Written, folder: Path) -> Written:
    """The same in the folder: its file, unless it was written there, and what it is run on."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / MODEL
    if written.path != model:
        model.write_bytes(written.path.read_bytes())
    arrays = {f"{number}/{name}": array for number, feed in enumerate(written.feeds) for name, array in feed.items()}
    np.savez(folder / _FEEDS, **arrays)  # type: ignore[arg-type]
    write_whole(folder / _EXPORTER, written.exporter)
    return Written(model, written.exporter, written.feeds)


def kept_written(folder: Path) -> Written | None:
    """What `keep_written` has left there, if it has; the name of the exporter is its last file."""
    if not (folder / _EXPORTER).exists():
        return None
    return Written(folder / MODEL, (folder / _EXPORTER).read_text(), _feeds(folder / _FEEDS))


def _feeds(path: Path) -> Feeds:
    feeds: list[dict[str, np.ndarray]] = []
    with np.load(path) as arrays:
        for key in arrays:
            number, name = key.split("/", 1)
            feeds += [{}] if int(number) == len(feeds) else []
            feeds[int(number)][name] = arrays[key]
    return feeds


def keep_record(record: Record, folder: Path) -> None:
    """What became of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / _RECORD, json.dumps(record, indent=1))


def kept_record(folder: Path) -> Record | None:
    """What `keep_record` has left there, if it has."""
    path = folder / _RECORD
    return json.loads(path.read_text()) if path.exists() else None
