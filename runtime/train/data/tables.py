"""Parquet and Arrow tables: a column a tensor. pyarrow reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import InvalidData, UsageError
from .dataset import ArrayDataset
from .files import MOST_BYTES, existing, unreadable


def table_dataset(path: Path | str, columns: Mapping[str, str] | None = None) -> ArrayDataset:
    """The columns of a Parquet (.parquet) or Arrow (.arrow, .feather) file.

    A column of lists of one length is [rows, length]; columns: tensor → column, all under their own names otherwise.

    Raises:
        UsageError: no pyarrow. InvalidData: a damaged file, no such column, missing values, lists of different lengths,
            or values that are no numbers.
    """
    path = existing(path, "table")
    table = _read(path, None if columns is None else list(columns.values()))
    wanted = columns or {name: name for name in table.column_names}
    return ArrayDataset({tensor: _array(table.column(name), path, name) for tensor, name in wanted.items()}, str(path))


def _read(path: Path, columns: list[str] | None) -> Any:
    try:
        import pyarrow as arrow
        from pyarrow import feather, parquet
    except ImportError as error:
        raise UsageError("tables need pyarrow", where=str(path), hint="pip install 'parax[data]'") from error
    try:
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet:
            _check_size(parquet.read_metadata(path), path)
        names = (parquet.read_schema(path) if is_parquet else arrow.ipc.open_file(path).schema).names
        absent = [name for name in columns or [] if name not in names]
        if absent:
            raise InvalidData("no such column", where=str(path), expected=absent[0], found=", ".join(names))
        return parquet.read_table(path, columns=columns) if is_parquet else feather.read_table(path, columns=columns)
    except arrow.ArrowException as error:
        raise InvalidData("no sound Parquet or Arrow file", where=str(path), found=error) from error
    except OSError as error:
        if error.errno:
            raise unreadable(path, error) from error
        raise InvalidData("no sound Parquet or Arrow file", where=str(path), found=error) from error


def _check_size(metadata: Any, path: Path) -> None:
    """Refuse a Parquet file whose groups of rows promise too much, before they are read."""
    nbytes = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if not 0 <= nbytes <= MOST_BYTES:
        raise InvalidData("too large", where=str(path), expected=f"at most {MOST_BYTES} bytes", found=nbytes)


def _array(column: Any, path: Path, name: str) -> np.ndarray:
    """A column as [rows, …]."""
    where, whole, shape = f"{path}, column {name}", column.combine_chunks(), [len(column)]
    while True:
        if whole.null_count:
            raise InvalidData("missing values", where=where, expected="a value in each row", found=whole.null_count)
        if not hasattr(whole, "flatten") or not hasattr(whole.type, "value_type"):
            break
        inner = whole.flatten()
        length = len(inner) // max(len(whole), 1)
        lengths = set(np.diff(whole.offsets)) if hasattr(whole, "offsets") else {length}
        if lengths - {length}:
            raise InvalidData("lists of different lengths", where=where, expected=length, found=sorted(lengths))
        shape.append(length)
        whole = inner
    values: np.ndarray = whole.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "iufb":
        raise InvalidData("values that are no numbers", where=where, expected="numbers or lists", found=whole.type)
    return values.reshape(shape)
