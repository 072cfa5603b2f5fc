"""Every opcode against numpy, on each target, at several widths."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.jit import Loaded, compile_assembly, compile_object, load_function
from parax.compiler.ir.types import BF16, F16, I8, I16, U8, U16, U32, U64, DType
from parax.compiler.kernel_ir.builder import BOOL, F32, F64, I32, I64, Builder
from parax.compiler.kernel_ir.loops import INDEX, KFunc, KType, PtrType
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError, UsageError

RNG = np.random.default_rng(7)
LANES = (1, 8, 16)
FLOATS = (np.float32, np.float64)
INTS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def floats(dtype: Any, n: int = 64) -> np.ndarray:
    x = (RNG.standard_normal(n) * 100).astype(dtype)
    x[:8] = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 2.5]
    RNG.shuffle(x)
    return x


def ints(dtype: Any, n: int = 64) -> np.ndarray:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, n, dtype, endpoint=True)
    x[:6] = [0, 1, info.min, info.max, 2, 7]
    RNG.shuffle(x)
    return x


def check(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def check_all(lanewise: Any, cases: tuple, inputs: list[np.ndarray], dtype: Any, lanes: int) -> None:
    """cases: (function, expected result) pairs; compiled into one kernel."""
    found = lanewise([f for f, _ in cases], inputs, dtype, lanes)
    for row, (_, expected) in zip(found, cases):
        check(row, expected)


# -- arithmetic -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic(lanewise: Any, dtype: Any, lanes: int) -> None:
    a, b = floats(dtype), floats(dtype)
    with np.errstate(all="ignore"):
        cases = (
            (lambda k, x, y: x + y, a + b), (lambda k, x, y: x - y, a - b), (lambda k, x, y: x * y, a * b),
            (lambda k, x, y: x / y, a / b), (lambda k, x, y: x % y, np.fmod(a, b)), (lambda k, x, y: -x, -a),
            (lambda k, x, y: k.min(x, y), np.minimum(a, b)), (lambda k, x, y: k.max(x, y), np.maximum(a, b)),
            (lambda k, x, y: k.max(x, 0.5), np.maximum(a, dtype(0.5))),
            (lambda k, x, y: k.clip(x, -1.0, 6.0), np.clip(a, dtype(-1), dtype(6))),
            (lambda k, x, y: 3.0 - x, dtype(3) - a),
        )  # fmt: skip
    check_all(lanewise, cases, [a, b], dtype, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_fma_rounds_once_where_the_cpu_can(lanewise: Any, target: Any, lanes: int) -> None:
    a, b, c = (RNG.standard_normal(64).astype(np.float32) for _ in range(3))
    exact = (a.astype(np.float64) * b + c).astype(np.float32)
    twice = a * b + c
    check(lanewise(lambda k, x, y, z: k.fma(x, y, z), [a, b, c], np.float32, lanes), exact if target.has_fma else twice)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic(lanewise: Any, dtype: Any, lanes: int) -> None:
    a, b = ints(dtype), ints(dtype)
    shift = (np.abs(b.astype(np.float64)) % np.iinfo(dtype).bits).astype(dtype)
    cases = (
        (lambda k, x, y, z: x + y, a + b), (lambda k, x, y, z: x - y, a - b), (lambda k, x, y, z: x * y, a * b),
        (lambda k, x, y, z: x & y, a & b), (lambda k, x, y, z: x | y, a | b), (lambda k, x, y, z: x ^ y, a ^ b),
        (lambda k, x, y, z: ~x, ~a), (lambda k, x, y, z: -x, -a),
        (lambda k, x, y, z: k.min(x, y), np.minimum(a, b)), (lambda k, x, y, z: k.max(x, y), np.maximum(a, b)),
        (lambda k, x, y, z: x << z, a << shift), (lambda k, x, y, z: x >> z, a >> shift),
        (lambda k, x, y, z: k.math("abs", x), np.abs(a)), (lambda k, x, y, z: k.math("floor", x), a),
    )  # fmt: skip
    check_all(lanewise, cases, [a, b, shift], dtype, lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_truncates_and_never_traps(lanewise: Any, dtype: Any, lanes: int) -> None:
    info = np.iinfo(dtype)
    a, b = ints(dtype), ints(dtype)
    a[:3], b[:3] = [5, info.min, info.max], [0, 0, 0]
    if info.min < 0:
        a[3], b[3] = info.min, -1
    quotient, rest = lanewise([lambda k, x, y: x / y, lambda k, x, y: x % y], [a, b], dtype, lanes)
    for x, y, q, r in zip(a.tolist(), b.tolist(), quotient.tolist(), rest.tolist()):
        if y == 0 or (x == info.min and y == -1):
            continue
        expected = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert (q, r) == (expected, x - expected * y)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", (np.int32, np.int64, np.uint8))
def test_integer_power(lanewise: Any, dtype: Any, lanes: int) -> None:
    a = RNG.integers(0 if dtype is np.uint8 else -9, 9, 64).astype(dtype)
    b = RNG.integers(0, 12, 64).astype(dtype)
    check(lanewise(lambda k, x, y: k.pow(x, y), [a, b], dtype, lanes), a**b)
    if dtype is not np.uint8:
        found = lanewise(lambda k, x, y: k.pow(x, -y), [a, b], dtype, lanes)
        for x, y, z in zip(a.tolist(), b.tolist(), found.tolist()):
            assert z == (int(float(x) ** -y) if x else int(y == 0))


def test_constant_divisors_and_index_arithmetic(call: Any) -> None:
    out = np.zeros(6, np.int64)

    def body(k: Builder, a: Any) -> None:
        n = k.load(a, 0)
        for i, v in enumerate((k.udiv(n, 7), k.urem(n, 7), n / -1, k.min(n, 3), n * 0 + 5, k.max(n, -3))):
            k.store(a, i, v)

    out[0] = 100
    call(body, out)
    assert out.tolist() == [14, 2, -100, 3, 5, 100]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", (*FLOATS, np.int8, np.uint8, np.int64, np.uint64))
def test_comparisons(lanewise: Any, dtype: Any, lanes: int) -> None:
    make = floats if dtype in FLOATS else ints
    a, b = make(dtype), make(dtype)
    b[::3] = a[::3]
    cases = (
        (lambda k, x, y: x < y, a < b), (lambda k, x, y: x <= y, a <= b), (lambda k, x, y: x > y, a > b),
        (lambda k, x, y: x >= y, a >= b), (lambda k, x, y: x == y, a == b), (lambda k, x, y: x != y, a != b),
    )  # fmt: skip
    check_all(lanewise, cases, [a, b], np.bool_, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_tests_of_floats(lanewise: Any, lanes: int) -> None:
    a = floats(np.float32)
    check(lanewise(lambda k, x: k.is_nan(x), [a], np.bool_, lanes), np.isnan(a))
    check(lanewise(lambda k, x: k.is_inf(x), [a], np.bool_, lanes), np.isinf(a))


@pytest.mark.parametrize("lanes", LANES)
def test_bool_is_a_byte_in_memory(lanewise: Any, lanes: int) -> None:
    a, b = RNG.integers(0, 2, (2, 64)).astype(bool)
    cases = (
        (lambda k, x, y: x & y, a & b), (lambda k, x, y: x | y, a | b), (lambda k, x, y: x ^ y, a ^ b),
        (lambda k, x, y: ~x, ~a), (lambda k, x, y: x == y, a == b), (lambda k, x, y: x < y, a < b),
        (lambda k, x, y: k.max(x, y), a | b), (lambda k, x, y: k.min(x, y), a & b),
    )  # fmt: skip
    check_all(lanewise, cases, [a, b], np.bool_, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_select(lanewise: Any, lanes: int) -> None:
    a, b = floats(np.float32), floats(np.float32)
    first = np.repeat(a[::lanes], lanes)
    cases = (
        (lambda k, x, y: k.select(x < y, x, y), np.where(a < b, a, b)),
        (lambda k, x, y: k.select(x < y, x, 1.0), np.where(a < b, a, np.float32(1))),
        (lambda k, x, y: k.select(k.extract(x, 0) > 0.0, x, y), np.where(first > 0, a, b)),
        (lambda k, x, y: k.select(k.const(True, BOOL), x, y), a),
    )
    check_all(lanewise, cases, [a, b], np.float32, lanes)


# -- conversions ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", (I8, U8, I16, U16, I32, U32, I64, U64), ids=str)
def test_float_to_integer_saturates(lanewise: Any, source: Any, to: DType, lanes: int) -> None:
    info = np.iinfo(to.numpy)
    x = np.concatenate([floats(source), [float(info.max), float(info.min), 1e30, -1e30, 2.0**31, 2.0**32, 2.0**63, 1.9],
                        RNG.standard_normal(56) * float(info.max)]).astype(source)  # fmt: skip
    expected = [0 if np.isnan(v) else int(min(max(v, info.min), info.max)) if np.isinf(v) else
                min(max(int(v), info.min), info.max) for v in x.tolist()]
    check(lanewise(lambda k, v: k.cast(v, to), [x], to.numpy, lanes), np.array(expected, to.numpy))


@pytest.mark.sample(5)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("source", INTS)
def test_integer_to_anything(lanewise: Any, source: Any, lanes: int) -> None:
    a = ints(source)
    for to in (I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, BOOL):
        check(lanewise(lambda k, v, to=to: k.cast(v, to), [a], to.numpy, lanes), a.astype(to.numpy))


@pytest.mark.parametrize("lanes", LANES)
def test_bool_converts_to_one_and_zero(lanewise: Any, lanes: int) -> None:
    a = RNG.integers(0, 2, 64).astype(bool)
    for to in (I8, U8, I64, F32, F64):
        check(lanewise(lambda k, v, to=to: k.cast(v, to), [a], to.numpy, lanes), a.astype(to.numpy))
    x = floats(np.float32)
    check(lanewise(lambda k, v: k.cast(v, BOOL), [x], np.bool_, lanes), x.astype(bool))


def every_half(name: str) -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16).view(np.float16 if name == "f16" else ml_dtypes.bfloat16)


def same_or_nan(found: np.ndarray, expected: np.ndarray) -> None:
    """Bit by bit, so that signs of zero count; any NaN is as good as another."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    kind = f"u{expected.itemsize}"
    np.testing.assert_array_equal(found.view(kind)[~nan], expected.view(kind)[~nan])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ("f16", "bf16"))
