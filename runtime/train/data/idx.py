"""IDX files, as MNIST comes in (Y. LeCun, C. Cortes: the MNIST database), plain or gzip."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ....errors import InvalidData
from .dataset import ArrayDataset
from .files import MOST_BYTES, check_labels, content, existing

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path | str) -> np.ndarray:
    """The array of an IDX file, in this machine's byte order.

    Raises:
        InvalidData: another kind of file, one that is cut off, or has more bytes than its header says.
    """
    path = existing(path, "IDX file")
    data = content(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in TYPES or not data[3]:
        raise InvalidData("no IDX file", where=f"{path}, at byte 0", found=data[:4].hex(" ") or "nothing",
                          expected="0, 0, a type (08, 09, 0b to 0e) and the number of dimensions")  # fmt: skip
    header = 4 + 4 * data[3]
    if len(data) < header:
        raise InvalidData("cut off inside its header", where=f"{path}, at byte {len(data)}",
                          expected=f"{header} bytes", found=f"{len(data)}", hint="fetch it again")  # fmt: skip
    shape = [int(size) for size in np.frombuffer(data, ">u4", data[3], 4)]
    dtype = np.dtype(TYPES[data[2]])
    nbytes = header + math.prod(shape) * dtype.itemsize
    if len(data) != nbytes or nbytes > MOST_BYTES:
        what = "cut off" if len(data) < nbytes else "more bytes than its header says"
        raise InvalidData(what, where=f"{path}, at byte {min(len(data), nbytes)}", found=f"{len(data)}",
                          expected=f"{nbytes} bytes for {shape}", hint="fetch it again")  # fmt: skip
    return np.frombuffer(data, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))


def idx_dataset(images: Path | str, labels: Path | str, classes: int = 10) -> ArrayDataset:
    """input u8[1,H,W] (or as the file has it, if not pictures of one channel) and label i64.

    Raises:
        InvalidData: a malformed file, a label out of range, different numbers of samples, none.
    """
    values, own = read_idx(images), read_idx(labels)
    if own.ndim != 1 or own.dtype.kind not in "iu":
        raise InvalidData("no labels", where=str(labels), expected="one axis of integers",
                          found=f"{own.dtype}{list(own.shape)}")  # fmt: skip
    check_labels(own, classes, str(labels))
    shaped = values[:, None] if values.ndim == 3 else values
    return ArrayDataset({"input": shaped, "label": own.astype(np.int64)}, str(images))
