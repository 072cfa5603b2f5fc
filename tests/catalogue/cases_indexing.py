"""Cases of the operators that read or write at indices found in tensors, and of those made from coordinates."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case, const

RNG = np.random.default_rng(5)
TYPES = ("f32", "f64", "f16", "i8", "i64", "bool")


def _indices(shape: tuple[int, ...], size: int, dtype: type = np.int64) -> np.ndarray:
    return RNG.integers(-size, size, shape).astype(dtype)


def _permuted(rows: int, size: int) -> np.ndarray:
    """Each row without equal indices: what ONNX leaves open for equal ones is not compared."""
    return np.stack([RNG.permutation(size)[: size - 2] for _ in range(rows)])


def _scatter(op: str, reduction: str) -> list[Case]:
    low = -9 if reduction != "mul" else 1
    return [
        case(op, ["f32[9,4]", np.array([[1], [8], [-2], [1]]), "f32[4,4]"], {"reduction": reduction}),
        case(op, ["i64[9]", np.array([[1], [8], [1]]), "i64[3]"], {"reduction": reduction}, low=low, high=9),
        case(op, ["f32[N=3,4,33]", np.array([[0, 1], [2, 3]]), "f32[2,33]"], {"reduction": reduction}),
    ]


CASES = [
    *(case("Gather", [f"{t}[9,40]", _indices((2, 3), 9)]) for t in TYPES),
    case("Gather", ["f32[9,40]", _indices((5,), 9, np.int32)]),
    case("Gather", ["f32[5,33,3]", _indices((4,), 33)], {"axis": 1}),
    case("Gather", ["f32[5,3,33]", _indices((2, 20), 33)], {"axis": -1}),
    *(case("Gather", [f"{t}[37]", _indices((70,), 37)]) for t in TYPES),
    case("Gather", ["f32[N=4,3]", np.array(2)]),
    case("Gather", ["f32[3,N=20]", const([1, -1])], {"axis": 1}),
    case("Gather", ["f32[3,4]", np.zeros((0,), np.int64)]),
    case("Gather", ["f32[9,1]", const([3, -3])]),
    *(case("GatherElements", [f"{t}[9,20]", _indices((9, 17), 20)], {"axis": 1}) for t in TYPES),
    case("GatherElements", ["f32[9,20]", _indices((3, 20), 9)]),
    case("GatherElements", ["f32[N=2,3,4]", _indices((2, 3, 4), 3, np.int32)], {"axis": 1}),
    *(case("GatherND", [f"{t}[5,6,33]", np.stack([_indices((4,), 5), _indices((4,), 6)], -1)]) for t in TYPES),
    case("GatherND", ["f32[5,6]", np.stack([_indices((3, 2), 5), _indices((3, 2), 6)], -1)]),
    case("GatherND", ["f32[3,5,6]", _indices((3, 4, 1), 5)], {"batch_dims": 1}),
    case("GatherND", ["f32[3,2,5]", _indices((3, 2, 1), 5)], {"batch_dims": 2}),
    case("GatherND", ["f32[N=4,8]", const([[1], [-1]])]),
    *(case("ScatterElements", [f"{t}[4,20]", _permuted(4, 20), f"{t}[4,18]"], {"axis": 1}) for t in TYPES),
    *(case("ScatterElements", ["f32[4,6]", np.array([[0, 1, 1], [5, -1, 2]]), "f32[2,3]"],
           {"axis": 1, "reduction": r}) for r in ("add", "mul", "max", "min")),
    case("ScatterElements", ["f32[N=5,3]", np.array([[4, 0, -1]]), "f32[1,3]"]),
    case("ScatterElements", ["f16[5]", np.array([1, 1, 4]), "f16[3]"], {"reduction": "add"}),
    *(case("ScatterND", [f"{t}[6,40]", np.array([[5], [-6]]), f"{t}[2,40]"]) for t in TYPES),
    case("ScatterND", ["f32[4,5,3]", np.array([[[0, 1]], [[3, -1]]]), "f32[2,1,3]"]),
    *(c for r in ("add", "mul", "max", "min") for c in _scatter("ScatterND", r)),
    *(case("ConstantOfShape", [const([2, 17])], {"value": np.array([v])}) for v in
      (np.float32(1.5), np.float64(-2), np.float16(3), np.int8(-1), np.int64(7), np.uint16(9), np.bool_(True))),
    case("ConstantOfShape", [const([3])]),
    case("ConstantOfShape", [const([])]),
    case("ConstantOfShape", [const([0, 3])]),
    case("Range", [const(1.0), const(40.0), const(1.5)]),
    case("Range", [const(10, np.int32), const(-60, np.int32), const(-1, np.int32)]),
    case("Range", [const(0), const(100), const(1)]),
    case("Range", [const(0.5, np.float64), const(9.0, np.float64), const(0.25, np.float64)]),
    case("Range", [const(3), const(3), const(1)]),
    *(case("EyeLike", [f"{t}[5,20]"], {"k": k}) for t in ("f32", "f64", "f16", "i32", "bool") for k in (0, 2, -3)),
    case("EyeLike", ["f32[N=4,4]"], {"dtype": 7}),
    case("OneHot", [np.array([[0, 7], [-1, 99]]), const(8), np.array([2.0, 5.0], np.float32)]),
    case("OneHot", [np.array([0, 2, -4, 3], np.int32), const(4), np.array([0, 1], np.int8)], {"axis": 0}),
    case("OneHot", [np.array([0.0, 2.0], np.float32), const(33.0), np.array([0, 1])]),
    case("OneHot", ["i64[N=3,5]", const(17), const([0.0, 1.0])], {"axis": 1}, low=0, high=17),
    *(case("Trilu", [f"{t}[3,20]"], {"upper": u}) for t in TYPES for u in (0, 1)),
    *(case("Trilu", ["f32[2,N=5,33]", np.array(k)], {"upper": u}) for k in (-2, 0, 3) for u in (0, 1)),
    case("Size", ["f32[2,N=3,4]"]),
    case("Size", ["f32[]"]),
]
