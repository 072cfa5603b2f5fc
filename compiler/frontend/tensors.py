"""TensorProto to numpy: every element type, the right field, exactly the right amount of data. Zero-copy for raw data.

Knows nothing of graphs or operators.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto

from ...errors import InvalidModel, ResourceLimit, UnsupportedOp
from ..ir.mapped import is_mapped
from ..ir.types import DType, TensorType
from .external import ExternalData
from .limits import Limits
from .signatures import check_size

_WIDTHS = {"float_data": np.float32, "int32_data": np.int32, "int64_data": np.int64, "double_data": np.float64,
           "uint64_data": np.uint64}  # fmt: skip
_FIELDS = {"f32": "float_data", "c64": "float_data", "i64": "int64_data", "f64": "double_data", "c128": "double_data",
           "u32": "uint64_data", "u64": "uint64_data", "str": "string_data"}  # fmt: skip
_DATA_FIELDS = frozenset({*_WIDTHS, "raw_data", "string_data"})


class TensorReader:
    """Decodes the tensors of one model and keeps account of their bytes."""

    def __init__(self, external: ExternalData, limits: Limits) -> None:
        self._external, self._limits = external, limits
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Of everything read until now."""
        return self._nbytes

    def read(self, tensor: TensorProto, where: str) -> np.ndarray:
        """The array, read-only where it shares the file's bytes; strings become an object array of str.

        Raises:
            InvalidModel: data and dims disagree, or the data is in the wrong field.
            UnsupportedOp: an element type that numpy cannot hold.
            ResourceLimit: too many bytes.
        """
        dtype = DType.from_code(tensor.data_type)
        if dtype.numpy is None or dtype.bits == 6:
            raise UnsupportedOp(f"constants of element type {dtype} are not supported", where=where)
        dims, numel = self._dims(tensor.dims, dtype, where)
        if tensor.HasField("segment"):
            raise UnsupportedOp("segmented tensors are not supported", where=where)
        given = {field.name for field, _ in tensor.ListFields() if field.name in _DATA_FIELDS}
        if tensor.data_location == TensorProto.EXTERNAL:
            if given:
                raise InvalidModel("external and embedded data at once", where=where, found=", ".join(sorted(given)))
            if dtype.kind == "s":
                raise InvalidModel("strings cannot be external data", where=where)
            raw = self._external.read(tensor.external_data, _raw_nbytes(numel, dtype), where)
            return _from_raw(raw, dtype, numel, where).reshape(dims)
        wanted = _FIELDS.get(dtype.name, "int32_data")
        allowed = {wanted} if dtype.kind == "s" else {wanted, "raw_data"}
        if not given <= allowed or len(given) > 1:
            expected, found = " or ".join(sorted(allowed)), ", ".join(sorted(given))
            raise InvalidModel(f"{dtype} data in the wrong field", where=where, expected=expected, found=found)
        if "raw_data" in given:
            return _from_raw(tensor.raw_data, dtype, numel, where).reshape(dims)
        return _from_field(getattr(tensor, wanted), wanted, dtype, numel, where).reshape(dims)

    def read_sparse(self, sparse: SparseTensorProto, where: str) -> np.ndarray:
        """The dense array of a sparse tensor. Errors as `read`."""
        values = self.read(sparse.values, where)
        indices = self.read(sparse.indices, where)
        dims, numel = self._dims(sparse.dims, DType.from_numpy(values.dtype), where)
        if values.ndim != 1 or indices.dtype != np.int64 or indices.ndim not in (1, 2) or len(indices) != len(values):
            raise InvalidModel("malformed sparse tensor", where=where)
        if indices.ndim == 2:
            bounds = np.asarray(dims, np.int64)
            if indices.shape[1] != len(dims) or (indices < 0).any() or (indices >= bounds).any():
                raise InvalidModel("sparse tensor with an index out of range", where=where)
            indices = np.ravel_multi_index(tuple(indices.T), dims) if len(indices) else np.zeros(0, np.int64)
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < numel:
            raise InvalidModel("sparse tensor with an index out of range", where=where)
        dense = np.zeros(numel, values.dtype)
        dense[indices] = values
        return dense.reshape(dims)

    def _dims(self, dims: Any, dtype: DType, where: str) -> tuple[tuple[int, ...], int]:
        shape = tuple(dims)
        if any(d < 0 for d in shape):
            raise InvalidModel("negative dimension", where=where, found=list(shape))
        check_size(TensorType(dtype, shape), self._limits, where)
        numel = math.prod(shape)
        self._nbytes += numel * dtype.nbytes
        if self._nbytes > self._limits.constants_nbytes:
            raise ResourceLimit("the constants are too large", where=where, found=f"{list(shape)} of {dtype}")
        return shape, numel