def test_half_widens_exactly(lanewise: Any, name: str, lanes: int) -> None:
    a = every_half(name)
    for to in (F32, F64):
        with np.errstate(invalid="ignore"):
            expected = a.astype(to.numpy)
        same_or_nan(lanewise(lambda k, v, to=to: k.cast(v, to), [a], to.numpy, lanes), expected)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("to", (F16, BF16), ids=str)
@pytest.mark.parametrize("source", FLOATS)
def test_half_rounds_to_nearest_even(lanewise: Any, source: Any, to: DType, lanes: int) -> None:
    half = every_half(to.name)
    with np.errstate(all="ignore"):
        exact = half.astype(source)
        middle = exact + (np.roll(exact, -1) - exact) / 2
        near = np.concatenate([exact, middle, np.nextafter(middle, source(np.inf)), np.nextafter(middle, source(0))])
        expected = near.astype(np.float16) if to == F16 else bf16_nearest(near)
    same_or_nan(lanewise(lambda k, v: k.cast(v, to), [near], to.numpy, lanes), expected)


def bf16_nearest(x: np.ndarray) -> np.ndarray:
    """Rounded once, also from f64 (ml_dtypes goes through f32)."""
    if x.dtype == np.float32:
        return x.astype(ml_dtypes.bfloat16)
    single = x.astype(np.float32)
    back, bits = single.astype(np.float64), single.view(np.uint32)
    bits = np.where(np.abs(back) > np.abs(x), bits - 1, bits)
    bits = np.where((back != x) & ~np.isnan(x), bits | 1, bits).astype(np.uint32)
    return bits.view(np.float32).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("lanes", LANES)
