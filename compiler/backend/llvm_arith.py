"""LLVM instructions for arithmetic, comparisons, conversions and functions of lanes.

Owns the semantics promised by `kernel_ir.builder` that LLVM does not give by itself: NaN-passing min and max, division
that never traps, saturating conversions, half precision on CPUs without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InternalError
from ..ir.types import BOOL, F32, F64, I32, DType
from ..kernel_ir.loops import KFunc, KOp, KType
from .exact_quotients import rounding_parts
from .llvm_dots import rounded_to_bf16
from .llvm_fence import fenced
from .llvm_types import constant, llvm_type, mask_type, scalar_type, suffix
from .narrow_float import narrow, to_odd_f32, widen_bf16, widen_f16
from .vector_math import integer_power, math_function, scale_by_power_of_two

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

_INTRINSIC = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round_even": "rint"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl",
        "udiv": "udiv", "urem": "urem"}
_SIGNED = {"div": "sdiv", "rem": "srem", "shr": "ashr"}
_UNSIGNED = {"div": "udiv", "rem": "urem", "shr": "lshr"}
_FCMP = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_BITWISE = ("and", "or", "xor")
_HALVES = ("f16", "bf16")
# vscalef by register type: the mask and rounding operands that stand for "all lanes, current rounding"
_SCALEF = {KType(F32, 16): ("ps.512", "i16 -1", True), KType(F32, 8): ("ps.256", "i8 -1", False),
           KType(F32, 4): ("ps.128", "i8 -1", False), KType(F64, 8): ("pd.512", "i8 -1", True),
           KType(F64, 4): ("pd.256", "i8 -1", False), KType(F64, 2): ("pd.128", "i8 -1", False)}

_SATURATED_LANES = 16  # of i32 that one instruction of AVX-512 saturates as it narrows them
_WHOLE = 1.5 * 2.0**23  # numbers of f32 near to it have no fraction
_PACKED_LANES = 8  # of i32 that two instructions of x86 pack to bytes
# By whether the result is signed: words of i32, bytes of words
_PACKS = {True: ("sse2.packssdw.128", "sse2.packsswb.128"), False: ("sse41.packusdw", "sse2.packuswb.128")}


def is_signed(dtype: DType) -> bool:
    """Whether comparisons and conversions see a sign bit."""
    return dtype.is_signed and dtype != BOOL


def arith(e: FunctionEmitter, o: KOp) -> str:
    """Two operands of one type."""
    a, b = o.operands
    if o.opcode == "pow":
        return _power(e, o)
    if a.dtype.is_float:
        if o.opcode in ("min", "max"):
            return _float_extreme(e, o.opcode, a, b)
        is_alone = e.func.exact or o.opcode not in ("add", "sub", "mul") or "rounds" in o.attrs
        flags = "" if is_alone else " contract"
        if o.opcode == "div" and b.const is not None and a.dtype == F32:
            e.quotients[id(o.results[0])] = a, b.const
        if o.opcode == "sub" and b.const is not None and id(a) in e.steps and e.steps[id(a)][1] == b.const:
            return _whole(e, e.steps[id(a)][0], a.type)
        return e.assign(f"{_FLOAT[o.opcode]}{flags} {llvm_type(a.type)} {e.ref(a)}, {e.ref(b)}")
    signed = is_signed(a.dtype)
    if o.opcode in ("min", "max"):
        return e.intrinsic(f"llvm.{'s' if signed else 'u'}{o.opcode}.{suffix(a.type)}", a.type, a, b)
    right = e.ref(b)
    if o.opcode in ("div", "rem", "udiv", "urem"):
        right = _safe_divisor(e, a, b, signed and o.opcode in ("div", "rem"))
    name = _INT.get(o.opcode) or (_SIGNED if signed else _UNSIGNED)[o.opcode]
    result = e.assign(f"{name} {llvm_type(a.type)} {e.ref(a)}, {right}")
    return _unmerged(e, result, a.type) if o.opcode in _BITWISE and a.lanes > 1 and a.dtype != BOOL else result


def _unmerged(e: FunctionEmitter, bits: str, t: KType) -> str:
    """The lanes of a bitwise operation behind a fence, so that LLVM merges no selection into it.

    Of `select(c, x & m | y, x)` LLVM makes one vpternlog under a mask; where the order of its operands has to turn, one
    of them in memory, it gives it the truth table of another order: Sinh of bf16 was 0. In every LLVM until 22.1.
    https://github.com/llvm/llvm-project/issues/157929, mended by pull request 209782.
    """
    return fenced(e, bits, llvm_type(t), t.lanes * t.dtype.nbytes) if e.module.has("avx512f") else bits


def _power(e: FunctionEmitter, o: KOp) -> str:
    t = o.operands[0].type
    func = math_function("pow", t) if t.dtype.is_float else integer_power(t)
    return call_function(e, func, *map(e.ref, o.operands)) if func is not None else _libm(e, o, "pow")


def _float_extreme(e: FunctionEmitter, opcode: str, a: Any, b: Any) -> str:
    """min/max that pass NaN on, as NumPy's do. `a > b ? a : b` is one x86 instruction and returns b when either is NaN,
    so a constant that is a number goes first; any other first operand needs a second look."""
    if b.const is not None:
        a, b = b, a
    t, i1 = llvm_type(a.type), mask_type(a.type)
    wins = e.assign(f"fcmp {'ogt' if opcode == 'max' else 'olt'} {t} {e.ref(a)}, {e.ref(b)}")
    result = e.assign(f"select {i1} {wins}, {t} {e.ref(a)}, {t} {e.ref(b)}")
    if a.const is not None and not math.isnan(a.const):
        return result
    nan = e.assign(f"fcmp uno {t} {e.ref(a)}, {e.ref(a)}")
    return e.assign(f"select {i1} {nan}, {t} {e.ref(a)}, {t} {result}")


def _safe_divisor(e: FunctionEmitter, a: Any, b: Any, signed: bool) -> str:
    """x / 0 and INT_MIN / -1 trap on x86: divide by 1 there instead (ONNX leaves the result open)."""
    if b.const not in (None, 0, -1):
        return e.ref(b)
    t, i1 = llvm_type(a.type), mask_type(a.type)
    bad = e.assign(f"icmp eq {t} {e.ref(b)}, {constant(0, a.type)}")
    if signed:
        minus = e.assign(f"icmp eq {t} {e.ref(b)}, {constant(-1, a.type)}")
        least = e.assign(f"icmp eq {t} {e.ref(a)}, {constant(-(2 ** (a.dtype.bits - 1)), a.type)}")
        both = e.assign(f"and {i1} {minus}, {least}")
        bad = e.assign(f"or {i1} {bad}, {both}")
    return e.assign(f"select {i1} {bad}, {t} {constant(1, a.type)}, {t} {e.ref(b)}")


def compare(e: FunctionEmitter, o: KOp) -> str:
    """A mask."""
    a, b = o.operands
    pred, t = o.attrs["pred"], llvm_type(a.type)
    if a.dtype.is_float:
        return e.assign(f"fcmp {_FCMP[pred]} {t} {e.ref(a)}, {e.ref(b)}")
    word = pred if pred in ("eq", "ne") else ("s" if is_signed(a.dtype) else "u") + pred
    return e.assign(f"icmp {word} {t} {e.ref(a)}, {e.ref(b)}")


def negate(e: FunctionEmitter, o: KOp) -> str:
    """The sign flipped, of NaN too."""
    return e.assign(f"fneg {e.typed(o.operands[0])}")


def fma(e: FunctionEmitter, o: KOp) -> str:
    """One rounding where the CPU has FMA, else two (a call of the C library's fma would cost a hundred times more)."""
    a, b, c = o.operands
    t = llvm_type(a.type)
    if e.module.has("fma"):
        return e.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, a, b, c)
    product = e.assign(f"fmul {t} {e.ref(a)}, {e.ref(b)}")
    return e.assign(f"fadd {t} {product}, {e.ref(c)}")


