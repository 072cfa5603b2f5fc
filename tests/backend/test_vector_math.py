"""Errors of the vector functions against f64 in units in the last place, over the whole range of f32 on each target."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parax.compiler.backend.host import host_features
from parax.compiler.backend.jit import load_function
from parax.compiler.backend.vector_math import math_function
from parax.compiler.ir.types import DType
from parax.compiler.kernel_ir.builder import F32, F64, I32, Builder
from parax.compiler.kernel_ir.loops import INDEX, KType, PtrType
from parax.compiler.kernel_ir.verifier import verify_function
from parax.compiler.targets.target import TARGETS, Target

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

TINY = 2.0**-149
LARGEST = float(np.finfo(np.float32).max)
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


# function: (f64 reference, bound in ulp with FMA, bound without); the bounds are the maxima over 44 million arguments,
# rounded up
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "exp": (np.exp, 1.05, 1.05),
    "exp2": (np.exp2, 0.9, 1.1),
    "log": (np.log, 0.95, 1.15),
    "log1p": (np.log1p, 0.95, 1.15),
    "tanh": (np.tanh, 2.6, 2.7),
    "sigmoid": (_sigmoid, 2.4, 2.4),
    "erf": (_erf, 2.9, 3.1),
    "sin": (np.sin, 1.6, 1.6),
    "cos": (np.cos, 1.6, 1.6),
    "tan": (np.tan, 2.5, 2.6),
    "asin": (np.arcsin, 2.35, 2.35),
    "acos": (np.arccos, 1.2, 1.2),
    "atan": (np.arctan, 1.4, 1.5),
    "sinh": (np.sinh, 2.35, 2.35),
    "cosh": (np.cosh, 1.5, 1.5),
    "asinh": (np.arcsinh, 1.8, 1.8),
    "acosh": (np.arccosh, 1.95, 1.95),
    "atanh": (np.arctanh, 2.05, 2.05),
}
POWER_BOUND = 0.55


def ulp_error(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|found - exact| in units of the last place of f32 at `exact`; 0 for equal infinities or two NaN, else infinite
    where only one side is such (a finite result beyond f32 counts as the overflow it becomes)."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
        unit = np.spacing(np.minimum(np.abs(nearest), np.float32(LARGEST))).astype(np.float64)
        error = np.abs(found.astype(np.float64) - exact) / unit
        equal = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    return np.where(equal, 0.0, np.where(np.isfinite(error), error, np.inf))


def loaded(fn: str, target: Target, lanes: int, dtype: DType = F32, operands: int = 1) -> Callable[..., np.ndarray]:
    """The function over whole arrays, whose length is a multiple of lanes."""
    names = [f"x{i}" for i in range(operands)]
    k = Builder(f"all_{fn}_{lanes}", [(n, PtrType(dtype)) for n in (*names, "y")] + [("n", INDEX)])

    def step(i: Any, _: list) -> None:
        values = [k.load(k[n], i, lanes) for n in names]
        k.store(k["y"], i, k.pow(*values) if fn == "pow" else k.math(fn, *values))

    k.for_(0, k["n"], lanes, [], step)
    verify_function(k.func)
    function = load_function(k.func, target)

    def run(*arrays: np.ndarray) -> np.ndarray:
        assert arrays[0].size % lanes == 0
        out = np.empty_like(arrays[0])
        function(*(np.ascontiguousarray(a).ctypes.data for a in arrays), out.ctypes.data, out.size)
        return out

    return run


def sample(step: int) -> np.ndarray:
    """Every step-th f32 by bit pattern, from all exponents, both signs, denormals, infinities and NaN."""
    bits = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32)
    return bits[: bits.size // 32 * 32].view(np.float32)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, TINY, -TINY, 2.0**-126, -(2.0**-126),
                    LARGEST, -LARGEST, 88.72283, 88.72284, -87.33655, -103.97208, -104.0, 89.41599, 128.0, -149.0,
                    -150.0, 9.01, 3.92, math.pi, math.pi / 2, 1e8, 2.0**27, 1e30, 1.0 + 2.0**-23],
                   np.float32)  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_error_over_all_f32(target: Target, fn: str) -> None:
    reference, fused, unfused = FUNCTIONS[fn]
    x = np.concatenate([sample(6007 if fn != "erf" else 30011), SPECIAL])
    found = loaded(fn, target, 8 if fn == "erf" else target.f32_lanes)(x)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    error = ulp_error(found, exact)
    worst = int(error.argmax())
    bound = fused if target.has_fma else unfused
    assert error[worst] <= bound, f"{fn}({x[worst]!r}) = {found[worst]!r}, exactly {exact[worst]!r}"
    number = ~np.isnan(found)
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(exact.astype(np.float32))[number])


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_dense_sweep_where_models_live(target: Target, fn: str) -> None:
    reference, fused, unfused = FUNCTIONS[fn]
    n = 2**14 if fn == "erf" else 2**17
    x = np.concatenate([np.linspace(-12, 12, n), np.linspace(-1, 1, n), np.linspace(0.5, 2, n)]).astype(np.float32)
    with np.errstate(all="ignore"):
        error = ulp_error(loaded(fn, target, target.f32_lanes)(x), reference(x.astype(np.float64)))
    assert error.max() <= (fused if target.has_fma else unfused)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_width_does_not_change_the_result(target: Target, fn: str) -> None:
    x = np.concatenate([sample(5_000_011), SPECIAL])
    results = [loaded(fn, target, lanes)(x).view(np.uint32) for lanes in (1, 2, 4, 8, 16, 32)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("fn, x, y", (
    ("exp", -np.inf, 0.0), ("exp", 89.0, np.inf), ("exp", -104.0, 0.0), ("exp", 0.0, 1.0), ("exp", -0.0, 1.0),
    ("log", 0.0, -np.inf), ("log", -0.0, -np.inf), ("log", -1.0, np.nan), ("log", np.inf, np.inf), ("log", 1.0, 0.0),
    ("log1p", -1.0, -np.inf), ("log1p", -1.1, np.nan), ("log1p", -0.0, -0.0), ("log1p", TINY, TINY),
    ("tanh", np.inf, 1.0), ("tanh", -np.inf, -1.0), ("tanh", -0.0, -0.0), ("tanh", TINY, TINY),
    ("sigmoid", np.inf, 1.0), ("sigmoid", -np.inf, 0.0), ("sigmoid", 0.0, 0.5), ("sigmoid", -103.0, 2 * TINY / 2),
    ("erf", np.inf, 1.0), ("erf", -np.inf, -1.0), ("erf", -0.0, -0.0), ("erf", 5.0, 1.0),
    ("sin", -0.0, -0.0), ("sin", np.inf, np.nan), ("cos", 0.0, 1.0), ("cos", np.inf, np.nan), ("tan", -0.0, -0.0),
    ("asin", 1.0, math.pi / 2), ("asin", 1.01, np.nan), ("acos", 1.0, 0.0), ("acos", -1.0, math.pi),
    ("acos", -1.01, np.nan), ("atan", np.inf, math.pi / 2), ("atan", -np.inf, -math.pi / 2),
    ("sinh", -np.inf, -np.inf), ("cosh", -np.inf, np.inf), ("asinh", -np.inf, -np.inf), ("acosh", 1.0, 0.0),
    ("acosh", 0.5, np.nan), ("acosh", -5.0, np.nan), ("acosh", np.inf, np.inf), ("atanh", 1.0, np.inf),
    ("atanh", -1.0, -np.inf), ("atanh", 1.01, np.nan),
))  # fmt: skip
def test_special_values(target: Target, fn: str, x: float, y: float) -> None:
    found = loaded(fn, target, 4)(np.full(4, x, np.float32))
    expected = np.full(4, y, np.float32)
    np.testing.assert_array_equal(found, expected)
    assert math.isnan(y) or np.signbit(found[0]) == np.signbit(expected[0])


def test_bounded_functions_stay_in_bounds(target: Target) -> None:
    x = sample(60_013)
    for fn in ("tanh", "erf", "sin", "cos"):
        assert np.nanmax(np.abs(loaded(fn, target, 8)(x))) <= 1.0
    y = loaded("sigmoid", target, 8)(x)
    assert np.nanmin(y) >= 0.0
    assert np.nanmax(y) <= 1.0


# -- pow --------------------------------------------------------------------------------------------------------------
def power_error(x: np.ndarray, y: np.ndarray, found: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return ulp_error(found, np.power(x.astype(np.float64), y.astype(np.float64)))


def test_power_of_random_numbers(target: Target) -> None:
    rng = np.random.default_rng(5)
    n = 2**18
    base = np.exp(rng.uniform(-88, 88, n)).astype(np.float32)
    with np.errstate(all="ignore"):
        exponent = (rng.uniform(-150, 150, n) / np.log2(base.astype(np.float64))).astype(np.float32)
    base[: n // 4] = rng.uniform(-3, 3, n // 4)
    exponent[: n // 4] = rng.integers(-40, 40, n // 4)
    base[n // 4 : n // 2] = rng.uniform(0.9, 1.1, n // 4)
    exponent[n // 4 : n // 2] = rng.uniform(-900, 900, n // 4)
    found = loaded("pow", target, target.f32_lanes, operands=2)(base, exponent)
    error = power_error(base, exponent, found)
    worst = int(error.argmax())
    assert error[worst] <= POWER_BOUND, (base[worst], exponent[worst], found[worst])


def test_power_follows_c_for_all_special_pairs(target: Target) -> None:
    values = np.concatenate([SPECIAL, [2, -2, 3, -3, 2.5, -2.5, 1 / 3, 16777215, 16777217, -16777215, 1e10]])
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(values, values))
    pad = -x.size % 16
    x, y = np.pad(x, (0, pad)), np.pad(y, (0, pad))
    found = loaded("pow", target, 16, operands=2)(x, y)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        nearest = exact.astype(np.float32)
    error = ulp_error(found, exact)
    worst = int(error.argmax())
    assert error[worst] <= 1.0, (x[worst], y[worst], found[worst], exact[worst])
    number = ~np.isnan(nearest)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(nearest)[number])


# -- arbitrary bits ---------------------------------------------------------------------------------------------------
BEST = next(t for t in TARGETS.values() if t.supported_by(host_features()))
BITS = st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=8)


@pytest.fixture(scope="module")
def compiled() -> dict[str, Callable[..., np.ndarray]]:
    """Every function for the best target of this machine."""
    functions = {fn: loaded(fn, BEST, 8) for fn in FUNCTIONS}
    return {**functions, "pow": loaded("pow", BEST, 8, operands=2)}


@hypothesis.given(bits=BITS)
def test_any_bits(compiled: dict[str, Callable[..., np.ndarray]], bits: list[int]) -> None:
    x = np.array(bits, np.uint32).view(np.float32)
    for fn, (reference, bound, _) in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
        assert ulp_error(compiled[fn](x), exact).max() <= bound, fn


@hypothesis.given(x=BITS, y=BITS)
def test_any_powers(compiled: dict[str, Callable[..., np.ndarray]], x: list[int], y: list[int]) -> None:
    base, exponent = (np.array(b, np.uint32).view(np.float32) for b in (x, y))
    assert power_error(base, exponent, compiled["pow"](base, exponent)).max() <= 1.0


# -- double precision -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanes", (1, 4))
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_double_precision(target: Target, fn: str, lanes: int) -> None:
    x = np.linspace(-5, 5, 256)
    found = loaded(fn, target, lanes, F64)(x)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, FUNCTIONS[fn][0](x), rtol=1e-14, atol=1e-300)


def test_double_precision_power(target: Target) -> None:
    x, y = np.meshgrid(np.linspace(-3, 3, 13), np.linspace(-3, 3, 16))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = loaded("pow", target, 4, F64, operands=2)(x, y)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", (F32, F64))
def test_intrinsics(target: Target, dtype: DType) -> None:
    x = np.array([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, np.inf], dtype.numpy)
    for fn, f in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round_even", np.rint), ("abs", np.abs),
                  ("sqrt", np.sqrt)):  # fmt: skip
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(loaded(fn, target, 4, dtype)(x), f(x))


def test_functions_are_shared_and_absent_where_promised() -> None:
    t = KType(F32, 16)
    first = math_function("exp", t)
    assert first is math_function("exp", t)
    assert first is not None
    assert (first.name, first.inline) == ("vm_exp_f32x16", "always")
    verify_function(first)
    assert math_function("exp", KType(F64, 8)) is None
    assert math_function("exp", KType(I32, 8)) is None
    assert math_function("sqrt", t) is None
