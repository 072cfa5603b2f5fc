"""Element types, tensor types, their text and their layouts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.ir import types
from parax.compiler.ir.types import (
    BOOL,
    F32,
    I64,
    STR,
    DType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    parse_type,
    symbol,
)
from parax.errors import InvalidModel, ParaxError, UnsupportedOp

N, S = symbol("N"), symbol("S")


def test_every_onnx_element_type_has_a_name() -> None:
    codes = [c for c in onnx.TensorProto.DataType.values() if c != onnx.TensorProto.UNDEFINED]
    names = [DType.from_code(c).name for c in codes]
    assert len(set(names)) == len(codes)
    for code in codes:
        dtype = DType.from_code(code)
        assert DType.from_name(dtype.name) is dtype
        assert dtype.code == code


@pytest.mark.parametrize("numpy", ["float32", "float64", "float16", "int8", "uint8", "int64", "bool", "complex64"])
def test_numpy_types_go_there_and_back(numpy: str) -> None:
    assert DType.from_numpy(numpy).numpy == np.dtype(numpy)


def test_kinds() -> None:
    assert F32.is_float and F32.is_signed and not F32.is_int
    assert I64.is_int and not BOOL.is_int
    assert DType.from_numpy("U8") is STR is DType.from_numpy(object)
    assert DType.from_name("i4").nbytes == 1
    assert types.BF16.bits == 16


def test_unknown_element_types_are_refused() -> None:
    with pytest.raises(UnsupportedOp):
        DType.from_code(0)
    with pytest.raises(UnsupportedOp):
        DType.from_name("f31")
    with pytest.raises(UnsupportedOp):
        DType.from_numpy("datetime64[s]")


def test_layout_gives_physical_shape_and_logical_strides() -> None:
    t = TensorType(F32, (N, 64, 7, S), (0, 2, 3, 1))
    assert t.physical_shape == (N, 7, S, 64)
    assert t.strides == (7 * 64 * S, 1, 64 * S, 64)
    assert t.numel == N * 64 * 7 * S
    assert t.nbytes == 4 * t.numel
    assert str(t) == "f32[N,64,7,S]{0,2,3,1}"


def test_the_identity_layout_is_none() -> None:
    assert TensorType(F32, (2, 3), (0, 1)).layout is None
    assert TensorType(F32, (2, 3), (0, 1)) == TensorType(F32, (2, 3))
    assert TensorType(F32, (2, 3), (1, 0)).same_logical(TensorType(F32, (2, 3)))


@pytest.mark.parametrize(
    "text",
    [
        "f32[]",
        "i64[3]",
        "f32[N,2*S+1,floor((S+1)/2)]",
        "bool[max(N,S),4]{1,0}",
        "f32[N,64|256,28,28]{0,2,3,1}",
        "f32[N|M+N,S|2*S]",
        "f32[*]",
        "seq(f32[*])",
        "opt(seq(i8[2]))",
    ],
)
def test_types_print_and_parse(text: str) -> None:
    assert str(parse_type(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "f32",
        "f32[",
        "f32[1]{0",
        "f32[1]{1}",
        "f32[1,]",
        "f32[a b]",
        "seq(f32[1]",
        "f32[1]{0,0}",
        "f32[4|3]",
        "f32[4|]",
        "seq(" * 5000 + "f32[1]" + ")" * 5000,
    ],
)
def test_malformed_types_are_refused(text: str) -> None:
    with pytest.raises(InvalidModel):
        parse_type(text)


@given(st.permutations(range(4)))
def test_strides_agree_with_numpy(order: list[int]) -> None:
    shape = (2, 3, 4, 5)
    t = TensorType(F32, shape, tuple(order))
    stored = np.empty(t.physical_shape, np.float32)
    logical = stored.transpose(np.argsort(order))
    assert logical.shape == shape
    assert tuple(s // 4 for s in logical.strides) == t.strides


def test_a_window_has_the_strides_of_its_tensor() -> None:
    t = parse_type("f32[2,3|8,5,7]{0,2,3,1}")
    assert isinstance(t, TensorType) and t.strides == (280, 1, 56, 8) and t.pitch == 8
    assert t.has_rows and not t.is_contiguous and t.nbytes == 4 * 210
    lines, first = parse_type("f32[2,3,5|6,7]{0,2,3,1}"), parse_type("f32[2|9,3,5]")
    assert isinstance(lines, TensorType) and not lines.has_rows and not lines.is_contiguous
    assert isinstance(first, TensorType) and first.has_rows and first.is_contiguous
    assert parse_type("f32[2|2,3]") == parse_type("f32[2,3]")


def test_bad_tensor_types_are_refused() -> None:
    with pytest.raises(InvalidModel, match="negative dimension"):
        TensorType(F32, (2, -1))
    with pytest.raises(InvalidModel, match="rank unknown"):
        _ = TensorType(F32, None).rank
    with pytest.raises(InvalidModel, match="static shape"):
        _ = TensorType(F32, (N,)).static_shape


def test_sequence_and_optional_types() -> None:
    assert parse_type("seq(f32[N])") == SequenceType(TensorType(F32, (N,)))
    assert parse_type("opt(f32[2])") == OptionalType(TensorType(F32, (2,)))
    maps = SequenceType(MapType(STR, F32))
    assert str(maps) == "seq(map(str,f32))" and parse_type(str(maps)) == maps
    for text in ("map(i64)", "map(f32,i64)", "map(i64,q)", "map(i64,f32,f32)"):
        with pytest.raises(ParaxError):
            parse_type(text)


def test_substitute() -> None:
    assert TensorType(F32, (N, 2)).substitute({"N": 3}).static_shape == (3, 2)


@pytest.mark.parametrize(("dtype", "most"), [
    (types.F16, 1 << 11), (types.BF16, 1 << 8), (types.F32, 1 << 24), (types.F64, 1 << 53),
])  # fmt: skip
def test_whole_numbers_that_a_float_type_holds(dtype: types.DType, most: int) -> None:
    assert dtype.whole_range == (-most, most)
    assert dtype.holds(most) and not dtype.holds(most + 1)
    assert int(np.array(most, dtype.numpy)) == most and int(np.array(most + 1, dtype.numpy)) != most + 1