def select(e: FunctionEmitter, o: KOp) -> str:
    """By lane, or the whole vector by one condition."""
    return e.assign("select " + ", ".join(e.typed(v) for v in o.operands))


def bitcast(e: FunctionEmitter, o: KOp) -> str:
    """The same bits as another type of that width."""
    return e.assign(f"bitcast {e.typed(o.operands[0])} to {llvm_type(o.results[0].type)}")


# -- conversions ------------------------------------------------------------------------------------------------------
def cast(e: FunctionEmitter, o: KOp) -> str:
    """Half precision converts through f32: x86 has no other instructions for it."""
    a, to = o.operands[0], o.results[0].type
    src, dst, value = a.type, to.dtype, e.ref(a)
    if id(a) in e.widened and dst in (F32, I32):
        value, src = e.widened[id(a)], KType(I32, src.lanes)
        if dst == F32:
            e.steps[id(o.results[0])] = e.clamped[id(a)]
    if o.attrs.get("in_range"):  # freeze: the conversion of NaN must be some number
        return e.assign(f"freeze {llvm_type(to)} {e.assign(f'fptosi {e.typed(a)} to {llvm_type(to)}')}")
    if src.dtype.name in _HALVES:
        value, src = _widen_half(e, value, src), KType(F32, src.lanes)
    if dst.name not in _HALVES:
        return _convert(e, value, src, dst)
    single = KType(F32, src.lanes)
    if o.attrs.get("flushes") and e.module.has("avx512bf16"):
        return rounded_to_bf16(e, value, src.lanes)
    if src.dtype == F64:
        value = call_function(e, to_odd_f32(src.lanes), value)
    else:
        value = _convert(e, value, src, F32)
    if dst.name == "f16" and e.module.has("f16c"):
        half = _half_type(to)
        rounded = e.assign(f"fptrunc {llvm_type(single)} {value} to {half}")
        return e.assign(f"bitcast {half} {rounded} to {llvm_type(to)}")
    return call_function(e, narrow(dst.name, src.lanes), value)


