"""NumPy's own files: .npz with an array a tensor, or a .npy file for each. Pickled objects are refused."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ....errors import InvalidData
from .dataset import ArrayDataset
from .files import MOST_BYTES, existing, unreadable

DEFLATE_RATIO = 1032
"""Deflate packs no more bytes into one."""


def npz_dataset(path: Path | str, names: Mapping[str, str] | None = None) -> ArrayDataset:
    """The arrays of an .npz file; names: tensor → array, all arrays under their own names otherwise.

    Raises:
        InvalidData: another kind of file, a damaged one, an array that is not there, Python objects, no sample.
    """
    path = existing(path, ".npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_promises(archive, path)
        with np.load(path, allow_pickle=False) as file:
            wanted = names or {name: name for name in file.files}
            absent = [name for name in wanted.values() if name not in file.files]
            if absent:
                raise InvalidData("no such array", where=str(path), expected=absent[0], found=", ".join(file.files))
            arrays = {tensor: file[name] for tensor, name in wanted.items()}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError) as error:
        raise InvalidData("no sound .npz file", where=str(path), found=error, expected="arrays of numbers") from error
    except OSError as error:
        raise unreadable(path, error) from error
    return ArrayDataset(arrays, str(path))


def _check_promises(archive: zipfile.ZipFile, path: Path) -> None:
    """Hold what members and their headers promise against each other, before memory is taken for it.

    Raises:
        InvalidData: more bytes than deflate can pack into the member, or others than the array's header says.
    """
    for member in archive.infolist():
        where = f"{path}, {member.filename}"
        most = min(MOST_BYTES, DEFLATE_RATIO * (member.compress_size + 1))
        if member.file_size > most:
            raise InvalidData("too large", where=where, expected=f"at most {most} bytes", found=member.file_size)
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            nbytes = file.tell() + math.prod(shape) * dtype.itemsize
        if nbytes != member.file_size and not dtype.hasobject:
            raise InvalidData("not as long as its header says", where=where, found=f"{member.file_size} bytes",
                              expected=f"{nbytes} for {dtype}{list(shape)}")  # fmt: skip


def npy_dataset(files: Mapping[str, Path | str]) -> ArrayDataset:
    """An .npy file a tensor, mapped: only rows that are taken are read.

    Raises:
        InvalidData: another kind of file, a damaged one, Python objects, different lengths, no sample.
    """
    arrays = {}
    for name, given in files.items():
        path = existing(given, ".npy file")
        try:
            arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InvalidData("no sound .npy file", where=str(path), found=error, expected="numbers") from error
        except OSError as error:
            raise unreadable(path, error) from error
        if not isinstance(arrays[name], np.ndarray):
            raise InvalidData("no .npy file", where=str(path), expected="one array", found="an archive")
    return ArrayDataset(arrays)
