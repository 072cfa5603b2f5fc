"""The opcode of quads of bytes: what it means, in Python's integers; its instructions; that they give the same."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.jit import compile_assembly, load_function
from parax.compiler.ir.types import I8, I32, U8
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import KFunc, PtrType
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError
from sampling import thorough

N = 1024
VNNI = ["x86-64-v4+avx512vnni", "x86-64-v3+avxvnni"]
WHATEVER = [*TARGETS, *VNNI]


def dots(lanes: int, n: int, light: bool = False) -> KFunc:
    """c[i] += Σ a[4i + j] b[4i + j] over j below 4."""
    k = Builder(f"dots_{lanes}_{n}", [("a", PtrType(U8)), ("b", PtrType(I8)), ("c", PtrType(I32))])

    def step(i: KValue, _: list[KValue]) -> None:
        a, b = (k.load(k[name], i * 4, 4 * lanes) for name in "ab")
        c = k.load(k["c"], i, lanes)
        k.store(k["c"], i, k.op("dot_u8i8", (a, b, c), c.type, pairs_in_i16=light or None))

    k.for_(0, n, lanes, [], step)
    return k.func


def by_interpreter(a: np.ndarray, b: np.ndarray, c: np.ndarray, lanes: int, light: bool = False) -> np.ndarray:
    c = c.copy()
    interpret(dots(lanes, c.size, light), [Pointer(v.view(np.uint8)) for v in (a, b, c)])
    return c


QUADS = st.tuples(*[st.integers(0, 255)] * 4), st.tuples(*[st.integers(-128, 127)] * 4)


@thorough(300)
@example((255,) * 4, (127,) * 4, 2**31 - 1)
@example((255,) * 4, (-128,) * 4, -(2**31))
@given(*QUADS, st.integers(-(2**31), 2**31 - 1))
def test_sums_are_exact_modulo_two_to_the_32(a: tuple[int, ...], b: tuple[int, ...], c: int) -> None:
    wanted = (c + sum(x * y for x, y in zip(a, b, strict=True)) + 2**31) % 2**32 - 2**31
    given_ = np.array([0] * 4 + list(a), np.uint8), np.array([0] * 4 + list(b), np.int8)
    assert by_interpreter(*given_, np.array([7, c], np.int32), 2).tolist() == [7, wanted]


@pytest.mark.parametrize(("b", "holds"), [((64, 64, -64, -64), True), ((127, 1, 127, -128), True),
                                          ((127, 2, 0, 0), False), ((0, 0, -128, -1), False)])  # fmt: skip
def test_a_promise_that_is_not_kept_is_an_error(b: tuple[int, ...], holds: bool) -> None:
    """255 · 129 is no i16, whatever sign it has."""
    given_ = np.full(4, 255, np.uint8), np.array(b, np.int8), np.zeros(1, np.int32)
    if holds:
        assert by_interpreter(*given_, 1, light=True) == 255 * sum(b)
        return
    with pytest.raises(InternalError, match="leaves i16"):
        by_interpreter(*given_, 1, light=True)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("name", WHATEVER)
def test_compiled_code_gives_the_same_bits(name: str, lanes: int, light: bool) -> None:
    target = resolve_target(name)
    if not target.supported_by(host_features()):
        pytest.skip(f"this CPU does not run {name} code")
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, 4 * N).astype(np.uint8), rng.integers(-128, 128, 4 * N).astype(np.int8)
    a[:N], b[:N] = rng.choice([0, 255], N), rng.choice([-128, 127, -1], N)
    if light:
        b = np.clip(b, -64, 64)
    c = rng.integers(-(2**31), 2**31, N).astype(np.int32)
    wanted, found = by_interpreter(a, b, c, 16, light), c.copy()
    load_function(dots(lanes, N, light), target)(a.ctypes.data, b.ctypes.data, found.ctypes.data)
    np.testing.assert_array_equal(found, wanted)


def text_of(name: str, lanes: int, light: bool) -> str:
    """The assembly of the loop."""
    if "x86" not in llvm.get_process_triple():
        pytest.skip("llvmlite makes code of this machine's architecture")
    target = resolve_target(name)
    emitter = ModuleEmitter(target)
    emitter.add([dots(lanes, 16 * lanes, light)])
    emitter.export(dots(lanes, 16 * lanes, light), "dots")
    return compile_assembly(emitter.text(), target)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize(("name", "lanes"), [(VNNI[0], 16), (VNNI[0], 8), (VNNI[1], 8), (VNNI[1], 4)])
def test_four_products_and_their_sums_are_one_instruction(name: str, lanes: int, light: bool) -> None:
    text = text_of(name, lanes, light)
    assert "vpdpbusd" in text and "pmadd" not in text and "pmull" not in text


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v2", 4), ("x86-64-v3", 8), ("x86-64-v4", 16)])
def test_light_weights_take_three_instructions(name: str, lanes: int) -> None:
    text = text_of(name, lanes, True)
    assert "pmaddubsw" in text and "pmaddwd" in text and "paddd" in text and "pmull" not in text
    assert "pmaddubsw" not in text_of(name, lanes, False), "it saturates at whole weights"