def test_half_to_and_from_integers(lanewise: Any, lanes: int) -> None:
    a = RNG.integers(-2000, 2000, 64).astype(np.int32)
    half = lanewise(lambda k, v: k.cast(v, F16), [a], np.float16, lanes)
    check(half, a.astype(np.float16))
    check(lanewise(lambda k, v: k.cast(v, I32), [half], np.int32, lanes), a)


@pytest.mark.parametrize("lanes", LANES)
def test_bitcast(lanewise: Any, lanes: int) -> None:
    a = floats(np.float32)
    check(lanewise(lambda k, v: k.bitcast(v, I32), [a], np.int32, lanes), a.view(np.int32))


# -- lanes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int32, np.int64, np.uint8))
def test_reductions(call: Any, dtype: Any, lanes: int) -> None:
    a = RNG.integers(1, 3, lanes).astype(dtype)
    for op, f in (("add", np.sum), ("mul", np.prod), ("min", np.min), ("max", np.max)):
        out = np.zeros(1, dtype)
        call(lambda k, p, o, op=op: k.store(o, 0, k.reduce(op, k.load(p, 0, lanes))), a, out)
        assert out[0] == f(a).astype(dtype)


def test_reductions_of_bits_and_nan(call: Any) -> None:
    a = np.array([False, True, False, True])
    for op, expected in (("and", False), ("or", True), ("max", True), ("min", False), ("xor", False)):
        out = np.zeros(1, bool)
        call(lambda k, p, o, op=op: k.store(o, 0, k.reduce(op, k.load(p, 0, 4))), a, out)
        assert out[0] == expected
    x, y = np.array([1, np.nan, 2, 3], np.float32), np.zeros(1, np.float32)
    call(lambda k, p, o: k.store(o, 0, k.reduce("max", k.load(p, 0, 4))), x, y)
    assert np.isnan(y[0])


