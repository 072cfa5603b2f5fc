"""The opcode of lanes by computed numbers: what it means; that compiled code gives the same, by one instruction."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import compile_assembly, load_function
from parax.compiler.ir.types import F32, F64, I8, I32, I64, U32, DType
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import KFunc, PtrType
from parax.compiler.targets.target import TARGETS

TYPES = (I8, I32, U32, I64, F32, F64)


def permuted(dtype: DType, lanes: int) -> KFunc:
    """y[i] = (a and b)[index[i] mod 2 lanes]."""
    k = Builder(f"permuted_{dtype}_{lanes}", [*((n, PtrType(dtype)) for n in "aby"), ("index", PtrType(I32))])
    a, b = (k.load(k[n], 0, lanes) for n in "ab")
    k.store(k["y"], 0, k.op("permute", (a, b, k.load(k["index"], 0, lanes)), a.type))
    return k.func


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4))
def test_numbers_are_taken_modulo_the_lanes_of_both(index: list[int]) -> None:
    a, b, y = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32), np.zeros(4, np.float32)
    interpret(permuted(F32, 4), [Pointer(v.view(np.uint8)) for v in (a, b, y, np.array(index, np.int32))])
    assert y.tolist() == [i % 8 for i in index]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", TARGETS)
def test_compiled_code_gives_the_same_lanes(name: str, dtype: DType, lanes: int) -> None:
    if not TARGETS[name].supported_by(host_features()):
        pytest.skip(f"this CPU does not run {name} code")
    rng = np.random.default_rng(lanes)
    a, b = rng.integers(0, 120, (2, lanes)).astype(dtype.numpy)
    index = rng.integers(-(2**31), 2**31, lanes).astype(np.int32)
    found = np.zeros(lanes, dtype.numpy)
    load_function(permuted(dtype, lanes), TARGETS[name])(*(v.ctypes.data for v in (a, b, found, index)))
    np.testing.assert_array_equal(found, np.concatenate([a, b])[index % (2 * lanes)])


@pytest.mark.parametrize(("dtype", "lanes"), [(F32, 16), (I32, 16), (F64, 8), (I64, 8)], ids=str)
def test_it_is_one_instruction(dtype: DType, lanes: int) -> None:
    if "x86" not in llvm.get_process_triple():
        pytest.skip("llvmlite makes code of this machine's architecture")
    emitter = ModuleEmitter(TARGETS["x86-64-v4"])
    emitter.add([permuted(dtype, lanes)])
    emitter.export(permuted(dtype, lanes), "permuted")
    text = compile_assembly(emitter.text(), TARGETS["x86-64-v4"])
    assert "vpermi2" in text or "vpermt2" in text
