"""Matrix registers: what their products mean, in fractions and whole numbers; that the CPU gives the same bits."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_ir.test_dot_bf16 import FINITE, nearest, number
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.jit import compile_assembly, load_function
from parax.compiler.ir.types import I32, U32
from parax.compiler.kernel_ir import matrices
from parax.compiler.kernel_ir.builder import Builder
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import KFunc, PtrType
from parax.compiler.kernel_ir.matrix_registers import KINDS, Shape
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError
from sampling import thorough

TARGET = resolve_target("x86-64-v4+amx-bf16+amx-int8+amx-tile")
RUNS = pytest.mark.skipif(not TARGET.supported_by(host_features()), reason="this CPU has no matrix registers")
SIZES = [(16, 16, 16), (13, 16, 16), (1, 1, 1), (5, 3, 16), (16, 7, 9)]


def products(kind: str, m: int, k: int, n: int) -> KFunc:
    """c [m][n] += a [m][k] · b [k][n] of elements of four bytes, b's rows 20 elements apart."""
    e = Builder(f"products_{kind}_{m}_{k}_{n}", [("a", PtrType(U32)), ("b", PtrType(U32)), ("c", PtrType(I32))])
    matrices.shape(e, [Shape(m, 4 * n), Shape(m, 4 * k), Shape(k, 4 * n)])
    for register, name, pitch in ((0, "c", n), (1, "a", k), (2, "b", 20)):
        matrices.load(e, register, e[name], 0, pitch)
    matrices.dot(e, kind, 0, 1, 2)
    matrices.store(e, 0, e["c"], 0, n)
    matrices.release(e)
    return e.func


def by_interpreter(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """b: [k][20], of which as many columns as c has are read."""
    c = c.copy()
    (m, k), n = a.shape, c.shape[1]
    interpret(products(kind, m, k, n), [Pointer(np.ascontiguousarray(v).view(np.uint8).reshape(-1)) for v in (a, b, c)])
    return c


def words(m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng((seed, m, k, n))
    a, b, c = (rng.integers(0, 1 << 32, size, np.uint32) for size in ((m, k), (k, 20), (m, n)))
    return a, b, c


@pytest.mark.parametrize("kind", ["i8i8", "u8i8"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bytes_are_multiplied_modulo_two_to_the_32(kind: str, size: tuple[int, int, int]) -> None:
    a, b, c = words(*size)
    m, k, n = size
    left = a.view(np.int8 if kind == "i8i8" else np.uint8).reshape(m, 4 * k).astype(object)
    right = b[:, :n].copy().view(np.int8).reshape(k, n, 4).transpose(0, 2, 1).reshape(4 * k, n).astype(object)
    wanted = (c.astype(object) + left @ right) % (1 << 32)
    np.testing.assert_array_equal(by_interpreter(kind, a, b, c), wanted.astype(np.uint32))


def rounded(x: Fraction) -> Fraction:
    return nearest(x) if x else x


@thorough(150)
@given(st.lists(FINITE, min_size=4, max_size=4), st.lists(FINITE, min_size=4, max_size=4), FINITE)
def test_pairs_are_summed_apart_and_then_together(a: list[int], b: list[int], c: int) -> None:
    own = [Fraction(0), Fraction(0)]
    for i in range(4):
        own[i % 2] = rounded(own[i % 2] + number(a[i] << 16) * number(b[i] << 16))
    wanted = rounded(number(c << 16) + rounded(own[0] + own[1]))
    if max(abs(x) for x in (*own, wanted)) >= Fraction(2) ** 127:
        return
    left = np.array([[a[0] | a[1] << 16, a[2] | a[3] << 16]], np.uint32)
    right = np.zeros((2, 20), np.uint32)
    right[:, 0] = b[0] | b[1] << 16, b[2] | b[3] << 16
    found = by_interpreter("bf16", left, right, np.array([[c << 16]], np.uint32)).view(np.float32)[0, 0]
    assert found == np.float32(float(wanted))


@RUNS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_instruction_gives_the_same_bits(kind: str, size: tuple[int, int, int]) -> None:
    a, b, c = words(*size)
    if kind == "bf16":  # exponents near the middle, so that sums stay numbers and digits are lost
        a, b, c = (v & 0x8FFF8FFF | 0x30003000 for v in (a, b, c))
        a[0, 0], b[0, :4] = 0x00018001, [0x7F800001, 0x7FC00000, 0xFF808001, 1]
    wanted, found = by_interpreter(kind, a, b, c), c.copy()
    load_function(products(kind, *a.shape, c.shape[1]), TARGET)(a.ctypes.data, b.ctypes.data, found.ctypes.data)
    same = found == wanted
    if kind == "bf16":
        same |= np.isnan(found.view(np.float32)) & np.isnan(wanted.view(np.float32))
    assert same.all(), np.argwhere(~same)[:8]


@pytest.mark.parametrize("kind", KINDS)
def test_code_has_the_instructions_and_the_registers_by_number(kind: str) -> None:
    emitter = ModuleEmitter(TARGET)
    emitter.export(products(kind, 16, 16, 16), "entry")
    text = compile_assembly(emitter.text(), TARGET)
    found = re.findall(r"\t(ldtilecfg|tilerelease|tileloadd|tilestored|tdp\w+)\b(.*)", text)
    assert [name for name, _ in found] == ["ldtilecfg", *["tileloadd"] * 3, KINDS[kind].instruction, "tilestored",
                                           "tilerelease"]  # fmt: skip
    assert [re.findall(r"%tmm(\d)", operands) for _, operands in found[1:-1]] == [
        ["0"], ["1"], ["2"], ["2", "1", "0"], ["0"]
    ]


@pytest.mark.parametrize("name", TARGETS)
def test_code_without_the_registers_is_refused(name: str) -> None:
    with pytest.raises(InternalError, match="no matrix registers"):
        ModuleEmitter(resolve_target(name)).add([products("bf16", 1, 1, 1)])


@pytest.mark.parametrize(
    ("shapes", "message"), [([], "has no shape"), ([Shape(4, 16), Shape(4, 16), Shape(3, 16)], "do not meet")], ids=str
)
def test_shapes_that_a_cpu_refuses_are_told(shapes: list[Shape], message: str) -> None:
    e = Builder("wrong", [])
    matrices.shape(e, shapes)
    matrices.dot(e, "bf16", 0, 1, 2)
    with pytest.raises(InternalError, match=message):
        interpret(e.func, [])