def test_moving_lanes_about(call: Any) -> None:
    a, b, out = np.arange(8, dtype=np.float32), np.arange(8, 16, dtype=np.float32), np.zeros(32, np.float32)

    def body(k: Builder, p: Any, q: Any, o: Any) -> None:
        x, y = k.load(p, 0, 8), k.load(q, 0, 8)
        k.store(o, 0, k.shuffle(x, y, [0, 8, 1, 9, 2, 10, 3, 15]))
        k.store(o, 8, k.insert(x, k.extract(y, 3), 5))
        k.store(o, 16, k.splat(k.extract(x, 7), 8))
        k.store(o, 24, k.cast(k.ramp(8, I32), F32))
        k.store(o, 31, k.shuffle(x, y, [12]))

    call(body, a, b, out)
    expected = [0, 8, 1, 9, 2, 10, 3, 15, 0, 1, 2, 3, 4, 11, 6, 7, *[7] * 8, *range(7), 12]
    assert out.tolist() == expected


# -- memory -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16))
def test_masked_tail(call: Any, dtype: Any, lanes: int) -> None:
    counts = np.array([0, 1, 5, 16, 100, -3])
    a = RNG.integers(0, 2, lanes).astype(dtype)
    out, seen = np.ones((2, counts.size, lanes), dtype)

    def body(k: Builder, p: Any, n: Any, o: Any, s: Any) -> None:
        def row(i: Any, _: list) -> None:
            mask = k.tail_mask(k.load(n, i), lanes)
            x = k.load(p, 0, lanes, mask=mask)
            k.store(o, i * lanes, x, mask=mask)
            k.store(s, i * lanes, x)

        k.for_(0, counts.size, 1, [], row)

    call(body, a, counts, out, seen)
    on = np.arange(lanes) < counts[:, None]
    check(out, np.where(on, a, dtype(1)).astype(dtype))
    check(seen, np.where(on, a, dtype(0)).astype(dtype))


