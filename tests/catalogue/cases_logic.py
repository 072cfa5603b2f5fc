"""Cases of comparisons, logic, bitwise operators, IsNaN and IsInf."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case, const

SPECIAL = np.array([-np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], np.float32)


def _compare(op: str) -> list[Case]:
    return [
        case(op, ["f32[3,17]", "f32[3,17]"]), case(op, ["f32[N=3,33]", "f32[]"]), case(op, ["f32[3,1]", "f32[4]"]),
        case(op, ["f32[0]", "f32[1]"]), case(op, ["f64[33]", const(0.0, np.float64)]), case(op, ["f16[33]", "f16[33]"]),
        *[case(op, [f"{t}[70]", f"{t}[70]"], low=0, high=3) for t in ("i32", "i64", "u8", "i16", "u64")],
        case(op, [np.array([-1, 200], np.int64), np.array([1, -200], np.int64)]), case(op, [SPECIAL, SPECIAL]),
        case(op, [np.array([255, 1], np.uint8), np.array([1, 255], np.uint8)]),
    ]


def _pair(op: str, *types: str) -> list[Case]:
    return [c for t in types for c in (case(op, [f"{t}[N=3,17]", f"{t}[3,17]"], low=0, high=100),
                                       case(op, [f"{t}[3,1]", f"{t}[5]"], low=0, high=100),
                                       case(op, [f"{t}[]", f"{t}[]"], low=0, high=100))]


INTEGERS = ("u8", "i8", "u16", "i32", "u32", "i64", "u64")

CASES = [
    *_compare("Equal"), *_compare("Less"), *_compare("LessOrEqual"), *_compare("Greater"), *_compare("GreaterOrEqual"),
    case("Equal", ["bool[33]", "bool[33]"]),
    *_pair("And", "bool"), *_pair("Or", "bool"), *_pair("Xor", "bool"),
    case("Not", ["bool[N=3,17]"]), case("Not", ["bool[]"]), case("Not", ["bool[0]"]),
    *_pair("BitwiseAnd", *INTEGERS), *_pair("BitwiseOr", *INTEGERS), *_pair("BitwiseXor", *INTEGERS),
    *[case("BitwiseNot", [f"{t}[33]"], low=0, high=100) for t in INTEGERS], case("BitwiseNot", ["u8[]"], low=0, high=9),
    case("IsNaN", [SPECIAL]), case("IsNaN", ["f64[N=7]"]), case("IsNaN", [SPECIAL.astype(np.float16)]),
    case("IsInf", [SPECIAL]), case("IsInf", [SPECIAL], {"detect_negative": 0}), case("IsInf", ["f64[N=7]"]),
    case("IsInf", [SPECIAL], {"detect_positive": 0}), case("IsInf", [SPECIAL.astype(np.float16)]),
    case("IsInf", [SPECIAL], {"detect_positive": 0, "detect_negative": 0}),
]
