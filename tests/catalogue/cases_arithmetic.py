"""Cases of arithmetic, of the operators of any number of operands, Clip, Cast, Where, Identity and CastLike."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case, const
from parax.compiler.ir.types import DType

SPECIAL = np.array([-np.inf, -2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, np.inf, np.nan], np.float32)
LIMITS = np.array([-128, 127, 5, -5, 0, 1, -1], np.int8)
F, I = np.float32, np.int32


def _pair(op: str, low: float = -2.0, high: float = 2.0) -> list[Case]:
    """A binary operator over types, sizes and kinds of broadcast; integers are never 0."""
    positive = max(low, 1)
    return [
        case(op, ["f32[3,17]", "f32[3,17]"], low=low, high=high),
        case(op, ["f32[N=3,33]", "f32[33]"], low=low, high=high),
        case(op, ["f32[3,1,5]", "f32[4,1]"], low=low, high=high),
        case(op, ["f32[]", "f32[7]"], low=low, high=high),
        case(op, ["f32[0,3]", "f32[3]"]),
        case(op, ["f64[33]", const(1.5, np.float64)], low=low, high=high),
        case(op, ["f16[33]", "f16[33]"], low=max(low, 0.5), high=high),
        *[case(op, [f"{t}[33]", f"{t}[33]"], low=positive, high=9) for t in ("i32", "i64", "u8", "i16", "u32")],
    ]


def _one(op: str, *types: str, low: float = -9.0, high: float = 9.0) -> list[Case]:
    return [case(op, ["f32[N=3,17]"], low=low, high=high), case(op, ["f32[]"], low=low, high=high),
            case(op, ["f32[0]"]), *[case(op, [f"{t}[33]"], low=low, high=high) for t in types]]


def _several(op: str, *types: str) -> list[Case]:
    return [
        case(op, ["f32[3,17]"]), case(op, ["f32[3,17]", "f32[17]"]), case(op, ["f32[N=3,33]"] * 3),
        case(op, ["f32[3,1]", "f32[5]", "f32[]", "f32[1,5]"], oracle="onnxruntime"), case(op, ["f64[7]"] * 5),
        case(op, ["f16[33]"] * 2),
        case(op, ["f32[2,3]"] * 70), *[case(op, [f"{t}[33]"] * 3, low=0, high=9) for t in types],
    ]


def _cast(source: str, target: str, low: float = -100.0, high: float = 100.0) -> Case:
    return case("Cast", [f"{source}[N=3,17]"], {"to": DType.from_name(target)}, low=low, high=high)


CASES = [
    *_pair("Add"), *_pair("Sub"), *_pair("Mul"), *_pair("Div", low=0.5),
    case("Div", [np.array([7, -7, 7, -7], I), np.array([2, 2, -2, -2], I)], oracle="onnxruntime"),
    case("Div", [np.array([1, -1, 0], F), np.array([0, 0, 0], F)]),
    *_one("Neg", "f64", "f16", "i32", "i8", "i64"), *_one("Abs", "f64", "f16", "i32", "i8", "u8"),
    case("Neg", [LIMITS]), case("Abs", [LIMITS]),
    *_one("Sign", "f64", "f16", "i32", "i8"), case("Sign", ["u8[9]"], low=0, high=3), case("Sign", [SPECIAL]),
    *_one("Floor", "f64", "f16"), *_one("Ceil", "f64", "f16"), *_one("Round", "f64", "f16"), case("Round", [SPECIAL]),
    *_one("Reciprocal", "f64", "f16", low=0.5), *_one("Sqrt", "f64", "f16", low=0.0), *_one("Exp", "f64", "f16"),
    *_pair("Pow", low=0.5),
    *[case("Pow", ["f32[3,17]", const(float(p))]) for p in (-1, 1, 2, 3, 4)],
    case("Pow", ["f32[9]", const(2)]), case("Pow", ["f32[9]", "i64[9]"], low=1, high=5),
    case("Pow", [np.full(4, -1, F), np.array([1, 2**24, 2**24 + 1, 2**24 + 3])]),
    case("Pow", [np.full(2, -1, F), const(2**24 + 1)]), case("Pow", [np.array([3], np.int32), const(2**32 - 1, "u4")]),
    case("Pow", ["i32[9]", "f32[9]"], low=1, high=5), case("Pow", ["i32[9]", "i64[9]"], low=1, high=5),
    *[case("Pow", [SPECIAL, const(p)]) for p in (2.0, -0.5, -1.0)], case("Pow", [SPECIAL, np.full(11, 3.0, F)]),
    *[case("Mod", [f"{t}[33]", f"{t}[33]"], low=1, high=9) for t in ("i32", "u8", "i64", "u16")],
    case("Mod", [np.array([7, -7, 7, -7, 6], I), np.array([3, 3, -3, -3, 3], I)]),
    case("Mod", [np.array([7, -7, 7, -7, 6], I), np.array([3, 3, -3, -3, 3], I)], {"fmod": 1}),
    case("Mod", [np.array([5.3, -5.3, 5.3, -5.3], F), np.array([2, 2, -2, -2], F)], {"fmod": 1}),
    case("Mod", ["f32[33]", "f32[33]"], {"fmod": 1}, low=1, high=50),
    case("Mod", ["f64[33]", "f64[33]"], {"fmod": 1}, low=1, high=50),
    case("Mod", ["f16[33]", "f16[33]"], {"fmod": 1}, low=1, high=5),
    *[case("BitShift", [f"{t}[33]", f"{t}[33]"], {"direction": d}, low=0, high=7)
      for t in ("u8", "u16", "u32", "u64") for d in ("LEFT", "RIGHT")],
    *[case("BitShift", [np.array([1, 4, -5, -1, 100, -128], np.int8), np.array([1, 2, 1, 7, -1, 9], np.int8)],
           {"direction": d}) for d in ("LEFT", "RIGHT")],
    *[case("BitShift", [np.array([1, 255, 3], np.uint8), np.array([7, 8, 200], np.uint8)], {"direction": d})
      for d in ("LEFT", "RIGHT")],
    *_several("Max", "i32", "u8", "i64"), *_several("Min", "i32", "u8", "i64"), *_several("Sum"), *_several("Mean"),
    case("Max", [SPECIAL, SPECIAL[::-1].copy()]), case("Min", [SPECIAL, SPECIAL[::-1].copy()]),
    case("Clip", ["f32[3,17]", const(-1.0), const(1.0)]), case("Clip", ["f32[7]", None, const(1.5)]),
    case("Clip", ["f32[N=7]", const(0.5)]), case("Clip", ["f32[7]"]), case("Clip", ["f32[7]", "f32[]", "f32[]"]),
    case("Clip", ["i32[33]", const(-2, I), const(3, I)], low=-9, high=9), case("Clip", ["f16[7]", None, "f16[]"]),
    case("Where", ["bool[3,17]", "f32[3,17]", "f32[17]"]), case("Where", ["bool[N=3,1]", "i64[4]", "i64[]"]),
    case("Where", ["bool[7]", "bool[7]", "bool[7]"]), case("Where", ["bool[33]", "f16[33]", "f16[1]"]),
    case("Identity", ["f32[N=3,17]"]), case("Identity", ["bool[3]"]), case("Identity", ["f16[]"]),
    *[_cast("f32", t) for t in ("f64", "f16", "bf16", "i8", "i32", "i64", "bool")], _cast("f32", "u8", 0, 200),
    *[_cast(s, "f32") for s in ("f64", "f16", "i8", "i16", "i32", "i64", "bool")], _cast("u8", "f32", 0, 255),
    *[_cast("i64", t) for t in ("i32", "u8", "bool", "f64", "f16")], _cast("bool", "i64"), _cast("u8", "i8", 0, 255),
    case("CastLike", ["f32[N=3,5]", "i64[0]"]), case("CastLike", ["i32[3,5]", "f16[2]"]),
]
