"""The patterns of instructions that LLVM must get right, for a target: by what the kernel IR can say, and at random.

The vector lengths are those that kernels use: up to a register of the narrowest type in it, and a register of f32 lanes
whatever the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from backend.llvm_patterns import Pattern
from parax.compiler.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from parax.compiler.targets.target import Target

INTEGERS = (I8, U8, I16, U16, I32, U32, I64, U64)
COMPUTING = (F32, F64, *INTEGERS)
HALVES = (F16, BF16)
TYPES = (*COMPUTING, *HALVES, BOOL)
LANES = (1, 2, 4, 8, 16, 32, 64)
N_RANDOM = 400


def lane_counts(target: Target, *types: DType) -> list[int]:
    """Of a computation on these types: the lengths of which the narrowest fills at most a register."""
    most = max(target.vector_bits // (8 * min(t.nbytes for t in types)), target.f32_lanes)
    return [n for n in LANES if n <= most]


def convert(e: Any, x: Any, to: DType) -> Any:
    """A cast, of 16-bit floats by way of f32 where the kernel IR wants that."""
    if x.dtype == to:
        return x
    return e.cast(e.cast(x, F32) if x.dtype in HALVES and to == BOOL else x, to)


# -- conversions ------------------------------------------------------------------------------------------------------
def casts(target: Target) -> Iterator[Pattern]:
    """Between any two types, at every length."""
    for source, to in product(TYPES, TYPES):
        for n in lane_counts(target, source, to):
            yield Pattern(f"{n} x {source} to {to}", n, (source,), to, partial(_cast, to))


def _cast(to: DType, e: Any, x: Any) -> Any:
    return convert(e, x, to)


def indirect_casts(target: Target) -> Iterator[Pattern]:
    """Between any two types, gathered and scattered, or stored among what was there."""
    for turn, (source, to) in enumerate(product(TYPES, TYPES)):
        counts = lane_counts(target, source, to)
        n = counts[1 + turn % (len(counts) - 1)]
        yield Pattern(f"gathered {n} x {source} to {to}", n, (source,), to, partial(_cast, to), "indexed")
        if to != BOOL:  # among garbage, which is no bool
            yield Pattern(f"blended {n} x {source} to {to}", n, (source,), to, partial(_cast, to), "blend")


def narrowings(target: Target) -> Iterator[Pattern]:
    """Arithmetic in a wide type between narrow loads and narrow stores."""
    narrow = (I8, U8, I16, U16, BF16, F16, I32, U32, BOOL)
    for source, to in product(narrow, narrow):
        of_integers = (_clipped, _shifted) if source.is_int and to.is_int else ()
        for compute in (_scaled, _compared, *of_integers):
            for n in lane_counts(target, source, to)[-3:]:
                name = f"{n} x {source} {compute.__name__.strip('_')} to {to}"
                yield Pattern(name, n, (source,), to, partial(compute, to))


def _scaled(to: DType, e: Any, x: Any) -> Any:
    """What quantising does."""
    y = e.binary("add", e.binary("mul", convert(e, x, F32), 0.37), 1.5)
    y = e.math("round_even", y)
    return convert(e, e.min(e.max(y, -100.0), 300.0), to)


def _clipped(to: DType, e: Any, x: Any) -> Any:
    """A saturating truncation where the result is narrower: x86 has instructions for it."""
    low, high = (np.iinfo(to.numpy).min, np.iinfo(to.numpy).max)
    least, most = (np.iinfo(x.dtype.numpy).min, np.iinfo(x.dtype.numpy).max)
    return convert(e, e.min(e.max(x, max(int(low), int(least))), min(int(high), int(most))), to)


def _shifted(to: DType, e: Any, x: Any) -> Any:
    """The upper half of a product of i64, which is truncated at once."""
    y = e.cast(x, I64) if x.dtype != I64 else x
    y = e.binary("shr", e.binary("mul", y, y), 3)
    return convert(e, y, to)


def _compared(to: DType, e: Any, x: Any) -> Any:
    y = convert(e, x, F32)
    return convert(e, e.compare("gt", y, 0.5), to)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def arithmetic(target: Target) -> Iterator[Pattern]:
    """Two operands of one type, and the result as it is or in a narrower one."""
    for turn, t in enumerate(COMPUTING):
        opcodes = ["add", "sub", "mul", "min", "max", "div"]
        opcodes += ["rem", "udiv", "urem", "and", "or", "xor"] if t.is_int else []
        for opcode in opcodes:
            for n in lane_counts(target, t)[-2:]:
                to = (t, I8, U16, t, BF16, I16)[turn % 6]
                turn += 1
                yield Pattern(f"{n} x {t} {opcode} as {to}", n, (t, t), to, partial(_binary, opcode, to))
        for n in lane_counts(target, t):
            for predicate in ("lt", "ge", "ne"):
                yield Pattern(f"{n} x {t} {predicate}", n, (t, t), BOOL, partial(_compare, predicate))
            yield Pattern(f"{n} x {t} selected", n, (t, t), t, _smaller)
            if t.is_int:
                yield Pattern(f"{n} x {t} shifts", n, (t, t), t, _shifts)


def _binary(opcode: str, to: DType, e: Any, x: Any, y: Any) -> Any:
    return convert(e, e.binary(opcode, x, y), to)


def _compare(predicate: str, e: Any, x: Any, y: Any) -> Any:
    return e.compare(predicate, x, y)


def _smaller(e: Any, x: Any, y: Any) -> Any:
    return e.select(e.compare("lt", x, y), x, y)


def _shifts(e: Any, x: Any, y: Any) -> Any:
    return e.binary("xor", e.binary("shl", x, 3), e.binary("shr", y, 5))


# -- lanes ------------------------------------------------------------------------------------------------------------
def moves(target: Target) -> Iterator[Pattern]:
    """Lanes from elsewhere: shuffles, one lane in and out, sums over lanes, the same bits as another type."""
    for t in TYPES:
        for n in lane_counts(target, t):
            yield Pattern(f"{n} x {t} reversed", n, (t,), t, _reversed)
            yield Pattern(f"{n} x {t} interleaved", n, (t, t), t, _interleaved)
            yield Pattern(f"{n} x {t} rotated", n, (t, t), t, _rotated)
            for opcode in _reductions(t):
                yield Pattern(f"{n} x {t} reduced by {opcode}", n, (t,), t, partial(_reduced, opcode))
    for t, same in ((F16, U16), (U16, F16), (BF16, I16), (F32, I32), (U32, F32), (F64, U64), (I64, F64)):
        for n in lane_counts(target, t):
            yield Pattern(f"{n} x {t} as bits of {same}", n, (t,), same, partial(_bits, same))
    for wide, same in ((U32, F16), (I32, BF16), (I64, F32), (U64, F16)):
        for n in lane_counts(target, same):
            yield Pattern(f"{n} x {wide} truncated to bits of {same}", n, (wide,), same, partial(_low_bits, same))


def _reductions(t: DType) -> tuple[str, ...]:
    if t == BOOL:
        return ("and", "or")
    return ("add", "min", "max", "xor") if t.is_int else ("min", "max") if t in (F32, F64) else ()


def _reversed(e: Any, x: Any) -> Any:
    return e.shuffle(x, x, range(x.lanes - 1, -1, -1)) if x.lanes > 1 else x


def _interleaved(e: Any, x: Any, y: Any) -> Any:
    n = x.lanes
    return e.shuffle(x, y, [i // 2 + n * (i % 2) for i in range(n)]) if n > 1 else y


def _rotated(e: Any, x: Any, y: Any) -> Any:
    return e.insert(y, e.extract(x, x.lanes - 1), 0)


def _reduced(opcode: str, e: Any, x: Any) -> Any:
    return e.splat(e.reduce(opcode, x), x.lanes)


def _bits(to: DType, e: Any, x: Any) -> Any:
    return e.bitcast(x, to)


def _low_bits(to: DType, e: Any, x: Any) -> Any:
    same = {F16: U16, BF16: U16, F32: U32}[to]
    return e.bitcast(e.cast(x, same), to)


# -- at random --------------------------------------------------------------------------------------------------------
def at_random(target: Target) -> Iterator[Pattern]:
    """Short programs: conversions, arithmetic, selections and shuffles of any types in a row."""
    for seed in range(N_RANDOM):
        rng = np.random.default_rng(seed)
        sources = tuple(TYPES[i] for i in rng.integers(len(TYPES), size=2))
        result = TYPES[int(rng.integers(len(TYPES)))]
        n = int(rng.choice(lane_counts(target, *sources, result)))
        access = ("block", "block", "indexed", "block" if result == BOOL else "blend")[int(rng.integers(4))]
        yield Pattern(f"random {seed}: {n} x {sources[0]}, {sources[1]} to {result}", n, sources, result,
                      partial(_random, seed, result), access)  # fmt: skip


def _random(seed: int, result: DType, e: Any, x: Any, y: Any) -> Any:
    """A program of a few steps, each on what was computed last and something before it; decided by the seed alone."""
    rng = np.random.default_rng((1, seed))
    values = [x, y]
    for _ in range(int(rng.integers(1, 7))):
        t = COMPUTING[int(rng.integers(len(COMPUTING)))]
        a, b = convert(e, values[-1], t), convert(e, values[int(rng.integers(len(values)))], t)
        steps = _STEPS + (_INTEGER_STEPS if t.is_int else ())
        values.append(steps[int(rng.integers(len(steps)))](e, a, b))
    return convert(e, values[-1], result)


def _clip_step(e: Any, a: Any, b: Any) -> Any:
    return e.min(e.max(a, 3), 100)


_STEPS: tuple[Callable[..., Any], ...] = (
    *(partial(lambda op, e, a, b: e.binary(op, a, b), op) for op in ("add", "sub", "mul", "min", "max")),
    _smaller, _interleaved, _clip_step, partial(_compare, "le"), lambda e, a, b: a, lambda e, a, b: e.math("abs", a),
)  # fmt: skip
_INTEGER_STEPS: tuple[Callable[..., Any], ...] = (
    *(partial(lambda op, e, a, b: e.binary(op, a, b), op) for op in ("and", "or", "xor", "div", "urem")), _shifts,
)  # fmt: skip


def pair_products(target: Target) -> Iterator[Pattern]:
    """Sums of products of bf16, where the target has instructions for them."""
    for n in (4, 8, 16) if "avx512bf16" in target.features else ():
        yield Pattern(f"{n} x pairs of bf16", n, (U32, U32, F32), F32, _pair_product)
        yield Pattern(f"blended {n} x pairs of bf16", n, (U32, U32, F32), F32, _pair_product, "blend")


def whole_products(target: Target) -> Iterator[Pattern]:
    """Sums of products of i16, on every target."""
    for n in (2, 4, 8, 16):
        yield Pattern(f"{n} x pairs of i16", n, (I16, I16, I32), I32, _whole_product)


def byte_products(target: Target) -> Iterator[Pattern]:
    """Sums of products of u8 by i8, on every target; whole weights, and such as leave no sum of two out of i16."""
    for n in (2, 4, 8, 16):
        yield Pattern(f"{n} x quads of bytes", n, (U8, I8, I32), I32, _byte_product)
        yield Pattern(f"{n} x quads of light bytes", n, (U8, I8, I32), I32, _light_product)


def roundings(target: Target) -> Iterator[Pattern]:
    """f32 to nearest integers of 8 and 16 bits, with a zero point."""
    for n in (1, 2, 4, 8, 16):
        for to, zero in ((U8, 0), (U8, 131), (I8, 0), (I8, -7), (U16, 40000), (I16, -300)):
            yield Pattern(f"{n} x f32 to nearest {to} by {zero}", n, (F32,), to,
                          lambda e, x, to=to, zero=zero: e.round_to(x, to, zero))  # fmt: skip
            yield Pattern(f"{n} x f32 in steps of {to} by {zero}", n, (F32,), F32,
                          lambda e, x, to=to, zero=zero: _steps(e, x, to, zero))  # fmt: skip


def _steps(e: Any, x: Any, to: DType, zero: int) -> Any:
    """What is quantised and dequantised again, in steps."""
    return e.binary("sub", e.cast(e.round_to(x, to, zero), F32), zero)


def _byte_product(e: Any, a: Any, b: Any, sums: Any, **promised: bool) -> Any:
    """Of each lane and the next three."""
    quads = [e.shuffle(v, v, [(i + j) % v.lanes for i in range(v.lanes) for j in range(4)]) for v in (a, b)]
    return e.op("dot_u8i8", (*quads, sums), getattr(sums, "type", None), **promised)


def _light_product(e: Any, a: Any, b: Any, sums: Any) -> Any:
    return _byte_product(e, a, e.max(e.min(b, 64), -64), sums, pairs_in_i16=True)


def _whole_product(e: Any, a: Any, b: Any, sums: Any) -> Any:
    """Of each lane and the next one, times two such."""
    pairs = [e.shuffle(v, v, [lane for i in range(v.lanes) for lane in (i, (i + 1) % v.lanes)]) for v in (a, b)]
    return e.op("dot_i16", (*pairs, sums), getattr(sums, "type", None))


def _pair_product(e: Any, a: Any, b: Any, sums: Any) -> Any:
    return e.op("dot_bf16", (a, b, sums), getattr(sums, "type", None))


FAMILIES: tuple[Callable[[Target], Iterator[Pattern]], ...] = (
    casts, indirect_casts, narrowings, arithmetic, moves, at_random, pair_products,
    whole_products, byte_products, roundings,
)  # fmt: skip
