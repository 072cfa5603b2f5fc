"""LLVM instructions for atomic words and for cores that wait. Owns the spelling of the orders of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.waiting import PAUSES
from ..kernel_ir.loops import KOp
from .llvm_types import memory_scalar

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}


def load(e: FunctionEmitter, o: KOp) -> str:
    """An atomic load."""
    ptr, index = o.operands
    word, order = memory_scalar(ptr.dtype), _ORDERS[o.attrs["order"]]
    return e.assign(f"load atomic {word}, ptr {e.address(ptr, index)} {order}, align {ptr.dtype.nbytes}")


def store(e: FunctionEmitter, o: KOp) -> None:
    """An atomic store."""
    ptr, index, value = o.operands
    address, order = e.address(ptr, index), _ORDERS[o.attrs["order"]]
    e.out(f"store atomic {e.typed(value)}, ptr {address} {order}, align {ptr.dtype.nbytes}")


def add(e: FunctionEmitter, o: KOp) -> str:
    """An atomic addition; the value before it."""
    ptr, index, value = o.operands
    address, order = e.address(ptr, index), _ORDERS[o.attrs["order"]]
    return e.assign(f"atomicrmw add ptr {address}, {e.typed(value)} {order}")


def pause(e: FunctionEmitter, o: KOp) -> None:
    """The architecture's hint that this is a spinning loop."""
    hint = PAUSES[e.module.target.arch]
    e.module.declare(hint.name, "void", hint.parameters)
    e.out(hint.call())


def yield_core(e: FunctionEmitter, o: KOp) -> None:
    """A call of the C library's; its answer says nothing."""
    e.module.declare("sched_yield", "i32", "")
    e.out("call i32 @sched_yield()")