def _half_type(t: KType) -> str:
    return "half" if t.lanes == 1 else f"<{t.lanes} x half>"


def _widen_half(e: FunctionEmitter, value: str, src: KType) -> str:
    if src.dtype.name == "bf16":
        return call_function(e, widen_bf16(src.lanes), value)
    if e.module.has("f16c"):
        half = e.assign(f"bitcast {llvm_type(src)} {value} to {_half_type(src)}")
        return e.assign(f"fpext {_half_type(src)} {half} to {llvm_type(KType(F32, src.lanes))}")
    return call_function(e, widen_f16(src.lanes), value)


def _convert(e: FunctionEmitter, value: str, src: KType, dst: DType) -> str:
    """Between integers, bool, f32 and f64."""
    to = llvm_type(KType(dst, src.lanes))
    if src.dtype == dst:
        return value
    if src.dtype.is_float:
        if dst.is_float:
            return e.assign(f"{'fpext' if dst.bits > src.dtype.bits else 'fptrunc'} {llvm_type(src)} {value} to {to}")
        return _saturate(e, value, src, dst)
    signed = is_signed(src.dtype)
    if dst.is_float:
        return e.assign(f"{'si' if signed else 'ui'}tofp {llvm_type(src)} {value} to {to}")
    src_bits = 1 if src.dtype == BOOL else src.dtype.bits
    if src_bits == dst.bits:
        return value
    word = "trunc" if dst.bits < src_bits else ("sext" if signed else "zext")
    return e.assign(f"{word} {llvm_type(src)} {value} to {to}")


def _saturate(e: FunctionEmitter, value: str, src: KType, dst: DType) -> str:
    """Float → integer, clamped, NaN → 0. LLVM's own saturating conversion falls apart into scalars on vectors."""
    t, i1 = llvm_type(src), mask_type(src)
    least = -(2 ** (dst.bits - 1)) if is_signed(dst) else 0
    most = 2 ** (dst.bits - (1 if is_signed(dst) else 0)) - 1
    top = _float_below(most, src.dtype)
    held = "ord" if least else "ogt"  # than 0, which is the least as well: one instruction for both
    kept = e.assign(f"fcmp {held} {t} {value}, {constant(0, src)}")
    x = e.assign(f"select {i1} {kept}, {t} {value}, {t} {constant(0, src)}")
    for predicate, bound in (("ogt", top), ("olt", float(least)))[: 2 if least else 1]:
        beyond = e.assign(f"fcmp {predicate} {t} {x}, {constant(bound, src)}")
        x = e.assign(f"select {i1} {beyond}, {t} {constant(bound, src)}, {t} {x}")
    mid = KType(I32, src.lanes) if dst.bits < 32 else KType(dst, src.lanes)
    word = "fptosi" if dst.bits < 32 or is_signed(dst) else "fptoui"
    result = e.assign(f"{word} {t} {x} to {llvm_type(mid)}")
    if dst.bits < 32:
        return e.assign(f"trunc {llvm_type(mid)} {result} to {llvm_type(KType(dst, src.lanes))}")
    if top == most:
        return result
    over = e.assign(f"fcmp ogt {t} {value}, {constant(top, src)}")
    return e.assign(f"select {i1} {over}, {llvm_type(mid)} {constant(most, mid)}, {llvm_type(mid)} {result}")


