"""Element types: what one element of a tensor is. Knows no shapes and no graphs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from ...errors import UnsupportedOp

# onnx brings ml_dtypes along for the types that numpy lacks, of which np.finfo raises ValueError
_ml = import_module("ml_dtypes") if find_spec("ml_dtypes") else None
float_info = (_ml or np).finfo


@dataclass(frozen=True)
class DType:
    """An ONNX element type: `name` as printed, `code` = onnx.TensorProto.DataType, `bits` per element."""

    name: str
    code: int
    bits: int
    kind: str
    """One of f (float), i (signed), u (unsigned), b (bool), c (complex), s (string)."""
    numpy: np.dtype[Any] | None
    """The numpy type (object for str), None if neither numpy nor ml_dtypes has it."""

    _by_code: ClassVar[dict[int, DType]] = {}
    _by_name: ClassVar[dict[str, DType]] = {}
    _by_numpy: ClassVar[dict[np.dtype[Any], DType]] = {}

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"  # a bool is none

    @property
    def is_signed(self) -> bool:
        return self.kind in "fic"

    @property
    def whole_range(self) -> tuple[int, int]:
        """The least and the greatest of the whole numbers that this integer or float type holds without gaps."""
        if self.is_float:
            most = 1 << (float_info(self.numpy).nmant + 1)
            return -most, most
        low = -(1 << (self.bits - 1)) if self.is_signed else 0
        return low, low + (1 << self.bits) - 1

    def holds(self, x: int) -> bool:
        """True iff this integer type can represent x."""
        return self.whole_range[0] <= x <= self.whole_range[1]

    @property
    def nbytes(self) -> int:
        """Bytes of one element in memory (sub-byte types stand unpacked, one a byte)."""
        return max(1, self.bits // 8)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return self.code

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DType) and self.code == other.code)

    @staticmethod
    def from_code(code: int) -> DType:
        """The type with ONNX's integer code. Raises UnsupportedOp if there is none."""
        if code not in DType._by_code:
            raise UnsupportedOp("unknown element type", expected="an onnx.TensorProto.DataType", found=code)
        return DType._by_code[code]

    @staticmethod
    def from_name(name: str) -> DType:
        """The type printed as `name`. Raises UnsupportedOp if there is none."""
        if name not in DType._by_name:
            raise UnsupportedOp("unknown element type", expected=" ".join(DType._by_name), found=repr(name))
        return DType._by_name[name]

    @staticmethod
    def from_numpy(dtype: Any) -> DType:
        """The type of a numpy dtype; str and object count as `str`. Raises UnsupportedOp if there is none."""
        dtype = np.dtype(dtype)
        if dtype.kind in "USO":
            return STR
        found = DType._by_numpy.get(dtype) or DType._by_numpy.get(dtype.newbyteorder("="))
        if found is None:
            raise UnsupportedOp("unsupported numpy type", found=dtype)
        return found


def _define(name: str, code: int, bits: int, kind: str, numpy: str | None) -> DType:
    """`numpy` names a type of numpy, or of ml_dtypes if it starts with a colon."""
    resolved: np.dtype[Any] | None = None
    if numpy is not None:
        scalar = getattr(_ml, numpy[1:], None) if numpy.startswith(":") else numpy
        resolved = None if scalar is None else np.dtype(scalar)
    dtype = DType(name, code, bits, kind, resolved)
    DType._by_code[code] = DType._by_name[name] = dtype
    if resolved is not None:
        DType._by_numpy.setdefault(resolved, dtype)
    return dtype


F32 = _define("f32", 1, 32, "f", "float32")
U8 = _define("u8", 2, 8, "u", "uint8")
I8 = _define("i8", 3, 8, "i", "int8")
U16 = _define("u16", 4, 16, "u", "uint16")
I16 = _define("i16", 5, 16, "i", "int16")
I32 = _define("i32", 6, 32, "i", "int32")
I64 = _define("i64", 7, 64, "i", "int64")
STR = _define("str", 8, 64, "s", "object")
BOOL = _define("bool", 9, 8, "b", "bool")
F16 = _define("f16", 10, 16, "f", "float16")
F64 = _define("f64", 11, 64, "f", "float64")
U32 = _define("u32", 12, 32, "u", "uint32")
U64 = _define("u64", 13, 64, "u", "uint64")
C64 = _define("c64", 14, 64, "c", "complex64")
C128 = _define("c128", 15, 128, "c", "complex128")
BF16 = _define("bf16", 16, 16, "f", ":bfloat16")
F8E4M3FN = _define("f8e4m3fn", 17, 8, "f", ":float8_e4m3fn")
F8E4M3FNUZ = _define("f8e4m3fnuz", 18, 8, "f", ":float8_e4m3fnuz")
F8E5M2 = _define("f8e5m2", 19, 8, "f", ":float8_e5m2")
F8E5M2FNUZ = _define("f8e5m2fnuz", 20, 8, "f", ":float8_e5m2fnuz")
U4 = _define("u4", 21, 4, "u", ":uint4")
I4 = _define("i4", 22, 4, "i", ":int4")
F4E2M1 = _define("f4e2m1", 23, 4, "f", ":float4_e2m1fn")
F8E8M0 = _define("f8e8m0", 24, 8, "f", ":float8_e8m0fnu")
U2, I2 = _define("u2", 25, 2, "u", ":uint2"), _define("i2", 26, 2, "i", ":int2")
F6E2M3 = _define("f6e2m3", 27, 6, "f", ":float6_e2m3fn")
F6E3M2 = _define("f6e3m2", 28, 6, "f", ":float6_e3m2fn")
NARROW = tuple(d for d in DType._by_code.values() if d.bits < 8 or (d.is_float and d.bits == 8))  # only converted
