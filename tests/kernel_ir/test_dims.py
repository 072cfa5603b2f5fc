"""Symbolic dimensions inside kernels: what they come to equals the IR's own arithmetic, negative dividends included."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.jit import load_function
from parax.compiler.ir.dim import SymDim, evaluate, symbol
from parax.compiler.kernel_ir.builder import I64PTR, kernel
from sampling import thorough

N, S = symbol("N"), symbol("S")
FORMS = [(N - S) // 3, (N - S) // S, (2 * N - 9) % 4, (N - S) % (S + 1), (5 - N) // (S + 2), (N * S - 1) // S, N // S]


@thorough(30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
def test_floors_round_down(n: int, s: int) -> None:
    out = np.zeros(len(FORMS), np.int64)
    k = kernel("dims", [("y", I64PTR)], symbols=("N", "S"))
    for i, form in enumerate(FORMS):
        assert isinstance(form, SymDim)
        k.store(k["y"], i, k.index(form))
    dims = np.array([n, s], np.int64)
    run = load_function(k.func, resolve_target("native"))
    run(out.ctypes.data, dims.ctypes.data, 0, 0, 0)
    assert out.tolist() == [evaluate(form, {"N": n, "S": s}) for form in FORMS]
