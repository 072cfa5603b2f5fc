"""Cases of BitCast, and of what else has elements of the narrow types: casts, quantisation, movements.

Every value and every rounding: tests/backend/kernels/test_narrow_types.py.
"""

from __future__ import annotations

import numpy as np

from catalogue.cases import case, const
from parax.compiler.ir.types import NARROW, DType

BITS = [("f32", "i32"), ("i32", "f32"), ("u32", "i32"), ("f64", "i64"), ("i64", "f64"), ("u64", "i64"), ("f16", "i16"),
        ("bf16", "u16"), ("u16", "f16"), ("i8", "u8"), ("bool", "u8"), ("f8e4m3fn", "u8"), ("u8", "f8e5m2"),
        ("i4", "u4"), ("u4", "f4e2m1"), ("i2", "u2"), ("f32", "f32")]  # fmt: skip
FLOATS = [t for t in NARROW if t.is_float and t.name != "f8e8m0"]
WHOLE = [t for t in NARROW if t.is_int]
MOVED = [t for t in NARROW if t.bits in (8, 4)]


def _zeros(dtype: DType, *shape: int) -> object:
    return const(np.zeros(shape, dtype.numpy))


CASES = [
    *(case("BitCast", [f"{a}[N=3,17]"], {"to": DType.from_name(b)}, low=0 if a[0] == "u" else -2) for a, b in BITS),
    case("BitCast", ["f32[]"], {"to": DType.from_name("u32")}),
    case("BitCast", ["f32[0,3]"], {"to": DType.from_name("u32")}),
    *(case("Cast", ["f32[N=3,17]"], {"to": t, "saturate": s}, low=-9, high=9) for t in FLOATS for s in (0, 1)),
    *(case("Cast", ["f16[33]"], {"to": t}, low=-500, high=500) for t in FLOATS if t.bits == 8),
    *(case("Cast", ["i8[2,33]"], {"to": t}, low=-100, high=100) for t in WHOLE),
    *(case("Cast", [f"{t}[N=3,17]"], {"to": DType.from_name(to)}, low=0, high=2)
      for t in NARROW for to in ("f32", "f16") if t.name != "f8e8m0"),
    case("CastLike", ["f32[5]", "f8e5m2[2]"]),
    *(case("QuantizeLinear", ["f32[N=3,17]", const(0.3), _zeros(t)]) for t in (*FLOATS, *WHOLE)),
    *(case("QuantizeLinear", ["f32[4,6]", "f32[4]", const(np.arange(4).astype(t.numpy))], {"axis": 0}, low=0.1, high=3)
      for t in WHOLE if t.bits == 4),
    *(case("DequantizeLinear", [f"{t}[N=3,17]", const(0.3)], low=0, high=2) for t in (*FLOATS, *WHOLE)),
    case("DequantizeLinear", ["i4[6,4]", "f32[3,4]", "i4[3,4]"], {"axis": 0, "block_size": 2}, low=0, high=3),
    *(case("Transpose", [f"{t}[3,5]"]) for t in MOVED),
    *(case("Reshape", [f"{t}[N=3,5]", const([5, -1])]) for t in MOVED),
    *(case("Concat", [f"{t}[3,5]", f"{t}[3,2]"], {"axis": 1}) for t in MOVED),
    *(case("Slice", [f"{t}[9,5]", const([1]), const([8]), const([0]), const([2])]) for t in MOVED),
    *(case("Gather", [f"{t}[9,5]", np.array([1, -2, 4])]) for t in MOVED),
    *(case("Where", ["bool[3,5]", f"{t}[3,5]", f"{t}[3,5]"]) for t in MOVED),
]  # fmt: skip
