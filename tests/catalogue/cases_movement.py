"""Cases of the operators that move data without looking at it, by shape or by constant parameters."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case, const

FAR = 2**63 - 1
TYPES = ("f32", "f64", "f16", "i8", "u16", "i32", "i64", "bool")


def _slice(shape: str, starts: list[int], ends: list[int], axes: list[int] | None = None,
           steps: list[int] | None = None) -> Case:
    optional = [None if axes is None else const(axes), None if steps is None else const(steps)]
    return case("Slice", [shape, const(starts), const(ends), *optional])


def _pads(mode: str) -> list[Case]:
    shapes = [("f32[3,5]", [1, 2, 0, 3]), ("f32[2,3,6,7]", [0, 0, 1, 2, 0, 0, 3, 1]), ("f32[N=4,33]", [0, 5, 0, 9]),
              ("f32[2,3,17]", [1, 0, 2, 1, 0, 2]), ("f32[20]", [3, 1]), ("f32[2,H=5,W=6]", [0, 1, 2, 0, 3, 4])]
    return [case("Pad", [shape, const(pads)], {"mode": mode}) for shape, pads in shapes]


def _negative() -> list[Case]:
    return [case("Pad", ["f32[6,20]", const([-1, -2, 2, 3]), const(1.5)], oracle="onnxruntime"),
            case("Pad", ["f32[6,20]", const([1, -2, -3, -4])], oracle="onnxruntime"),
            *(case("Pad", [f"f32[6,5,{last}]", const(pads)], {"mode": mode}, oracle="onnxruntime")
              for mode in ("reflect", "edge", "wrap")  # margins repeat what is kept
              for last, pads in (("H=7", [1, 0, -3, -3, 0, 3]), ("7", [-4, 3, -1, 1, -1, -2])))]


CASES = [
    _slice("f32[20,10,5]", [0, 0], [3, 10], [0, 1]),
    _slice("f32[20,10,5]", [20, 10, 4], [0, 0, 1], [0, 1, 2], [-1, -3, -2]),
    _slice("f32[20,10]", [1, 0], [-1, 1000]),
    _slice("f32[20,40]", [-1, 1], [-FAR - 1, FAR], [-2, -1], [-1, 2]),
    _slice("f32[N=7,33]", [0], [FAR], [0], [2]),
    _slice("f32[3,N=33]", [-4], [FAR], [1]),
    _slice("f32[3,N=33]", [2], [-1], [1]),
    _slice("f32[3,N=33]", [FAR], [-FAR - 1], [1], [-1]),
    _slice("f32[2,3]", [1], [1], [0]),
    *(_slice(f"{t}[3,40,5]", [1, 2], [3, 37], [0, 1], [1, 3]) for t in TYPES),
    *(case("Split", [f"{t}[2,7,3]", const([2, 4, 1])], {"axis": 1}, outputs=3) for t in TYPES),
    case("Split", ["f32[3,12]"], {"axis": -1, "num_outputs": 3}, outputs=3),
    case("Split", ["f32[7,3]"], {"num_outputs": 3}, outputs=3),
    case("Split", ["f32[N=3,70]", const([33, 37])], {"axis": 1}, outputs=2),
    case("Split", ["f32[4,N=6]"], {"axis": 1, "num_outputs": 2}, outputs=2),
    case("Split", ["f32[3]", const([0, 3])], outputs=2),
    *(c for mode in ("constant", "reflect", "edge", "wrap") for c in _pads(mode)),
    *_negative(),
    case("Pad", ["f32[3,5]", const([1, 2]), const(-2.5), const([-1])]),
    case("Pad", ["f32[3,5]", const([1, 1]), np.array(7, np.float32), const([0], np.int32)]),
    case("Pad", [np.zeros((0, 3), np.float32), const([1, 0, 1, 0]), const(2.0)]),
    *(case("Pad", [f"{t}[2,40]", const([1, 3, 0, 2]), const(1, np.dtype(n))])
      for t, n in (("f64", "f8"), ("i64", "i8"), ("i32", "i4"), ("u8", "u1"), ("bool", "?"))),
    *(case("Expand", [f"{t}[3,1,5]", const([2, 1, 4, 5])]) for t in TYPES),
    case("Expand", ["f32[3,1]", const([1])]),
    case("Expand", ["f32[1]", const([3, 33])]),
    case("Expand", ["f32[]", const([4])]),
    case("Expand", ["f32[N=3,1]", const([1, 20])]),
    *(case("Tile", [f"{t}[2,3,4]", const([2, 1, 3])]) for t in TYPES),
    case("Tile", ["f32[N=3,17]", const([2, 2])]),
    case("Tile", ["f32[2,3]", const([0, 1])]),
    *(case("DepthToSpace", [f"{t}[2,8,3,4]"], {"blocksize": 2, "mode": mode}) for t in ("f32", "f16", "i8")
      for mode in ("DCR", "CRD")),
    case("DepthToSpace", ["f32[N=2,9,H=3,W=4]"], {"blocksize": 3, "mode": "CRD"}),
    *(case("SpaceToDepth", [f"{t}[2,3,4,6]"], {"blocksize": 2}) for t in ("f32", "f64", "i8")),
    case("SpaceToDepth", ["f32[N=2,3,6,33]"], {"blocksize": 3}),
    *(case("SpaceToDepth", [f"{t}[N=2,3,4,6]"], {"blocksize": 2, "mode": "CRD"}) for t in ("f32", "f16", "i8")),
    case("SpaceToDepth", ["f32[2,5,6,9]"], {"blocksize": 3, "mode": "CRD"}),
    *(case("ReverseSequence", [f"{t}[5,3,4]", np.array([5, 1, 3])]) for t in ("f32", "f64", "i8", "bool")),
    case("ReverseSequence", ["f32[N=3,20]", np.array([20, 1, 0])], {"batch_axis": 0, "time_axis": 1},
         oracle="onnxruntime"),
    case("ReverseSequence", ["f32[4,33]", np.array([1, 2, 3, 4] * 8 + [0])], {"batch_axis": 1, "time_axis": 0},
         oracle="onnxruntime"),
]