@pytest.mark.parametrize("lanes", LANES)
def test_masked_off_memory_is_not_touched(target: Any, lanes: int) -> None:
    """The address 0 may be given when no lane is on."""
    k = Builder(f"nothing_{lanes}", [("p", PtrType(F32)), ("n", INDEX)], returns=KType(F32))
    mask = k.tail_mask(k["n"], lanes)
    x = k.load(k["p"], 0, lanes, mask=mask)
    k.store(k["p"], 0, x, mask=mask)
    k.ret(k.reduce("add", x))
    assert load_function(k.func, target)(0, 0) == 0.0


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", (np.float32, np.int64, np.uint8, np.bool_))
def test_gather_and_scatter(call: Any, dtype: Any, lanes: int) -> None:
    table = RNG.integers(0, 2, 100).astype(dtype)
    index = RNG.permutation(100)[:lanes].astype(np.int64)
    out, spread, some = np.zeros(lanes, dtype), np.zeros(100, dtype), np.zeros(100, dtype)

    def body(k: Builder, t: Any, i: Any, o: Any, s: Any, m: Any) -> None:
        where = k.load(i, 0, lanes)
        x = k.gather(t, where)
        k.store(o, 0, x)
        k.scatter(s, where, x)
        mask = k.tail_mask(k.index(lanes - 1), lanes)
        k.scatter(m, where, k.gather(t, where, mask=mask), mask=mask)

    call(body, table, index, out, spread, some)
    check(out, table[index])
    expected = np.zeros(100, dtype)
    expected[index] = table[index]
    check(spread, expected)
    expected[index[-1]] = 0
    check(some, expected)


def test_pointers_stack_and_prefetch(call: Any) -> None:
    a, out = np.arange(32, dtype=np.float32), np.zeros(16, np.float32)

    def body(k: Builder, p: Any, o: Any) -> None:
        q = k.gep(p, 8)
        k.prefetch(q, 4)
        scratch = k.alloca(F32, 16)
        k.store(scratch, 0, k.load(q, 2, 16), align=64)
        k.store(o, 0, k.load(scratch, 0, 16, align=64))

    call(body, a, out)
    check(out, a[10:26])


# -- control ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", (0, 1, 2, 7, 8, 30))
@pytest.mark.parametrize("unroll", (1, 4))
def test_nested_loops_carry_values(call: Any, n: int, unroll: int) -> None:
    out = np.zeros(2, np.int64)

    def body(k: Builder, size: Any, o: Any) -> None:
        bound = k.load(size)

        def outer(i: Any, carried: list) -> list:
            total, count = carried
            total = k.for_(0, i, 1, [total], lambda j, c: [c[0] + i * j], unroll=unroll)[0]
            return [total, count + 1]

        total, count = k.for_(0, bound, 3, [k.index(0), k.index(10)], outer, unroll=unroll)
        k.store(o, 0, total)
        k.store(o, 1, count)

    call(body, np.array([n]), out)
    assert out.tolist() == [sum(i * j for i in range(0, n, 3) for j in range(i)), 10 + len(range(0, n, 3))]


@pytest.mark.parametrize("x", (-2.0, 0.0, 3.0))
def test_conditionals_yield_values(call: Any, x: float) -> None:
    out = np.zeros(2, np.float32)

    def body(k: Builder, a: Any, o: Any) -> None:
        v = k.load(a)

        def negative() -> list:
            return k.if_(v < -1.0, lambda: [v * 10.0, v], lambda: [v, v])

        y, z = k.if_(v < 0.0, negative, lambda: [v + 1.0, k.const(5.0, v)])
        k.store(o, 0, y)
        k.if_(z > 4.0, lambda: k.store(o, 1, z))

    call(body, np.array([x], np.float32), out)
    assert out.tolist() == ([-20.0, 0.0] if x < -1 else [x + 1, 5.0])


