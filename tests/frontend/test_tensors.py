"""TensorProto to numpy: every element type from both fields, and data that does not fit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from parax.compiler.frontend.external import ExternalData
from parax.compiler.frontend.limits import Limits
from parax.compiler.frontend.tensors import TensorReader
from parax.errors import InvalidModel, ParaxError, ResourceLimit, UnsupportedOp

TYPES = {
    name: code
    for name, code in TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING") and not name.startswith("FLOAT6")
}


def read(tensor: TensorProto, limits: Limits | None = None) -> np.ndarray:
    return TensorReader(ExternalData(None), limits or Limits()).read(tensor, "t")


def sample(code: int, shape: tuple[int, ...]) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    values = np.arange(int(np.prod(shape))) % 2
    return values.astype(np.float32).astype(dtype).reshape(shape)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
@pytest.mark.parametrize("name", TYPES)
def test_raw_data(name, shape):
    array = sample(TYPES[name], shape)
    got = read(numpy_helper.from_array(array, "t"))
    assert got.dtype == array.dtype
    assert got.shape == shape
    np.testing.assert_array_equal(got.astype(np.complex64), array.astype(np.complex64))


@pytest.mark.parametrize("name", TYPES)
def test_typed_fields(name):
    array = sample(TYPES[name], (5,))
    try:
        tensor = helper.make_tensor("t", TYPES[name], [5], array.astype(np.float32))
    except Exception as error:  # onnx.helper cannot write every type this way
        pytest.skip(f"onnx.helper: {error}")
    got = read(tensor)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got.astype(np.complex64), numpy_helper.to_array(tensor).astype(np.complex64))


def test_negative_nibbles():
    tensor = TensorProto(dims=[3], data_type=TensorProto.INT4, raw_data=bytes([0xF8, 0x07]))
    np.testing.assert_array_equal(read(tensor).astype(np.int8), [-8, -1, 7])


def test_strings():
    tensor = helper.make_tensor("t", TensorProto.STRING, [2], [b"a", "é".encode()])
    assert read(tensor).tolist() == ["a", "é"]


def test_raw_data_is_not_copied():
    tensor = numpy_helper.from_array(np.arange(4.0, dtype=np.float32))
    assert not read(tensor).flags.owndata


BROKEN = {
    "short raw data": TensorProto(dims=[2], data_type=1, raw_data=b"1234567"),
    "long raw data": TensorProto(dims=[1], data_type=1, raw_data=b"12345678"),
    "no data": TensorProto(dims=[2], data_type=1),
    "short field": TensorProto(dims=[2], data_type=1, float_data=[1]),
    "wrong field": TensorProto(dims=[1], data_type=1, int64_data=[1]),
    "two fields": TensorProto(dims=[1], data_type=1, float_data=[1], raw_data=b"1234"),
    "negative dimension": TensorProto(dims=[-1], data_type=1),
    "raw strings": TensorProto(dims=[1], data_type=8, raw_data=b"a"),
    "no type": TensorProto(dims=[1], raw_data=b"a"),
    "value out of range": TensorProto(dims=[1], data_type=3, int32_data=[300]),
    "short nibbles": TensorProto(dims=[5], data_type=TensorProto.INT4, raw_data=b"12"),
    "external without a folder": TensorProto(dims=[1], data_type=1, data_location=TensorProto.EXTERNAL,
                                             external_data=[onnx.StringStringEntryProto(key="location", value="w")]),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_tensors(case):
    with pytest.raises((InvalidModel, UnsupportedOp)):
        read(BROKEN[case])


@pytest.mark.parametrize("dims", [[2**40, 2**40], [2**62], [2**62, 4], [0, 2**62], [1] * 5000])
def test_sizes_beyond_the_limits(dims):
    with pytest.raises(ParaxError):
        read(TensorProto(dims=dims, data_type=1))


def test_all_constants_together_are_limited():
    reader = TensorReader(ExternalData(None), Limits(constants_nbytes=10))
    tensor = numpy_helper.from_array(np.zeros(2, np.float32))
    reader.read(tensor, "t")
    with pytest.raises(ResourceLimit):
        reader.read(tensor, "t")


def sparse(indices: list[int], shape: list[int], dims: list[int], values: int = 2) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        helper.make_tensor("v", 1, [values], [1.0] * values), helper.make_tensor("i", 7, shape, indices), dims
    )


@pytest.mark.parametrize(
    "proto",
    [sparse([0, 4], [2], [4]), sparse([0, -1], [2], [4]), sparse([0, 0, 2, 0], [2, 2], [2, 2]),
     sparse([0], [1], [4]), sparse([0, 1, 2], [1, 3], [2, 2])],
)  # fmt: skip
def test_broken_sparse_tensors(proto):
    with pytest.raises(InvalidModel):
        TensorReader(ExternalData(None), Limits()).read_sparse(proto, "t")