def _raw_nbytes(numel: int, dtype: DType) -> int:
    return (numel * dtype.bits + 7) // 8


def _from_raw(raw: Any, dtype: DType, numel: int, where: str) -> np.ndarray:
    if len(raw) != _raw_nbytes(numel, dtype):
        expected = f"{_raw_nbytes(numel, dtype)} bytes"
        raise InvalidModel("the data does not fit the dimensions", where=where, expected=expected, found=len(raw))
    if dtype.bits < 8:
        return _unpack(np.frombuffer(raw, np.uint8), dtype, numel)
    if dtype.kind == "b":
        return np.frombuffer(raw, np.uint8) != 0
    assert dtype.numpy is not None
    array = np.frombuffer(raw, dtype.numpy)
    if np.little_endian:
        return array if array.flags.aligned or is_mapped(array) else array.copy()
    return array.byteswap()


def _from_field(data: Any, field: str, dtype: DType, numel: int, where: str) -> np.ndarray:
    count = {"c": 2 * numel}.get(dtype.kind, numel if dtype.bits >= 8 else _raw_nbytes(numel, dtype))
    if len(data) != count:
        expected = f"{count} entries in {field}"
        raise InvalidModel("the data does not fit the dimensions", where=where, expected=expected, found=len(data))
    if dtype.kind == "s":
        return _strings(data)
    assert dtype.numpy is not None
    array = np.array(data, _WIDTHS[field])
    if dtype.kind == "c":
        return array.view(dtype.numpy)
    if dtype.kind == "b":
        return array != 0
    if dtype.bits < 8:
        return _unpack(_narrow(array, np.uint8, where), dtype, numel)
    if dtype.is_float and field == "int32_data":  # the bit patterns of 8- and 16-bit floats
        return _narrow(array, np.uint8 if dtype.bits == 8 else np.uint16, where).view(dtype.numpy)
    return _narrow(array, dtype.numpy, where)


def _narrow(array: np.ndarray, dtype: Any, where: str) -> np.ndarray:
    if array.dtype == dtype:
        return array
    narrow = array.astype(dtype)
    if not np.array_equal(narrow.astype(array.dtype), array):
        raise InvalidModel("a value does not fit its element type", where=where, expected=np.dtype(dtype))
    return narrow


def _strings(data: Any) -> np.ndarray:
    array = np.empty(len(data), object)
    array[:] = [item.decode("utf-8", "surrogateescape") for item in data]
    return array


def _unpack(packed: np.ndarray, dtype: DType, numel: int) -> np.ndarray:
    """Sub-byte elements, the first in the lowest bits, to one element a byte."""
    bits = dtype.bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((packed[:, None] >> shifts) & (2**bits - 1)).reshape(-1)[:numel]
    assert dtype.numpy is not None
    if dtype.is_float:
        return codes.astype(np.uint8).view(dtype.numpy)
    values = codes.astype(np.int8)
    if dtype.is_signed:
        values = np.where(values >= 2 ** (bits - 1), values - 2**bits, values)
    return values.astype(dtype.numpy)
