"""Cases of Det and ONNX Runtime's Inverse."""

from __future__ import annotations

import numpy as np

from catalogue.cases import case


def regular(*shape: int, dtype: type = np.float32, seed: int = 1) -> np.ndarray:
    """Matrices whose inverses are not much larger than 1: random ones beside a multiple of the identity."""
    x = np.random.default_rng(seed).uniform(-1, 1, shape)
    return (x + np.eye(shape[-1])[::-1] * 3).astype(dtype)  # turned round, so that there is something to exchange


CASES = [
    *(case("Det", [f"f32[2,{n},{n}]"]) for n in (1, 2, 3, 5)),
    case("Det", [regular(2, 3, 17, 17) / 2]),
    case("Det", [regular(33, 33) / 3]),
    case("Det", ["f64[3,9,9]"]),
    case("Det", ["f16[2,3,3]"], oracle="onnxruntime", opset=21, rtol=1e-2),  # NumPy has none of halves
    case("Det", ["f32[N=3,n=4,n=4]"]),
    case("Det", ["f32[2,0,0]"]),
    case("Det", ["f32[0,3,3]"]),
    case("Det", [np.zeros((2, 3, 3), np.float32)]),
    *(case("Inverse", [regular(*shape)], domain="com.microsoft", oracle="onnxruntime")
      for shape in ((1, 1), (3, 3), (2, 5, 17, 17), (2, 64, 64), (1, 130, 130))),
    case("Inverse", [regular(2, 33, 33, dtype=np.float64)], domain="com.microsoft", oracle="onnxruntime"),
    case("Inverse", [regular(2, 5, 5, dtype=np.float16)], domain="com.microsoft", oracle="onnxruntime"),
    case("Inverse", ["f64[N=3,n=4,n=4]"], domain="com.microsoft", oracle="onnxruntime", rtol=1e-7),
]
