"""Constants that stay in their file: mapped, and out of this process's memory again once they have been read.

What reads a large constant tells `forget`. Nothing is lost by it: whoever looks again has the system read the file
again, from its cache for the most part.
"""

from __future__ import annotations

import mmap

import numpy as np


class MappedFile(mmap.mmap):
    """A whole file mapped for reading, at `address`. It must not become shorter while it is looked at."""

    address: int


def map_file(descriptor: int) -> MappedFile:
    """Map an open file.

    Raises:
        ValueError: it is empty.
        OSError: it cannot be mapped.
    """
    file = MappedFile(descriptor, 0, access=mmap.ACCESS_READ)
    file.address = np.frombuffer(file, np.uint8).ctypes.data
    return file


def forget(array: np.ndarray) -> None:
    """Take the pages between an array's first and last byte out of memory, if they are those of a mapped file."""
    file = _file_of(array)
    if file is None or not array.size:
        return
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    first = array.__array_interface__["data"][0] - file.address
    low = first + sum(r for r in reach if r < 0)
    high = first + sum(r for r in reach if r > 0) + array.itemsize
    low -= low % mmap.PAGESIZE
    file.madvise(mmap.MADV_DONTNEED, low, high - low)


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array's elements are those of a mapped file. They may be at any address, also for their type."""
    return _file_of(array) is not None


def _file_of(array: np.ndarray) -> MappedFile | None:
    owner: object = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, MappedFile) else None
