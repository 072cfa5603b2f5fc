"""Element types by name, as plans spell them, with the numpy type that stores them. Knows nothing else.

Types that numpy lacks (bf16, the 8-bit floats) use ml_dtypes where it is installed, and are stored as plain unsigned
integers of the same size where it is not.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_NUMPY = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool", "c64": "complex64",
    "c128": "complex128", "str": "object",
}  # fmt: skip
_EXTENDED = {
    "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu", "f4e2m1": "float4_e2m1fn", "i4": "int4", "u4": "uint4",
    "i2": "int2", "u2": "uint2", "f6e2m3": "float6_e2m3fn", "f6e3m2": "float6_e3m2fn",
}  # fmt: skip
EXTENDED = frozenset(_EXTENDED)
NAMES = frozenset(_NUMPY) | EXTENDED


@cache
def numpy_dtype(name: str) -> np.dtype:
    """The numpy type of one element (object for strings).

    Raises:
        KeyError: not a name of an element type.
    """
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    storage = np.dtype(np.uint16 if name == "bf16" else np.uint8)
    try:
        import ml_dtypes  # optional: only plans with these types pay for it
    except ImportError:
        return storage
    return np.dtype(getattr(ml_dtypes, _EXTENDED[name], storage))
