"""Cases of operators that only rename axes, and of Concat, Shape and Transpose."""

from __future__ import annotations

from catalogue.cases import case, const

CASES = [
    *(case("Concat", ["f32[2,3,17]", "f32[2,1,17]", "f32[2,33,17]"], {"axis": a}) for a in (1, -2)),
    case("Concat", ["i64[3]", "i64[0]", "i64[2]"], {"axis": 0}),
    case("Concat", ["f16[N=2,5]", "f16[N=2,40]"], {"axis": 1}),
    case("Concat", ["bool[2,5]"], {"axis": 0}),
    *(case("Flatten", ["f32[2,3,4]"], {"axis": a}) for a in (0, 1, 2, 3, -1)),
    case("Flatten", ["i64[N=2,3,4]"]),
    case("Reshape", ["f32[2,3,4]", const([4, -1])]),
    case("Reshape", ["f32[N=2,3,4]", const([0, -1])]),
    case("Reshape", ["bool[2,0,4]", const([0, 2, 0])], {"allowzero": 1}),
    case("Reshape", ["f16[1]", const([])]),
    case("Shape", ["f32[N=2,3,4]"]),
    case("Shape", ["f32[2,3,4]"], {"start": 1, "end": -1}),
    case("Shape", ["u8[]"]),
    case("Squeeze", ["f32[1,3,1,5]"]),
    case("Squeeze", ["f32[1,N=3,1,5]", const([0, -2])]),
    case("Unsqueeze", ["f32[N=3,5]", const([0, -1])]),
    case("Unsqueeze", ["i8[]", const([0])]),
    case("Transpose", ["f32[2,3,4]"]),
    case("Transpose", ["f32[N=2,33,17]"], {"perm": [0, 2, 1]}),
    case("Transpose", ["f64[2,3,4,5]"], {"perm": [3, 1, 0, 2]}),
    case("Transpose", ["bool[5,40]"], {"perm": [1, 0]}),
    case("Transpose", ["f32[]"], {}),
]
