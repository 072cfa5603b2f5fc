"""LLVM instructions for matrix registers: Intel AMX with registers by their numbers, no allocation by LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InternalError
from ..kernel_ir.loops import KOp
from ..kernel_ir.matrix_registers import KINDS

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

# Bytes: palette 1, 15 zeros, bytes of a row of each register (u16 from 16 on), rows (u8 from 48 on)
_CONFIGURATION = 64


def shapes(e: FunctionEmitter, o: KOp) -> None:
    """LDTILECFG from a slot of the stack."""
    _need(e, "amx-tile")
    slot = e.stack(_CONFIGURATION, "i8", 64)
    e.out(f"store <64 x i8> zeroinitializer, ptr {slot}, align 64")
    _store(e, slot, 0, "i8", 1)
    for i, (rows, nbytes) in enumerate(zip(o.attrs["rows"], o.attrs["nbytes"], strict=True)):
        if rows:
            _store(e, slot, 16 + 2 * i, "i16", nbytes)
            _store(e, slot, 48 + i, "i8", rows)
    _call(e, "llvm.x86.ldtilecfg", "ptr", f"ptr {slot}")


def release(e: FunctionEmitter, o: KOp) -> None:
    """TILERELEASE."""
    _need(e, "amx-tile")
    _call(e, "llvm.x86.tilerelease", "", "")


def zero(e: FunctionEmitter, o: KOp) -> None:
    """TILEZERO."""
    _need(e, "amx-tile")
    _call(e, "llvm.x86.tilezero", "i8", f"i8 {o.attrs['number']}")


def load(e: FunctionEmitter, o: KOp) -> None:
    """TILELOADD."""
    _move(e, o, "llvm.x86.tileloadd64")


def store(e: FunctionEmitter, o: KOp) -> None:
    """TILESTORED."""
    _move(e, o, "llvm.x86.tilestored64")


def dot(e: FunctionEmitter, o: KOp) -> None:
    """TDPBF16PS, TDPBSSD or TDPBUSD."""
    kind = KINDS[o.attrs["kind"]]
    _need(e, kind.feature)
    numbers = ", ".join(f"i8 {o.attrs[name]}" for name in ("sums", "a", "b"))
    _call(e, f"llvm.x86.{kind.instruction}", "i8, i8, i8", numbers)


def _move(e: FunctionEmitter, o: KOp, name: str) -> None:
    _need(e, "amx-tile")
    ptr, index, pitch = o.operands
    place, size = e.address(ptr, index), ptr.dtype.nbytes
    step = e.typed(pitch) if size == 1 else f"i64 {e.assign(f'mul nsw {e.typed(pitch)}, {size}')}"
    _call(e, name, "i8, ptr, i64", f"i8 {o.attrs['number']}, ptr {place}, {step}")


def _store(e: FunctionEmitter, slot: str, at: int, kind: str, value: int) -> None:
    place = e.assign(f"getelementptr inbounds i8, ptr {slot}, i64 {at}")
    e.out(f"store {kind} {value}, ptr {place}")


def _call(e: FunctionEmitter, name: str, types: str, arguments: str) -> None:
    e.module.declare(name, "void", types)
    e.out(f"call void @{name}({arguments})")


def _need(e: FunctionEmitter, feature: str) -> None:
    if not e.module.has(feature):
        raise InternalError("no matrix registers, or no such product of them", where=f"kernel {e.func.name}",
                            expected=feature, found=e.module.target.name)  # fmt: skip
