"""The opcode of tables of bytes: what it means, its instructions, that they give the same, and who has none."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.jit import load_function
from parax.compiler.ir.types import U8
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import KFunc, KType, PtrType
from parax.errors import InternalError

VBMI = "x86-64-v4+avx512vbmi"
N = 512


def lookups(lanes: int) -> KFunc:
    """y[i] = table[x[i]] of N bytes."""
    k = Builder(f"lookups_{lanes}", [(name, PtrType(U8)) for name in ("x", "table", "y")])
    table = k.load(k["table"], 0, 256)

    def step(i: object, _: object) -> None:
        k.store(k["y"], i, k.op("lookup", (k.load(k["x"], i, lanes), table), KType(U8, lanes)))

    k.for_(0, N, lanes, [], step)
    return k.func


def given() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.permutation(np.tile(np.arange(256), 2)).astype(np.uint8), rng.integers(0, 256, 256).astype(np.uint8)


@pytest.mark.parametrize("lanes", [1, 16, 64])
def test_each_lane_is_looked_up(lanes: int) -> None:
    x, table = given()
    y = np.zeros(N, np.uint8)
    interpret(lookups(lanes), [Pointer(v) for v in (x, table, y)])
    np.testing.assert_array_equal(y, table[x])


def test_compiled_code_gives_the_same_bytes() -> None:
    target = resolve_target(VBMI)
    if not target.supported_by(host_features()):
        pytest.skip(f"this CPU does not run {VBMI} code")
    x, table = given()
    y = np.zeros(N, np.uint8)
    load_function(lookups(64), target)(x.ctypes.data, table.ctypes.data, y.ctypes.data)
    np.testing.assert_array_equal(y, table[x])


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v4", 64), (VBMI, 32), ("x86-64-v3", 64)])
def test_others_have_no_instruction(name: str, lanes: int) -> None:
    with pytest.raises(InternalError, match=f"no instruction that looks up {lanes} bytes"):
        ModuleEmitter(resolve_target(name)).add([lookups(lanes)])
