"""Functions of half precisions are as near to float64 as their type allows, in whole vectors and in parts of one.

Between them and f32 lie conversions that compilers fold into masked instructions: LLVM made 0 of Sinh of bf16 so.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from backend.harness import host_targets, op, run_node
from sampling import sampled

FUNCTIONS = {
    "Sinh": np.sinh, "Cosh": np.cosh, "Tan": np.tan, "Sin": np.sin, "Cos": np.cos, "Exp": np.exp, "Log": np.log,
    "Tanh": np.tanh, "Asinh": np.arcsinh, "Atan": np.arctan, "Sqrt": np.sqrt, "Abs": np.abs, "Neg": np.negative,
    "Sign": np.sign, "Floor": np.floor, "Ceil": np.ceil, "Round": np.round, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softsign": lambda x: x / (1 + np.abs(x)), "Softplus": lambda x: np.log1p(np.exp(x)),
}  # fmt: skip
SIZES = (2, 33)


@pytest.mark.parametrize("target", sampled(host_targets(), 3), ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32], ids=["bf16", "f16", "f32"])
def test_functions_are_near_float64(dtype: type, target: object) -> None:
    rtol = 2 * float(ml_dtypes.finfo(dtype).eps)
    for name, function in FUNCTIONS.items():
        for n in SIZES:
            x = np.linspace(0.4, 3.1, n).astype(dtype)
            (found,) = run_node(op(name), [x], target=target)  # type: ignore[arg-type]
            expected = function(x.astype(np.float64))
            np.testing.assert_allclose(found.astype(np.float64), expected, rtol, rtol * 1e-2, err_msg=f"{name} of {n}")
