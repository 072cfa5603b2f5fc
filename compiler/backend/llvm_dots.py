"""LLVM instructions for products of several neighbouring elements a lane, and for rounding to what they take: dot_bf16,
dot_i16, dot_u8i8, and f32 to bf16.

Owns which of a target's instructions multiply them. What the opcodes mean is `kernel_ir.interpreted_lanes`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InternalError
from ..ir.types import F32, I8, I16, I32
from ..kernel_ir.loops import KOp, KType
from .llvm_fence import fenced
from .llvm_types import llvm_type

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

# PMADDWD by the number of its sums: LLVM's name, and what a target must have
_PAIRS = {4: ("sse2.pmadd.wd", "sse4.2"), 8: ("avx2.pmadd.wd", "avx2"), 16: ("avx512.pmaddw.d.512", "avx512bw")}
# The same of PMADDUBSW
_QUADS = {4: ("ssse3.pmadd.ub.sw.128", "ssse3"), 8: ("avx2.pmadd.ub.sw", "avx2"),
          16: ("avx512.pmaddubs.w.512", "avx512bw")}
_LEAST_LANES, _MOST_LANES = 8, 32  # of f32 that VCVTNEPS2BF16 and VCVTNE2PS2BF16 take
# VPDPBUSD by the number of its sums: the features of which one is needed
_VNNI = {4: ("avx512vnni", "avxvnni"), 8: ("avx512vnni", "avxvnni"), 16: ("avx512vnni",)}


def dot_bf16(e: FunctionEmitter, o: KOp) -> str:
    """Sums and two products a lane, as AVX512-BF16 adds them; pairs of bf16 are u32 in registers."""
    a, b, sums = o.operands
    if not e.module.has("avx512bf16") or sums.lanes not in (4, 8, 16):
        raise InternalError(f"no instruction for {sums.lanes} pairs of bf16", where=f"kernel {e.func.name}",
                            expected="avx512bf16, of 4, 8 or 16 lanes")  # fmt: skip
    t, pairs = llvm_type(sums.type), f"<{2 * sums.lanes} x bfloat>"
    left, right = (e.assign(f"bitcast {e.typed(v)} to {pairs}") for v in (a, b))
    name = e.module.declare(f"llvm.x86.avx512bf16.dpbf16ps.{32 * sums.lanes}", t, f"{t}, {pairs}, {pairs}")
    return e.assign(f"call {t} @{name}({e.typed(sums)}, {pairs} {left}, {pairs} {right})")


def dot_i16(e: FunctionEmitter, o: KOp) -> str:
    """PMADDWD and PADDD, which LLVM makes one VPDPWSSD of where the target has that; elsewhere products of i32."""
    a, b, sums = o.operands
    name, needed = _PAIRS.get(sums.lanes, ("", ""))
    t = llvm_type(sums.type)
    if name and e.module.has(needed):
        products = e.intrinsic(f"llvm.x86.{name}", sums.type, a, b)
        total = e.assign(f"add {t} {e.ref(sums)}, {products}")
        # LLVM would add the products of several steps first, which then take the sums' registers
        return fenced(e, total, t, 4 * sums.lanes)
    wide = KType(sums.dtype, 2 * sums.lanes)
    left, right = (e.assign(f"sext {e.typed(v)} to {llvm_type(wide)}") for v in (a, b))
    both = e.assign(f"mul {llvm_type(wide)} {left}, {right}")
    halves = [_strided(e, both, wide, first, 2) for first in (0, 1)]
    products = e.assign(f"add {t} {halves[0]}, {halves[1]}")
    return e.assign(f"add {t} {e.ref(sums)}, {products}")


def _strided(e: FunctionEmitter, value: str, t: KType, first: int, step: int) -> str:
    """The lanes first, first + step, … of a vector."""
    if t.lanes == step:
        return e.assign(f"extractelement {llvm_type(t)} {value}, i64 {first}")
    lanes = ", ".join(f"i32 {lane}" for lane in range(first, t.lanes, step))
    return e.assign(f"shufflevector {llvm_type(t)} {value}, {llvm_type(t)} poison, <{t.lanes // step} x i32> <{lanes}>")


def dot_u8i8(e: FunctionEmitter, o: KOp) -> str:
    """VPDPBUSD; PMADDUBSW, PMADDWD by ones and PADDD where no pair saturates; elsewhere products of i32."""
    a, b, sums = o.operands
    t, n = llvm_type(sums.type), sums.lanes
    if any(e.module.has(feature) for feature in _VNNI.get(n, ())):
        words = [e.assign(f"bitcast {e.typed(v)} to {t}") for v in (a, b)]
        name = e.module.declare(f"llvm.x86.avx512.vpdpbusd.{32 * n}", t, f"{t}, {t}, {t}")
        return e.assign(f"call {t} @{name}({e.typed(sums)}, {t} {words[0]}, {t} {words[1]})")
    name, needed = _QUADS.get(n, ("", ""))
    if name and e.module.has(needed) and o.attrs.get("pairs_in_i16"):
        return _by_pairs(e, o, name)
    wide = KType(I32, 4 * n)
    left = e.assign(f"zext {e.typed(a)} to {llvm_type(wide)}")
    right = e.assign(f"sext {e.typed(b)} to {llvm_type(wide)}")
    both = e.assign(f"mul {llvm_type(wide)} {left}, {right}")
    total = e.ref(sums)
    for first in range(4):
        total = e.assign(f"add {t} {total}, {_strided(e, both, wide, first, 4)}")
    return total


def _by_pairs(e: FunctionEmitter, o: KOp, name: str) -> str:
    """Two products a lane of i16, which are exact, and two of those by ones."""
    a, b, sums = o.operands
    t, half = llvm_type(sums.type), llvm_type(KType(I16, 2 * sums.lanes))
    given = ", ".join(llvm_type(KType(dtype, 4 * sums.lanes)) for dtype in (I8, I8))
    e.module.declare(f"llvm.x86.{name}", half, given)
    pairs = e.assign(f"call {half} @llvm.x86.{name}({e.typed(a)}, {e.typed(b)})")
    ones = f"{half} <{', '.join(['i16 1'] * (2 * sums.lanes))}>"
    sum_of_two = f"llvm.x86.{_PAIRS[sums.lanes][0]}"
    e.module.declare(sum_of_two, t, f"{half}, {half}")
    products = e.assign(f"call {t} @{sum_of_two}({half} {pairs}, {ones})")
    return fenced(e, e.assign(f"add {t} {e.ref(sums)}, {products}"), t, 4 * sums.lanes)


def rounded_to_bf16(e: FunctionEmitter, value: str, lanes: int) -> str:
    """The bits of f32 in bf16, denormals zeros: in every vector alike, so that no result depends on how it was cut."""
    if lanes > _MOST_LANES:
        raise InternalError(f"no instruction rounds {lanes} lanes to bf16", where="LLVM emission")
    single = llvm_type(KType(F32, lanes))
    width = max(_LEAST_LANES, lanes)
    if lanes == 1:
        value = e.assign(f"insertelement <{width} x float> poison, float {value}, i32 0")
    elif lanes < width:
        value = _picked(e, f"{single} {value}", single, range(lanes), width)
    wide, result = f"<{width} x float>", f"<{width} x bfloat>"
    if width == _MOST_LANES:
        half = width // 2
        low, high = (_picked(e, f"{wide} {value}", wide, r, half) for r in (range(half), range(half, width)))
        t = f"<{half} x float>"
        name = e.module.declare("llvm.x86.avx512bf16.cvtne2ps2bf16.512", result, f"{t}, {t}")
        rounded = e.assign(f"call {result} @{name}({t} {high}, {t} {low})")
    else:
        name = e.module.declare(f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * width}", result, wide)
        rounded = e.assign(f"call {result} @{name}({wide} {value})")
    words = e.assign(f"bitcast {result} {rounded} to <{width} x i16>")
    if lanes == 1:
        return e.assign(f"extractelement <{width} x i16> {words}, i32 0")
    if lanes == width:
        return words
    return _picked(e, f"<{width} x i16> {words}", f"<{width} x i16>", range(lanes), lanes)


def _picked(e: FunctionEmitter, value: str, kind: str, lanes: range, width: int) -> str:
    """Lanes of a vector, and poison up to a width."""
    picks = ", ".join(f"i32 {lane}" for lane in lanes) + ", i32 poison" * (width - len(lanes))
    return e.assign(f"shufflevector {value}, {kind} poison, <{width} x i32> <{picks}>")
