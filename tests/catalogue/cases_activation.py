"""Cases of the activation functions."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case

SPECIAL = np.array([-np.inf, -100.0, -0.0, 0.0, 1e-6, 100.0, np.inf, np.nan], np.float32)


def _plain(op: str, *attributes: dict[str, object]) -> list[Case]:
    # the reference computes constants of these in f32
    loose = 1e-6 if op in ("Gelu", "HardSwish") else None
    # the reference fails on scalars
    scalar = case(op, ["f32[]"], oracle="onnxruntime") if op == "Softsign" else case(op, ["f32[]"])
    cases = [case(op, ["f32[N=3,17]"]), scalar, case(op, ["f32[0,3]"]), case(op, ["f64[33]"], rtol=loose),
             case(op, ["f16[2,33]"], low=-8, high=8), case(op, ["f32[5,33]"], low=-30, high=30)]
    return cases + [case(op, ["f32[3,33]"], a) for a in attributes]


CASES = [
    *_plain("Relu"), *_plain("Sigmoid"), *_plain("Tanh"),
    *_plain("Elu", {"alpha": 0.3}),
    *_plain("Celu", {"alpha": 0.5}),
    case("Celu", [SPECIAL], {"alpha": 0.0}),
    *_plain("Selu", {"alpha": 2.0, "gamma": 3.0}),
    *_plain("LeakyRelu", {"alpha": 0.3}),
    *_plain("Gelu", {"approximate": "tanh"}),
    *_plain("Softplus"),
    *_plain("Softsign"),
    *_plain("Mish"),
    *_plain("HardSwish"),
    *_plain("HardSigmoid", {"alpha": 0.4, "beta": 0.6}),
    *_plain("ThresholdedRelu", {"alpha": 0.25}),
    *_plain("Shrink", {"bias": 0.5, "lambd": 1.5}),
    case("Swish", ["f32[N=3,17]"]),
    case("Swish", ["f32[5,33]"], {"alpha": 1.7}, low=-30, high=30),
    case("Swish", ["f64[33]"]),
    case("SwiGLU", ["f32[N=3,17]", "f32[N=3,17]"]),
    case("SwiGLU", ["f32[5,33]", "f32[5,33]"], {"alpha": 1.7}, low=-30, high=30),
    case("SwiGLU", ["f64[33]", "f64[33]"]),
    case("SwiGLU", ["f16[2,33]", "f16[2,33]"]),
    case("SwiGLU", ["f32[]", "f32[]"]),
    case("SwiGLU", ["f32[0,3]", "f32[0,3]"]),
    case("SwiGLU", [SPECIAL, np.full(8, -2, np.float32)]),
    case("Relu", ["i32[7]"], low=-9, high=9),
    case("Relu", [SPECIAL]),
    case("Sigmoid", [SPECIAL]),
    case("LeakyRelu", [SPECIAL]),
    case("Softplus", [SPECIAL]),
    case("Shrink", ["i32[33]"], {"lambd": 2.5, "bias": 1.0}, low=-9, high=9),
    case("PRelu", ["f32[2,3,17]", "f32[3,1]"]),
    case("PRelu", ["f32[N=2,3,17]", "f32[1]"]),
    case("PRelu", ["f64[2,33]", "f64[2,33]"]),
    case("PRelu", ["f16[2,33]", "f16[33]"]),
    case("PRelu", ["i32[2,33]", "i32[33]"], low=-9, high=9),
]