def _float_below(limit: int, dtype: DType) -> float:
    """The largest number of the type that is not above `limit`."""
    kind: Any = np.float64 if dtype == F64 else np.float32
    x = kind(limit)
    return float(x) if int(x) <= limit else float(np.nextafter(x, kind(0)))


def round_to(e: FunctionEmitter, o: KOp) -> str:
    """Clamped to what fits with the zero point, rounded as it is converted, the zero point added as an integer."""
    a, to, zero = o.operands[0], o.results[0].dtype, o.attrs["zero"]
    t, i1, wide = llvm_type(a.type), mask_type(a.type), KType(I32, a.lanes)
    i32, least = llvm_type(wide), -(2 ** (to.bits - 1)) if to.is_signed else 0
    low, high = (constant(float(bound - zero), a.type) for bound in (least, least + 2**to.bits - 1))
    given = _before_rounding(e, a)
    above = e.assign(f"fcmp ogt {t} {given}, {low}")
    bounded = e.assign(f"select {i1} {above}, {t} {given}, {t} {low}")  # NaN gives the least number
    beyond = e.assign(f"fcmp ogt {t} {bounded}, {high}")
    x = e.assign(f"select {i1} {beyond}, {t} {high}, {t} {bounded}")
    if least:
        is_number = e.assign(f"fcmp ord {t} {given}, {constant(0.0, a.type)}")
        x = e.assign(f"select {i1} {is_number}, {t} {x}, {t} {constant(float(-zero), a.type)}")
    saturates = not least and a.lanes == _SATURATED_LANES and e.module.has("avx512f")
    if saturates:
        name = e.module.declare("llvm.x86.avx512.mask.cvtps2dq.512", i32, f"{t}, {i32}, i16, i32")
        whole = e.assign(f"call {i32} @{name}({t} {bounded}, {i32} poison, i16 -1, i32 4)")
    else:
        name = e.module.declare(f"llvm.lrint.{suffix(wide)}.{suffix(a.type)}", i32, t)
        whole = e.assign(f"call {i32} @{name}({t} {x})")
    if zero:
        whole = e.assign(f"add {i32} {whole}, {constant(zero, wide)}")
    if saturates:  # what is too large is 2^31, and at least that with the zero point: more than fits without a sign
        name = e.module.declare(f"llvm.umin.{suffix(wide)}", i32, f"{i32}, {i32}")
        whole = e.assign(f"call {i32} @{name}({i32} {whole}, {i32} {constant(2**to.bits - 1, wide)})")
    e.widened[id(o.results[0])] = whole
    e.clamped[id(o.results[0])] = x, float(zero)
    return _narrowed(e, whole, wide, to)


def _whole(e: FunctionEmitter, x: str, t: KType) -> str:
    """A number of f32 below 2^22 rounded half to even: neither converted nor, as a zero, with a sign."""
    large = constant(_WHOLE, t)
    above = e.assign(f"fadd {llvm_type(t)} {x}, {large}")
    return e.assign(f"fsub {llvm_type(t)} {above}, {large}")


def _before_rounding(e: FunctionEmitter, a: Any) -> str:
    """What will be rounded; a quotient by a constant as a product and a fused multiply-add, several times as fast."""
    x, divisor = e.quotients.get(id(a), (a, None))
    parts = rounding_parts(divisor) if divisor is not None and e.module.has("fma") else None
    if parts is None:
        return e.ref(a)
    t = llvm_type(a.type)
    high, low = (constant(part, a.type) for part in parts)
    name = e.module.declare(f"llvm.fma.{suffix(a.type)}", t, f"{t}, {t}, {t}")
    rest = e.assign(f"fmul {t} {e.ref(x)}, {low}")
    return e.assign(f"call {t} @{name}({t} {e.ref(x)}, {t} {high}, {t} {rest})")


