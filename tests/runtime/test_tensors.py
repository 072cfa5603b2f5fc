"""What callers hand in as tensors: which element types an input takes, and what becomes of numbers without one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from parax.errors import InvalidInput
from parax.runtime.manifest import TensorSpec
from parax.runtime.tensors import input_array

ONES = {"bf16": 0x3F80, "f8e4m3fn": 0x38, "i4": 1}


@pytest.mark.parametrize("name", ONES)
@pytest.mark.parametrize("storage", ["u", "V"])
def test_storage_types_are_taken_as_they_lie(name: str, storage: str) -> None:
    spec = TensorSpec("x", name, (2,))
    bits = np.full(2, ONES[name], f"u{spec.numpy.itemsize}")
    found = input_array(bits.view(f"{storage}{spec.numpy.itemsize}"), spec)
    assert found.dtype == spec.numpy and found.astype(np.float32).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bf16", np.float16), ("bf16", np.int16), ("bf16", ">u2"), ("f8e4m3fn", ml_dtypes.float8_e5m2),
     ("f8e4m3fn", np.int8), ("i4", ml_dtypes.uint4), ("i4", np.int8), ("f16", ml_dtypes.bfloat16), ("str", np.int64)],
)  # fmt: skip
def test_other_types_of_the_same_width_are_refused(name: str, dtype: Any) -> None:
    with pytest.raises(InvalidInput, match="wrong element type"):
        input_array(np.ones(2, dtype), TensorSpec("x", name, (2,)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("i8", 300), ("i8", -129), ("i8", 2**64 - 1), ("i64", 2**63), ("i4", 8), ("i4", 0.5), ("f16", 70000),
     ("f32", 1e300), ("bf16", -1e300), ("f8e4m3fn", 1e3), ("c64", 1e300)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        input_array([value], TensorSpec("x", name, (1,)))


@pytest.mark.parametrize(
    ("name", "values"),
    [("i8", [-128, 127]), ("i64", [-(2**63), 2**63 - 1]), ("i4", [-8, 7]), ("f16", [65504, float("inf")]),
     ("f32", [float("-inf"), 2**64 - 1]), ("bf16", [0.5, -3]), ("i32", [True, False]), ("f32", []), ("i64", []),
     ("str", []), ("str", ["a"])],
)  # fmt: skip
def test_numbers_in_range_are_converted(name: str, values: list[Any]) -> None:
    spec = TensorSpec("x", name, (len(values),))
    found = input_array(values, spec)
    assert found.dtype == spec.numpy and found.tolist() == np.array(values, spec.numpy).tolist()
