"""Spelling of types and constants in LLVM assembly. Knows kernel IR types only."""

from __future__ import annotations

import math
import struct
from typing import Any

from ...errors import InternalError
from ..ir.types import BOOL, F16, F64, NARROW, DType
from ..kernel_ir.loops import KType, PtrType

# 16-bit floats are kept as their bits: LLVM turns bfloat into calls of a runtime library where the CPU lacks
# AVX512-BF16, and LLVM 20 (llvmlite up to 0.47) even moves of half where it lacks F16C
_SCALAR = {"f32": "float", "f64": "double", "f16": "i16", "bf16": "i16", "bool": "i1",
           "i8": "i8", "u8": "i8", "i16": "i16", "u16": "i16", "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64",
           **{dtype.name: "i8" for dtype in NARROW}}
_MANGLED = {"float": "f32", "double": "f64"}


def scalar_type(dtype: DType) -> str:
    """LLVM's name of a register scalar."""
    try:
        return _SCALAR[dtype.name]
    except KeyError:
        raise InternalError(f"no register type for {dtype.name}", where="LLVM emission") from None


def has_register(dtype: DType) -> bool:
    """Whether registers hold the type; complex numbers and strings they do not."""
    return dtype.name in _SCALAR


def llvm_type(t: KType | PtrType) -> str:
    """The type of a value in a register."""
    if isinstance(t, PtrType):
        return "ptr"
    return scalar_type(t.dtype) if t.lanes == 1 else f"<{t.lanes} x {scalar_type(t.dtype)}>"


def memory_scalar(dtype: DType) -> str:
    """An element in memory: bool takes a byte; f16 goes by its bits, since LLVM 20 calls a runtime library for masked
    loads of half where the CPU has no instructions for it."""
    return "i8" if dtype == BOOL else "i16" if dtype == F16 else scalar_type(dtype)


def memory_type(t: KType) -> str:
    """The type that a load of `t` reads."""
    return memory_scalar(t.dtype) if t.lanes == 1 else f"<{t.lanes} x {memory_scalar(t.dtype)}>"


def mask_type(t: KType) -> str:
    """One bit for each lane of `t`."""
    return llvm_type(KType(BOOL, t.lanes))


def suffix(t: KType) -> str:
    """The mangling of an overloaded intrinsic on registers."""
    name = scalar_type(t.dtype)
    name = _MANGLED.get(name, name)
    return name if t.lanes == 1 else f"v{t.lanes}{name}"


def memory_suffix(t: KType) -> str:
    """The mangling of a masked memory intrinsic (always a vector)."""
    name = memory_scalar(t.dtype)
    return f"v{t.lanes}{_MANGLED.get(name, name)}"


def literal(value: Any, dtype: DType) -> str:
    """A scalar constant; floats as their bits, rounded to the type."""
    if dtype == BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    if dtype.name in ("f16", "bf16"):
        raise InternalError(f"no {dtype.name} constants in kernels: compute in f32", where="LLVM emission")
    number = float(value)
    if dtype != F64:
        try:
            number = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            number = math.copysign(math.inf, value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def constant(value: Any, t: KType) -> str:
    """A constant of `t`, alike in all lanes."""
    text = literal(value, t.dtype)
    return text if t.lanes == 1 else f"splat ({scalar_type(t.dtype)} {text})"