def _narrowed(e: FunctionEmitter, whole: str, wide: KType, to: DType) -> str:
    """Numbers of i32 that fit a narrower type: LLVM does not know that they do, and shuffles bytes."""
    packs = wide.lanes == _PACKED_LANES and e.module.has("sse4.2") and not e.module.has("avx512f")
    if not packs:
        return e.assign(f"trunc {llvm_type(wide)} {whole} to {llvm_type(KType(to, wide.lanes))}")
    words, packed_bytes = _PACKS[to.is_signed]
    t, half, narrow = llvm_type(wide), "<4 x i32>", "<8 x i16>"
    halves = [e.assign(f"shufflevector {t} {whole}, {t} poison, {half} <{', '.join(f'i32 {i}' for i in lanes)}>")
              for lanes in (range(4), range(4, 8))]  # fmt: skip
    e.module.declare(f"llvm.x86.{words}", narrow, f"{half}, {half}")
    pairs = e.assign(f"call {narrow} @llvm.x86.{words}({half} {halves[0]}, {half} {halves[1]})")
    if to.bits == 16:
        return pairs
    e.module.declare(f"llvm.x86.{packed_bytes}", "<16 x i8>", f"{narrow}, {narrow}")
    both = e.assign(f"call <16 x i8> @llvm.x86.{packed_bytes}({narrow} {pairs}, {narrow} {pairs})")
    front = ", ".join(f"i32 {i}" for i in range(_PACKED_LANES))
    return e.assign(f"shufflevector <16 x i8> {both}, <16 x i8> poison, <{_PACKED_LANES} x i32> <{front}>")


# -- functions --------------------------------------------------------------------------------------------------------
def call_function(e: FunctionEmitter, func: KFunc, *args: str) -> str:
    """Emit `func` once and call it on LLVM values."""
    e.module.add([func])
    assert func.returns is not None
    operands = ", ".join(f"{llvm_type(p.type)} {a}" for p, a in zip(func.params, args))
    return e.assign(f"call {llvm_type(func.returns)} @{func.name}({operands})")


def math_call(e: FunctionEmitter, o: KOp) -> str:
    """A function of one operand: an instruction, a polynomial or the C library."""
    a, fn = o.operands[0], o.attrs["fn"]
    if not a.dtype.is_float:
        return _integer_math(e, a, fn)
    if fn in _INTRINSIC:
        return e.intrinsic(f"llvm.{_INTRINSIC[fn]}.{suffix(a.type)}", a.type, a)
    func = None if o.attrs.get("libm") else math_function(fn, a.type)
    return _libm(e, o, fn) if func is None else call_function(e, func, e.ref(a))


def _integer_math(e: FunctionEmitter, a: Any, fn: str) -> str:
    if fn == "abs":
        return e.intrinsic(f"llvm.abs.{suffix(a.type)}", a.type, a, tail="i1 false") if is_signed(a.dtype) else e.ref(a)
    if fn in ("floor", "ceil", "trunc", "round_even"):
        return e.ref(a)
    raise InternalError(f"{fn} of {a.type}", where=f"kernel {e.func.name}")


def _libm(e: FunctionEmitter, o: KOp, fn: str) -> str:
    """A scalar C library call per lane: double precision, and huge arguments of sin, cos and tan."""
    t = o.results[0].type
    scalar = scalar_type(t.dtype)
    name = fn + ("f" if t.dtype == F32 else "")
    # that errno may be set is of no interest
    e.module.declare(name, scalar, ", ".join([scalar] * len(o.operands)), "nounwind willreturn memory(none)")
    if t.lanes == 1:
        return e.assign(f"call {scalar} @{name}({', '.join(map(e.typed, o.operands))})")
    result = "poison"
    for lane in range(t.lanes):
        xs = [e.assign(f"extractelement {e.typed(v)}, i64 {lane}") for v in o.operands]
        y = e.assign(f"call {scalar} @{name}({', '.join(f'{scalar} {x}' for x in xs)})")
        result = e.assign(f"insertelement {llvm_type(t)} {result}, {scalar} {y}, i64 {lane}")
    return result


def scale(e: FunctionEmitter, o: KOp) -> str:
    """x * 2^n with one rounding, n a whole number in a float: one instruction with AVX-512."""
    x, n = o.operands
    t = llvm_type(x.type)
    if not e.module.has("avx512vl") or x.type not in _SCALEF:
        return call_function(e, scale_by_power_of_two(x.type), e.ref(x), e.ref(n))
    kind, mask, rounds = _SCALEF[x.type]
    name = f"llvm.x86.avx512.mask.scalef.{kind}"
    tail = mask + (", i32 4" if rounds else "")
    e.module.declare(name, t, ", ".join([t, t, t, mask.split()[0], *(["i32"] if rounds else [])]))
    return e.assign(f"call {t} @{name}({e.typed(x)}, {e.typed(n)}, {t} poison, {tail})")


__all__ = ["arith", "bitcast", "call_function", "cast", "compare", "fma", "is_signed", "math_call", "negate",
           "round_to", "scale", "select"]
