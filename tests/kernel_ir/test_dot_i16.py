"""The opcode of pairs of i16: what it means, in Python's integers; that compiled code gives the same."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import compile_assembly, load_function
from parax.compiler.ir.types import I16, I32
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import KFunc, PtrType
from parax.compiler.targets.target import TARGETS
from sampling import thorough

N = 1024
LEAST, MOST = -(2**15), 2**15 - 1
SHORT, LONG = st.integers(LEAST, MOST), st.integers(-(2**31), 2**31 - 1)


def dots(lanes: int, n: int) -> KFunc:
    """c[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1]."""
    k = Builder(f"dots_{lanes}_{n}", [("a", PtrType(I16)), ("b", PtrType(I16)), ("c", PtrType(I32))])

    def step(i: KValue, _: list[KValue]) -> None:
        a, b = (k.load(k[name], i * 2, 2 * lanes) for name in "ab")
        c = k.load(k["c"], i, lanes)
        k.store(k["c"], i, k.op("dot_i16", (a, b, c), c.type))

    k.for_(0, n, lanes, [], step)
    return k.func


def by_interpreter(a: np.ndarray, b: np.ndarray, c: np.ndarray, lanes: int) -> np.ndarray:
    c = c.copy()
    interpret(dots(lanes, c.size), [Pointer(v.view(np.uint8)) for v in (a, b, c)])
    return c


@thorough(300)
@example(LEAST, LEAST, LEAST, LEAST, 0)  # 2^31, which i32 lacks
@example(LEAST, LEAST, LEAST, LEAST, -(2**31))
@example(MOST, MOST, MOST, MOST, 2**31 - 1)
@given(SHORT, SHORT, SHORT, SHORT, LONG)
def test_sums_are_exact_modulo_two_to_the_32(a0: int, a1: int, b0: int, b1: int, c: int) -> None:
    a, b = (np.array([0, 0, x, y], np.int16) for x, y in ((a0, a1), (b0, b1)))
    wanted = (c + a0 * b0 + a1 * b1 + 2**31) % 2**32 - 2**31
    assert by_interpreter(a, b, np.array([7, c], np.int32), 2).tolist() == [7, wanted]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("name", TARGETS)
def test_compiled_code_gives_the_same_bits(name: str, lanes: int) -> None:
    if not TARGETS[name].supported_by(host_features()):
        pytest.skip(f"this CPU does not run {name} code")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(LEAST, MOST + 1, 2 * N).astype(np.int16) for _ in range(2))
    a[: N // 2], b[: N // 2] = rng.choice([LEAST, MOST, -1], (2, N // 2))
    c = rng.integers(-(2**31), 2**31, N).astype(np.int32)
    wanted, found = by_interpreter(a, b, c, 16), c.copy()
    load_function(dots(lanes, N), TARGETS[name])(a.ctypes.data, b.ctypes.data, found.ctypes.data)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v2", 4), ("x86-64-v3", 8), ("x86-64-v4", 16)])
def test_two_products_are_one_instruction(name: str, lanes: int) -> None:
    if "x86" not in llvm.get_process_triple():
        pytest.skip("llvmlite makes code of this machine's architecture")
    emitter = ModuleEmitter(TARGETS[name])
    emitter.add([dots(lanes, 16 * lanes)])
    emitter.export(dots(lanes, 16 * lanes), "dots")
    text = compile_assembly(emitter.text(), TARGETS[name])
    assert "pmaddwd" in text and "pmull" not in text
