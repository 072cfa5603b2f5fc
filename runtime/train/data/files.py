"""Files of data sets, read within bounds: what is promised is held against what is there before memory is taken."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from ....errors import InvalidData, ParaxError, UsageError

MOST_BYTES = 1 << 36
"""Of one file, decompressed; 64 GiB is more than any data set of these kinds has."""
PIECE = 1 << 24


def existing(path: Path | str, what: str) -> Path:
    """The path. Raises UsageError where nothing is."""
    path = Path(path)
    if not path.exists():
        raise UsageError(f"no {what} there", where=str(path), expected="an existing path", found="none")
    return path


def content(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file, decompressed if it is gzip by its first two.

    Raises:
        InvalidData: a damaged gzip file, or one of more than `most` bytes. UsageError: an unreadable one.
    """
    try:
        pieces: list[bytes] = []
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            nbytes = 0
            while piece := file.read(PIECE):
                pieces.append(piece)
                nbytes += len(piece)
                if nbytes > most:
                    raise InvalidData("a file that is too long", where=str(path), expected=f"at most {most} bytes")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidData("damaged gzip data", where=f"{path}, at byte {sum(map(len, pieces))} of what it holds",
                          found=error, hint="fetch the file again") from error  # fmt: skip
    except OSError as error:
        raise unreadable(path, error) from error
    return b"".join(pieces)


def unreadable(path: Path, error: OSError) -> ParaxError:
    """The error for a file that the system does not let be read."""
    return UsageError(f"cannot be read: {error.strerror or error}", where=str(path))


def check_labels(labels: np.ndarray, classes: int, where: str) -> None:
    """Refuse labels outside of [0, classes). Raises InvalidData with the first one's sample."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise InvalidData("a label that no class has", where=f"{where}, sample {wrong[0]}",
                          expected=f"0 to {classes - 1}", found=int(labels[wrong[0]]))  # fmt: skip
