"""The opcode of pairs of bf16: what it means, in fractions; that the CPU's instruction gives the same bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.jit import load_function
from parax.compiler.ir.types import F32, U32
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import KFunc, PtrType
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError
from sampling import thorough

TARGET = resolve_target("x86-64-v4+avx512bf16")
LEAST = Fraction(2) ** -126
N = 4096


def dots(lanes: int, n: int) -> KFunc:
    """c[i] += the products of the pairs a[i] and b[i]."""
    k = Builder(f"dots_{lanes}_{n}", [("a", PtrType(U32)), ("b", PtrType(U32)), ("c", PtrType(F32))])

    def step(i: KValue, _: list[KValue]) -> None:
        a, b, c = (k.load(k[name], i, lanes) for name in "abc")
        k.store(k["c"], i, k.op("dot_bf16", (a, b, c), c.type))

    k.for_(0, n, lanes, [], step)
    return k.func


def by_interpreter(a: np.ndarray, b: np.ndarray, c: np.ndarray, lanes: int = 4) -> np.ndarray:
    c = c.copy()
    interpret(dots(lanes, c.size), [Pointer(np.ascontiguousarray(v).view(np.uint8)) for v in (a, b)]
              + [Pointer(c.view(np.uint8))])  # fmt: skip
    return c


def pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The bits of bf16, side by side."""
    return first.astype(np.uint32) | second.astype(np.uint32) << 16


def number(bits: int) -> Fraction:
    """A finite bf16 or f32 in the upper bits of a word; denormals are zeros."""
    value = Fraction(float(np.uint32(bits).view(np.float32)))
    return value if abs(value) >= LEAST else Fraction(0)


def nearest(x: Fraction) -> Fraction:
    """In 24 digits, ties to even; what has an exponent below f32's normal ones is 0."""
    if x == 0:
        return x
    exponent = math.frexp(float(x))[1]  # float() rounds: x may be below the power of two that it says
    unit = Fraction(2) ** (exponent - 24)
    if abs(x) < unit * 2**23:
        unit /= 2
    found = round(x / unit) * unit
    return found if abs(found) >= LEAST else Fraction(0)


FINITE = st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80)
WORDS = st.integers(0, 0xFFFFFFFF).filter(lambda bits: bits & 0x7F800000 != 0x7F800000)
SMALL = st.integers(1, 0x1F).map(lambda bits: bits << 7)


@thorough(600)
@example(127 << 7, 140 << 7, 127 << 7, 139 << 7, 1 << 31 | 152 << 23)  # 2^13 · 2^12 - 2^25, then 1, which -2^25 lacks
@given(FINITE | SMALL, FINITE | SMALL, FINITE | SMALL, FINITE | SMALL, WORDS)
def test_every_sum_is_rounded_once_the_second_product_first(a0: int, a1: int, b0: int, b1: int, c: int) -> None:
    wanted = nearest(number(c) + number(a1 << 16) * number(b1 << 16))
    if wanted >= Fraction(2) ** 128:
        return
    wanted = nearest(wanted + number(a0 << 16) * number(b0 << 16))
    words = (pairs(np.full(4, x), np.full(4, y)) for x, y in ((a0, a1), (b0, b1)))
    found = by_interpreter(*words, np.full(4, c, np.uint32).view(np.float32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, np.float32(float(wanted) if abs(wanted) < 2**128 else math.inf * wanted))


def edges() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums about the least normal number, cancelling ones and special values, and many at random."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << 16, (2, N)) for _ in range(2))
    c = rng.integers(0, 1 << 32, N).astype(np.uint32)
    near = slice(0, N // 4)
    a[:, near] = a[:, near] & 0x807F | rng.integers(60, 67, N // 4) << 7
    b[:, near] = b[:, near] & 0x807F | rng.integers(60, 67, N // 4) << 7
    c[near] = c[near] & 0x807FFFFF | 1 << 23
    for i, exponent in enumerate((149, 150, 151, 152)):  # 2^-126 - 2^-exponent: a half, a quarter … of its last digit
        power = [127 - exponent // 2, 127 - (exponent - exponent // 2)]
        a[:, i], b[:, i], c[i] = [0, 0x8000 | power[0] << 7], [0, power[1] << 7], 1 << 23
    usual = slice(N // 4, N // 2)
    a[:, usual], b[:, usual] = a[:, usual] & 0xBFFF | 0x3000, b[:, usual] & 0xBFFF | 0x3000
    left, right = ((v[1, usual].astype(np.uint32) << 16).view(np.float32) for v in (a, b))
    c[usual] = (-left * right).view(np.uint32)
    return pairs(*a), pairs(*b), c.view(np.float32)


def test_sums_are_small_only_after_they_are_rounded() -> None:
    """2^-126 - 2^-151 rounds to 2^-126 and stays; with a digit more it is a denormal, which is zero."""
    a, b, c = (v[:4] for v in edges())
    np.testing.assert_array_equal(by_interpreter(a, b, c), np.float32([0, 0, 2.0**-126, 2.0**-126]))


def test_an_infinity_times_a_denormal_is_nan() -> None:
    a, b = pairs(np.full(4, 0x7F80), np.zeros(4)), pairs(np.array([1, 0x0080, 0, 0x8080]), np.zeros(4))
    found = by_interpreter(a, b, np.zeros(4, np.float32))
    np.testing.assert_array_equal(found, np.float32([np.nan, np.inf, np.nan, -np.inf]))


@pytest.mark.skipif(not TARGET.supported_by(host_features()), reason="this CPU lacks AVX512-BF16")
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_instruction_gives_the_same_bits(lanes: int) -> None:
    a, b, c = edges()
    wanted, found = by_interpreter(a, b, c, 16), c.copy()
    load_function(dots(lanes, N), TARGET)(a.ctypes.data, b.ctypes.data, found.ctypes.data)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    same = found.view(np.uint32) == wanted.view(np.uint32)
    assert (same | np.isnan(wanted)).all(), np.flatnonzero(~same & ~np.isnan(wanted))[:8]
    assert np.isfinite(found).sum() > N // 2 and (found == 0).sum() > 50


@pytest.mark.parametrize(("name", "lanes"), [*((name, 4) for name in TARGETS), (TARGET.name, 2), (TARGET.name, 32)])
def test_code_without_the_instruction_is_refused(name: str, lanes: int) -> None:
    with pytest.raises(InternalError, match="pairs of bf16"):
        ModuleEmitter(resolve_target(name)).add([dots(lanes, 32)])
