"""Cases of the reductions, ArgMax, ArgMin, CumSum and the softmax family."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case, const

SUMS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
EXTREMES = ("ReduceMax", "ReduceMin")
NAN = np.nan
HOLES = np.array([[1, NAN, 3, NAN, 5], [NAN] * 5, [1, 2, 5, 5, 0], [-np.inf, NAN, np.inf, 0, 1]], np.float32)
MORE_HOLES = np.tile(HOLES, (1, 7)) * np.linspace(1, 2, 35, dtype=np.float32)
LOGS = ("ReduceLogSum", "ReduceLogSumExp")


def _reduce(op: str) -> list[Case]:
    low = 0.5 if op == "ReduceLogSum" else -2.0
    return [
        case(op, ["f32[3,5,7]"], low=low),
        case(op, ["f32[3,5,7]", const([1])], low=low),
        case(op, ["f32[N=3,70]", const([-1])], {"keepdims": 0}, low=low),
        case(op, ["f32[2,3,N=19]", const([2])], {"keepdims": 0}, low=low),
        case(op, ["f32[2,3,33]", const([0])], {"keepdims": 0}, low=low),
        case(op, ["f32[2,3,4,17]", const([0, 2])], low=low),
        case(op, ["f32[2,3,4,5]", const([1, 3])], {"keepdims": 0}, low=low),
        case(op, ["f32[4,6]", const([])], {"noop_with_empty_axes": 1}, low=low),
        case(op, ["f64[2,37]", const([1])], low=low),
        case(op, ["f16[2,37]", const([1])], low=low, rtol=5e-3, atol=5e-3),
    ]


def _arg(op: str) -> list[Case]:
    ties = np.array([[3, 1, 3, 1, 2], [0, 0, 0, 0, 0]], np.float32)
    return [
        case(op, ["f32[3,40]"]),
        case(op, ["f32[3,40]"], {"axis": 1, "keepdims": 0}),
        case(op, ["f32[N=3,4,17]"], {"axis": 1}),
        case(op, ["f32[3,4,17]"], {"axis": -1, "select_last_index": 1}),
        case(op, [ties], {"axis": 1}),
        case(op, [ties], {"axis": 1, "select_last_index": 1}),
        case(op, ["i32[5,70]"], {"axis": 1}),
        case(op, ["u8[5,70]"], {"axis": 1}, low=0, high=255),
        case(op, ["f64[5,9]"], {"axis": 0}),
        case(op, ["f16[5,90]"], {"axis": 1}),
    ]


def _softmax(op: str) -> list[Case]:
    return [
        case(op, ["f32[3,10]"]),
        case(op, ["f32[3,128]"]),
        case(op, ["f32[N=2,3,301]"], low=-40, high=40),
        case(op, ["f32[2,N=23]"]),
        case(op, ["f32[2,5,19]"], {"axis": 1}),
        case(op, ["f32[7,2,3]"], {"axis": 0}),
        case(op, ["f32[5]"], {"axis": -1}),
        case(op, ["f64[2,33]"]),
        case(op, ["f16[2,33]"], rtol=5e-3, atol=1e-3),
        case(op, ["f32[0,4]"]),
    ]


def _softmax_beyond_exp(op: str) -> list[Case]:
    """onnx.reference takes the logarithm of a softmax that has become 0."""
    oracle = "onnxruntime" if op == "LogSoftmax" else "reference"
    return [
        case(op, ["f32[3,19]"], low=-1000, high=1000, oracle=oracle),
        case(op, ["f32[2,N=701]"], low=-1e30, high=1e30, oracle=oracle),
        case(op, ["f32[2,19,21]"], {"axis": 1}, low=-1000, high=1000, oracle=oracle),
        case(op, ["f64[2,33]"], low=-1e5, high=1e5, oracle=oracle),
    ]


def _softmax_of_the_infinite(op: str) -> list[Case]:
    inf, nan = np.inf, np.nan
    rows = np.array([[-inf, 1, 2, 3, -inf], [-inf] * 5, [inf, 1, 2, 3, 4], [nan, 1, 2, 3, 4]], np.float32)
    return [case(op, [rows]), case(op, [np.tile(rows, 60)]), case(op, [np.tile(rows.T, 7)], {"axis": 0})]


def _cumulative(op: str, **options: int) -> list[Case]:
    attrs = [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}]
    found = [case(op, ["f32[3,9,5]", const(axis, np.int32)], a, **options) for a in attrs for axis in (0, 1, -1)]
    found += [case(op, ["f32[3,9,20]", np.array(axis)], attrs[3], **options) for axis in (0, 1, -1)]
    others = (["i64[N=20]", const(0)], ["f64[2,17]", const(1)], ["f32[4,33]", const(0)], ["i32[0,3]", const(0)])
    return [*found, *(case(op, operands, **options) for operands in others)]


CASES = [
    *(c for op in (*SUMS, *EXTREMES, *LOGS) for c in _reduce(op)),
    *(case(op, ["i32[3,37]", const([1])], low=-9, high=9) for op in (*SUMS, *EXTREMES)
      if op not in ("ReduceProd", "ReduceSumSquare")),
    case("ReduceSumSquare", ["i32[3,37]", const([1])], low=-9, high=9, oracle="onnxruntime"),
    *(case(op, ["i64[N=3,5,7]", const([0, 1])], low=1, high=5) for op in ("ReduceSum", "ReduceProd", "ReduceMax")),
    *(case(op, ["u8[3,200]", const([1])], low=0, high=255) for op in EXTREMES),
    *(case(op, [np.array([[True, False, True], [False] * 3, [True] * 3]), const([1])]) for op in EXTREMES),
    *(case(op, ["f32[2,0,4]", const([1])]) for op in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceMax", "ReduceMin")),
    case("ReduceSum", ["f32[2,3]", np.zeros(0, np.int64)]),
    case("ReduceSum", ["f32[2,3]", np.zeros(0, np.int64)], {"noop_with_empty_axes": 1}),
    *(case(op, ["f32[]"]) for op in ("ReduceSum", "ReduceMax", "ReduceMean")),
    case("ReduceSum", ["f32[2,1000,3]", const([1])]),
    case("ReduceLogSumExp", ["f32[2,40]", const([1])], low=-300, high=300),
    *(c for op in ("ArgMax", "ArgMin") for c in _arg(op)),
    # the first NaN, or the last one, as numpy has it; ONNX Runtime passes over some
    *(case(op, [x], {"axis": axis, "select_last_index": last})
      for op in ("ArgMax", "ArgMin") for x in (HOLES, MORE_HOLES) for axis in (0, 1) for last in (0, 1)),
    *(case(op, ["f32[3,N=0]", const([1])]) for op in (*SUMS, *EXTREMES, *LOGS) if op != "ReduceMean"),
    *(case(op, ["f32[3,0,4]", const([1])]) for op in (*SUMS, *EXTREMES, *LOGS)),
    *_cumulative("CumSum"), *_cumulative("CumProd", opset=26),
    *(c for op in ("Softmax", "LogSoftmax", "Hardmax") for c in _softmax(op)),
    *(c for op in ("Softmax", "LogSoftmax", "Hardmax") for c in _softmax_beyond_exp(op)),
    case("Softmax", ["f16[2,33]"], low=-6e4, high=6e4, rtol=5e-3, atol=1e-3),
    *(c for op in ("Softmax", "LogSoftmax") for c in _softmax_of_the_infinite(op)),
]