def _square(lanes: int) -> KFunc:
    k = Builder(f"square_{lanes}", [("x", KType(F32, lanes))], returns=KType(F32, lanes), inline="never")
    k.ret(k["x"] * k["x"])
    return k.func


def test_calls_with_and_without_results(call: Any) -> None:
    store = Builder("store_seven", [("p", PtrType(I64)), ("i", INDEX)])
    store.store(store["p"], store["i"], store.index(7))
    a, out, places = np.arange(8, dtype=np.float32), np.zeros(8, np.float32), np.zeros(3, np.int64)

    def body(k: Builder, p: Any, o: Any, q: Any) -> None:
        f = _square(8)
        k.store(o, 0, k.call(f, [k.call(f, [k.load(p, 0, 8)])]))
        k.call(store.func, [q, 1])

    call(body, a, out, places)
    check(out, a**4)
    assert places.tolist() == [0, 7, 0]


def test_fail_reports_its_site(target: Any) -> None:
    k = Builder("failing", [("sync", PtrType(U8)), ("n", INDEX)])
    k.if_(k["n"] > 3, lambda: k.fail(42))
    f, sync = load_function(k.func, target), np.zeros(128, np.uint8)
    f(sync.ctypes.data, 3)
    assert not sync.any()
    f(sync.ctypes.data, 4)
    assert sync.view(np.int32)[16] == 42


# -- modules ----------------------------------------------------------------------------------------------------------
def _axpy(lanes: int) -> KFunc:
    k = Builder("axpy", [("x", PtrType(F32)), ("y", PtrType(F32)), ("n", INDEX)])

    def step(i: Any, _: list) -> None:
        k.store(k["y"], i, k.load(k["x"], i, lanes) * 2.0 + k.load(k["y"], i, lanes))

    k.for_(0, k["n"], lanes, [], step)
    return k.func


def test_only_exports_are_visible(target: Any) -> None:
    emitter = ModuleEmitter(target)
    f = _axpy(4)
    emitter.export(f, "public")
    emitter.add([f])
    text = emitter.text()
    assert text.count("define internal") == 1
    code = compile_object(text, target)
    x = np.ones(8, np.float32)
    y = np.ones(8, np.float32)
    function = Loaded(code, ["public"]).function("public", None, *[ctypes.c_void_p] * 2, ctypes.c_int64)
    function(x.ctypes.data, y.ctypes.data, 8)
    assert (y == 3).all()


@pytest.mark.parametrize("name, register, fused", (("x86-64-v4", "zmm", True), ("x86-64-v3", "ymm", True),
                                                  ("x86-64-v2", "xmm", False)))  # fmt: skip
def test_code_uses_the_full_registers(name: str, register: str, fused: bool) -> None:
    target = TARGETS[name]
    emitter = ModuleEmitter(target)
    emitter.export(_axpy(target.f32_lanes), "f")
    assembly = compile_assembly(emitter.text(), target)
    assert register in assembly
    assert ("vfmadd" in assembly) == fused


def test_exact_functions_are_not_contracted() -> None:
    f = _axpy(8)
    f.exact = True
    emitter = ModuleEmitter(TARGETS["x86-64-v3"])
    emitter.export(f, "f")
    assert "vfmadd" not in compile_assembly(emitter.text(), emitter.target)


def test_compilation_is_deterministic(target: Any) -> None:
    def code() -> bytes:
        emitter = ModuleEmitter(target)
        emitter.export(_axpy(8), "f")
        return compile_object(emitter.text(), target)

    assert code() == code()


def test_bad_modules_and_options_are_refused(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InternalError, match="LLVM rejects"):
        compile_object("define void @f() { nonsense }", target)
    with pytest.raises(UsageError, match="no such level"):
        compile_object("", target, opt_level=4)
    k = Builder("unknown", [])
    k.op("nonsense", ())
    monkeypatch.setenv("PARAX_VERIFY", "0")
    with pytest.raises(InternalError, match="no LLVM for opcode"):
        ModuleEmitter(target).add([k.func])
