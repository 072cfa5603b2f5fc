"""LLVM instructions for numbers of f32 as integers of 8 and 16 bits: rounded to nearest, with a zero point.

Owns how a target narrows them. What the opcode means is `kernel_ir.interpreted_lanes`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.types import I32, DType
from ..kernel_ir.loops import KOp, KType
from .llvm_types import constant, llvm_type, mask_type, suffix

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

_LANES = 8  # of i32 that two instructions of x86 pack to bytes
# By whether the result is signed: words of i32, bytes of words
_PACKS = {True: ("sse2.packssdw.128", "sse2.packsswb.128"), False: ("sse41.packusdw", "sse2.packuswb.128")}


def round_to(e: FunctionEmitter, o: KOp) -> str:
    """Clamped to what fits with the zero point, rounded as it is converted, the zero point added as an integer."""
    a, to, zero = o.operands[0], o.results[0].dtype, o.attrs["zero"]
    t, i1, wide = llvm_type(a.type), mask_type(a.type), KType(I32, a.lanes)
    least = -(2 ** (to.bits - 1)) if to.is_signed else 0
    low, high = (constant(float(bound - zero), a.type) for bound in (least, least + 2**to.bits - 1))
    above = e.assign(f"fcmp ogt {t} {e.ref(a)}, {low}")
    x = e.assign(f"select {i1} {above}, {t} {e.ref(a)}, {t} {low}")  # NaN gives the least number
    beyond = e.assign(f"fcmp ogt {t} {x}, {high}")
    x = e.assign(f"select {i1} {beyond}, {t} {high}, {t} {x}")
    if least:
        is_number = e.assign(f"fcmp ord {t} {e.ref(a)}, {constant(0.0, a.type)}")
        x = e.assign(f"select {i1} {is_number}, {t} {x}, {t} {constant(float(-zero), a.type)}")
    name = e.module.declare(f"llvm.lrint.{suffix(wide)}.{suffix(a.type)}", llvm_type(wide), t)
    whole = e.assign(f"call {llvm_type(wide)} @{name}({t} {x})")
    if zero:
        whole = e.assign(f"add {llvm_type(wide)} {whole}, {constant(zero, wide)}")
    e.widened[id(o.results[0])] = whole
    return _narrowed(e, whole, wide, to)


def _narrowed(e: FunctionEmitter, whole: str, wide: KType, to: DType) -> str:
    """Numbers of i32 that fit a narrower type: LLVM does not know that they do, and shuffles bytes."""
    packs = wide.lanes == _LANES and e.module.has("sse4.2") and not e.module.has("avx512f")
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
    front = ", ".join(f"i32 {i}" for i in range(_LANES))
    return e.assign(f"shufflevector <16 x i8> {both}, <16 x i8> poison, <{_LANES} x i32> <{front}>")


__all__ = ["round_to"]
