"""Casts to and from the narrow types: every value of each against ml_dtypes, roundings against plain numbers."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backend.harness import op, run_node
from parax.compiler.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, NARROW, U8, U64, DType
from parax.errors import InvalidModel

FLOATS = [dtype for dtype in NARROW if dtype.is_float and dtype.name != "f8e8m0"]
WHOLE = [dtype for dtype in NARROW if dtype.is_int]
E8M0 = DType.from_name("f8e8m0")
LEAST = Fraction(1, 2**127)


def cast(x: np.ndarray, to: DType, **attributes: object) -> np.ndarray:
    result: np.ndarray = run_node(op("Cast", to=to, **attributes), [x])[0]
    assert result.dtype == to.numpy
    return result


def every(dtype: DType) -> np.ndarray:
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Bit by bit; NaN is NaN."""
    nan = np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), nan)
    np.testing.assert_array_equal(found.view(np.uint8)[~nan], wanted.view(np.uint8)[~nan])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("to", [F32, F64, F16, BF16], ids=str)
def test_every_value_as_a_float(dtype: DType, to: DType) -> None:
    x = every(dtype)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float32).astype(to.numpy)
    np.testing.assert_array_equal(cast(x, to).astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("to", [I8, U8, I64, BOOL], ids=str)
def test_every_integer_as_a_wider_one(dtype: DType, to: DType) -> None:
    x = every(dtype)
    np.testing.assert_array_equal(cast(x, to), x.astype(np.int64).astype(to.numpy))


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_the_lowest_bits_of_integers(dtype: DType) -> None:
    x = np.arange(-128, 128)
    wanted = (x & ((1 << dtype.bits) - 1)).astype(np.uint8)
    for given_as in (I8, I32, I64):
        np.testing.assert_array_equal(cast(x.astype(given_as.numpy), dtype).view(np.uint8), wanted)


def rounded(x: np.ndarray, dtype: DType, saturate: bool) -> np.ndarray:
    """What ONNX's table says: ml_dtypes rounds, and has infinities and NaN where it does not saturate."""
    assert dtype.numpy is not None
    if saturate and dtype.bits == 8:
        largest = float(ml_dtypes.finfo(dtype.numpy).max)
        x = np.clip(x, -largest, largest)
    return np.asarray(x).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@settings(max_examples=20)
@given(bits=arrays(np.uint32, st.integers(1, 70)))
def test_f32_to_the_nearest(dtype: DType, bits: np.ndarray) -> None:
    x = bits.view(np.float32)
    x = x if dtype.bits == 8 else x[~np.isnan(x)]  # the others have no NaN
    with np.errstate(all="ignore"):
        for saturate in (True, False):
            same(cast(x, dtype, saturate=int(saturate)), rounded(x, dtype, saturate))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_halfway_beside_it_and_beyond_the_largest(dtype: DType) -> None:
    values = np.unique(every(dtype).astype(np.float64))
    values = values[np.isfinite(values)]
    halfway = (values[1:] + values[:-1]) / 2
    for beside, wanted in ((-np.inf, values[:-1]), (np.inf, values[1:])):  # of which ml_dtypes rounds some twice
        found = cast(np.nextafter(halfway, beside), dtype)
        np.testing.assert_array_equal(found.astype(np.float64), wanted)
    largest = values.max()
    x = np.concatenate([values, halfway, [-0.0, np.inf, -np.inf, largest * 1.01, -largest * 2, 1e300]])
    with np.errstate(all="ignore"):
        for saturate in (True, False):
            for given_as in (F64, F32):
                same(cast(x.astype(given_as.numpy), dtype, saturate=int(saturate)),
                     rounded(x.astype(given_as.numpy), dtype, saturate))


def plain_scale(x: Fraction, mode: str, saturate: bool) -> int:
    """e8m0 of a number that is not negative, by comparison with powers of two."""
    if x < LEAST:
        below, bits = True, 0
    else:
        below, bits = False, max(i for i in range(256) if LEAST * 2**i <= x)
        power = LEAST * 2**bits
        if (mode == "up" and x > power) or (mode == "nearest" and 2 * x >= 3 * power):
            bits += 1
    if (below or bits > 254) and not saturate:
        return 255
    return min(bits, 254)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_scales(mode: str, saturate: int) -> None:
    """onnx.reference has NaN of infinity where saturated, and 2⁻¹²⁶ of all numbers below it: ONNX's table has not."""
    rng = np.random.default_rng(5)
    x = np.concatenate([
        rng.integers(0, 0x7F800000, 200).astype(np.uint32).view(np.float32),
        np.float32([0, 1, 1.5, 3, 0.75, 2**-127, 2**-126, 1.5 * 2**-127, 2**-128, 2**-140, 2**127, 1.5 * 2**127]),
    ])  # fmt: skip
    found = cast(x, E8M0, round_mode=mode, saturate=saturate).view(np.uint8)
    wanted = [plain_scale(Fraction(float(v)), mode, bool(saturate)) for v in x]
    np.testing.assert_array_equal(found, wanted)
    special = cast(np.float32([np.nan, np.inf]), E8M0, round_mode=mode, saturate=saturate).view(np.uint8)
    assert special.tolist() == [255, 254 if saturate else 255]


@pytest.mark.parametrize("dtype", [I64, U64, F64], ids=str)
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_scales_of_numbers_that_f32_does_not_hold(dtype: DType, mode: str) -> None:
    powers = [2**i for i in range(60)]
    x = np.array(sorted({near + d for p in powers for near in (p, 3 * p // 2) for d in (-1, 0, 1)}))
    x = x[x > 0].astype(dtype.numpy)
    wanted = [plain_scale(Fraction(int(v)), mode, True) for v in x]
    np.testing.assert_array_equal(cast(x, E8M0, round_mode=mode).view(np.uint8), wanted)


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidModel, match="round_mode"):
        cast(np.ones(3, np.float32), E8M0, round_mode="sideways")
