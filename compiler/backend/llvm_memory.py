"""LLVM instructions for memory access and for moving lanes about. Bool is one bit in registers, one byte in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import InternalError
from ...runtime.sync import ERROR_OFFSET
from ..ir.types import BOOL, F16, DType
from ..kernel_ir.loops import KOp, KType
from .llvm_arith import is_signed
from .llvm_fence import fenced
from .llvm_types import constant, literal, llvm_type, mask_type, memory_scalar, memory_suffix, memory_type, scalar_type
from .llvm_types import suffix as mangled

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

LOOKUP_LANES = 64  # bytes that one instruction looks up in a table of 256
LOOKUP_FEATURE = "avx512vbmi"  # what has it


# -- lanes ------------------------------------------------------------------------------------------------------------
def splat(e: FunctionEmitter, o: KOp) -> str:
    """One scalar in all lanes."""
    a, to = o.operands[0], o.results[0].type
    t = llvm_type(to)
    one = e.assign(f"insertelement {t} poison, {e.typed(a)}, i64 0")
    return e.assign(f"shufflevector {t} {one}, {t} poison, <{to.lanes} x i32> zeroinitializer")


def ramp(e: FunctionEmitter, o: KOp) -> str:
    """A constant: the lanes' numbers."""
    t = o.results[0].type
    if t.lanes == 1:
        return literal(0, t.dtype)
    return "<" + ", ".join(f"{scalar_type(t.dtype)} {literal(i, t.dtype)}" for i in range(t.lanes)) + ">"


def reduce(e: FunctionEmitter, o: KOp) -> str:
    """Sums and products in any order; min and max pass NaN on."""
    v, op = o.operands[0], o.attrs["op"]
    d, s = v.dtype, scalar_type(v.dtype)
    if d.is_float and op in ("add", "mul"):
        name = f"llvm.vector.reduce.f{op}.{mangled(v.type)}"
        e.module.declare(name, s, f"{s}, {llvm_type(v.type)}")
        start = literal(-0.0 if op == "add" else 1, d)
        return e.assign(f"call reassoc {s} @{name}({s} {start}, {e.typed(v)})")
    if d == BOOL and op in ("min", "max"):
        op = "and" if op == "min" else "or"
    elif op in ("min", "max"):
        op = f"f{op}imum" if d.is_float else ("s" if is_signed(d) else "u") + op
    return e.intrinsic(f"llvm.vector.reduce.{op}.{mangled(v.type)}", KType(d), v)


def extract(e: FunctionEmitter, o: KOp) -> str:
    """One lane as a scalar."""
    v = o.operands[0]
    return e.assign(f"extractelement {e.typed(v)}, i64 {o.attrs['lane']}") if v.lanes > 1 else e.ref(v)


def insert(e: FunctionEmitter, o: KOp) -> str:
    """A vector with one lane replaced."""
    v, x = o.operands
    return e.assign(f"insertelement {e.typed(v)}, {e.typed(x)}, i64 {o.attrs['lane']}") if v.lanes > 1 else e.ref(x)


def shuffle(e: FunctionEmitter, o: KOp) -> str:
    """Lanes of two vectors in any order."""
    a, b = o.operands
    lanes = o.attrs["lanes"]
    if len(lanes) == 1:
        source, lane = (a, lanes[0]) if lanes[0] < a.lanes else (b, lanes[0] - a.lanes)
        return e.assign(f"extractelement {e.typed(source)}, i64 {lane}")
    mask = ", ".join(f"i32 {i}" for i in lanes)
    return e.assign(f"shufflevector {e.typed(a)}, {e.typed(b)}, <{len(lanes)} x i32> <{mask}>")


# VPERMI2 by floats and by integers: kind and bits of an element, lanes of a vector
_PERMUTES = {(True, 32, 16): "ps.512", (False, 32, 16): "d.512", (True, 64, 8): "pd.512", (False, 64, 8): "q.512"}


def permute(e: FunctionEmitter, o: KOp) -> str:
    """Lanes of two vectors by numbers that are computed: one instruction of AVX-512, elsewhere through memory."""
    a, b, index = o.operands
    t, n, bits = a.type, a.lanes, a.dtype.bits
    name = _PERMUTES.get((a.dtype.is_float, bits, n))
    if name and e.module.has("avx512f"):
        numbers, of = e.ref(index), f"<{n} x i{bits}>"
        if bits > index.dtype.bits:
            numbers = e.assign(f"zext {e.typed(index)} to {of}")
        kind = llvm_type(t)
        name = e.module.declare(f"llvm.x86.avx512.vpermi2var.{name}", kind, f"{kind}, {of}, {kind}")
        return e.assign(f"call {kind} @{name}({e.typed(a)}, {of} {numbers}, {e.typed(b)})")
    scalar = scalar_type(t.dtype)
    slot = e.stack(2 * n, scalar, 64)
    for v, at in ((a, 0), (b, n)):
        place = e.assign(f"getelementptr {scalar}, ptr {slot}, i64 {at}")
        e.out(f"store {e.typed(v)}, ptr {place}, align {bits // 8}")
    return _permuted_in_memory(e, o, slot)


def _permuted_in_memory(e: FunctionEmitter, o: KOp, slot: str) -> str:
    """The lanes of both vectors, which lie in a slot of the stack."""
    t, index = o.results[0].type, o.operands[2]
    scalar, it = scalar_type(t.dtype), llvm_type(index.type)
    numbers = e.assign(f"and {e.typed(index)}, {constant(2 * t.lanes - 1, index.type)}")
    if t.lanes == 1:
        address = e.assign(f"getelementptr {scalar}, ptr {slot}, i32 {numbers}")
        return e.assign(f"load {scalar}, ptr {address}, align {t.dtype.bits // 8}")
    pointers = e.assign(f"getelementptr {scalar}, ptr {slot}, {it} {numbers}")
    return gathered(e, t, pointers, t.dtype.bits // 8, f"{mask_type(t)} {constant(True, KType(BOOL, t.lanes))}")


def lookup(e: FunctionEmitter, o: KOp) -> str:
    """VPERMI2B looks up in a half of the table by seven bits of an index; the eighth chooses the half."""
    index, table = o.operands
    if index.lanes != LOOKUP_LANES or not e.module.has(LOOKUP_FEATURE):
        raise InternalError(f"no instruction that looks up {index.lanes} bytes", where=f"kernel {e.func.name}",
                            expected=f"{LOOKUP_FEATURE}, of {LOOKUP_LANES} lanes")  # fmt: skip
    t = llvm_type(index.type)
    quarters = []
    for first in range(0, table.lanes, LOOKUP_LANES):
        lanes = ", ".join(f"i32 {i}" for i in range(first, first + LOOKUP_LANES))
        quarters.append(e.assign(f"shufflevector {e.typed(table)}, {llvm_type(table.type)} poison, "
                                 f"<{LOOKUP_LANES} x i32> <{lanes}>"))  # fmt: skip
    name = e.module.declare("llvm.x86.avx512.vpermi2var.qi.512", t, f"{t}, {t}, {t}")
    low, high = (e.assign(f"call {t} @{name}({t} {a}, {e.typed(index)}, {t} {b})")
                 for a, b in (quarters[:2], quarters[2:]))  # fmt: skip
    above = e.assign(f"icmp slt {t} {e.ref(index)}, zeroinitializer")
    return e.assign(f"select <{LOOKUP_LANES} x i1> {above}, {t} {high}, {t} {low}")


# -- memory -----------------------------------------------------------------------------------------------------------
def _align(o: KOp, dtype: DType) -> int:
    return o.attrs.get("align") or max(1, dtype.bits // 8)


def _from_memory(e: FunctionEmitter, raw: str, t: KType) -> str:
    if t.dtype == F16:
        return e.assign(f"bitcast {memory_type(t)} {raw} to {llvm_type(t)}")
    if t.dtype != BOOL:
        return raw
    return e.assign(f"icmp ne {memory_type(t)} {raw}, {'0' if t.lanes == 1 else 'zeroinitializer'}")


def _to_memory(e: FunctionEmitter, v: Any) -> str:
    if v.dtype == F16:
        return e.assign(f"bitcast {e.typed(v)} to {memory_type(v.type)}")
    if v.dtype != BOOL:
        return e.ref(v)
    return e.assign(f"zext {e.typed(v)} to {memory_type(v.type)}")


def load(e: FunctionEmitter, o: KOp) -> str:
    """Lanes that are masked off give 0 and do not touch memory."""
    ptr, index, *mask = o.operands
    t, align = o.results[0].type, _align(o, o.results[0].dtype)
    mt = memory_type(t)
    address = e.address(ptr, index)
    if not mask:
        return _from_memory(e, e.assign(f"load {mt}, ptr {address}, align {align}"), t)
    if t.lanes == 1:
        return _guarded_load(e, address, t, align, e.ref(mask[0]))
    name = f"llvm.masked.load.{memory_suffix(t)}.p0"
    e.module.declare(name, mt, f"ptr, i32, {mask_type(t)}, {mt}")
    raw = e.assign(f"call {mt} @{name}(ptr {address}, i32 {align}, {e.typed(mask[0])}, {mt} zeroinitializer)")
    return _from_memory(e, raw, t)


def _guarded_load(e: FunctionEmitter, address: str, t: KType, align: int, on: str) -> str:
    """A scalar load that does not touch memory when masked off: read a zero of our own instead."""
    mt = memory_type(t)
    slot = e.zero_slot()
    where = e.assign(f"select i1 {on}, ptr {address}, ptr {slot}")
    return _from_memory(e, e.assign(f"load {mt}, ptr {where}, align {align}"), t)


def store(e: FunctionEmitter, o: KOp) -> None:
    """Lanes that are masked off leave memory alone."""
    ptr, index, value, *mask = o.operands
    raw, address, mt = _to_memory(e, value), e.address(ptr, index), memory_type(value.type)
    align = _align(o, value.dtype)
    if value.lanes > 1:
        raw = _fenced(e, raw, value.type)
    if not mask:
        e.out(f"store {mt} {raw}, ptr {address}, align {align}")
    elif value.lanes == 1:
        _guarded(e, e.ref(mask[0]), f"store {mt} {raw}, ptr {address}, align {align}")
    else:
        name = f"llvm.masked.store.{memory_suffix(value.type)}.p0"
        e.module.declare(name, "void", f"{mt}, ptr, i32, {mask_type(value.type)}")
        e.out(f"call void @{name}({mt} {raw}, ptr {address}, i32 {align}, {e.typed(mask[0])})")


def _fenced(e: FunctionEmitter, raw: str, t: KType) -> str:
    """Narrow lanes on their way to a store, past a fence that LLVM folds no truncation through.

    LLVM 22.1 (llvmlite 0.48 to 0.50) makes one truncating store of a truncation and a masked store, and a scalar store,
    of the width before the truncation, of that where one lane is on: with AVX-512 i32 → i16 wrote two bytes behind the
    element, i64 → i32 four. A store of a selection between lanes and what was in memory becomes a masked store, too.
    https://github.com/llvm/llvm-project/issues/179489, mended after 22.1 by pull request 179853. For every version:
    nothing is lost, since a truncating store takes the same steps as a truncation and a store. Whether a mask will be
    constant is not known here, as LLVM folds it, and a `freeze` is moved before the truncation.
    """
    scalar = memory_scalar(t.dtype)
    if not e.module.has("avx512f") or scalar in ("float", "double", "i64"):  # none truncates, nothing is cut to these
        return raw
    return fenced(e, raw, memory_type(t), t.lanes * t.dtype.nbytes)


def _guarded(e: FunctionEmitter, on: str, line: str) -> None:
    """Run one instruction without result under a condition."""
    e.counter += 1
    then, end = f"on{e.counter}", f"off{e.counter}"
    e.out(f"br i1 {on}, label %{then}, label %{end}")
    e.start(then)
    e.out(line)
    e.out(f"br label %{end}")
    e.start(end)


def _pointers(e: FunctionEmitter, ptr: Any, index: Any) -> str:
    element = memory_scalar(ptr.dtype)
    return e.assign(f"getelementptr inbounds {element}, ptr {e.ref(ptr)}, {e.typed(index)}")


def _mask(e: FunctionEmitter, mask: list[Any], lanes: int) -> str:
    return e.typed(mask[0]) if mask else f"<{lanes} x i1> {constant(True, KType(BOOL, lanes))}"


def gather(e: FunctionEmitter, o: KOp) -> str:
    """Masked-off lanes give 0."""
    ptr, index, *mask = o.operands
    t, n = o.results[0].type, o.results[0].lanes
    if n == 1:
        return load(e, o)
    raw = gathered(e, t, _pointers(e, ptr, index), _align(o, t.dtype), _mask(e, mask, n))
    return _from_memory(e, raw, t)


def gathered(e: FunctionEmitter, t: KType, pointers: str, align: int, on: str) -> str:
    """What lies at a vector of addresses, where a mask is on, as it is in memory."""
    mt = memory_type(t)
    name = f"llvm.masked.gather.{memory_suffix(t)}.v{t.lanes}p0"
    e.module.declare(name, mt, f"<{t.lanes} x ptr>, i32, <{t.lanes} x i1>, {mt}")
    return e.assign(f"call {mt} @{name}(<{t.lanes} x ptr> {pointers}, i32 {align}, {on}, {mt} zeroinitializer)")


def scatter(e: FunctionEmitter, o: KOp) -> None:
    """Of equal indices the last lane wins."""
    ptr, index, value, *mask = o.operands
    n, mt = value.lanes, memory_type(value.type)
    if n == 1:
        store(e, o)
        return
    raw, align = _to_memory(e, value), _align(o, value.dtype)
    name = f"llvm.masked.scatter.{memory_suffix(value.type)}.v{n}p0"
    e.module.declare(name, "void", f"{mt}, <{n} x ptr>, i32, <{n} x i1>")
    pointers, on = _pointers(e, ptr, index), _mask(e, mask, n)
    e.out(f"call void @{name}({mt} {raw}, <{n} x ptr> {pointers}, i32 {align}, {on})")


def gep(e: FunctionEmitter, o: KOp) -> str:
    """Address arithmetic."""
    return e.address(*o.operands)


def load_pointer(e: FunctionEmitter, o: KOp) -> str:
    """A pointer that lies in memory."""
    return e.assign(f"load ptr, ptr {e.address(*o.operands)}, align 8")


def alloca(e: FunctionEmitter, o: KOp) -> str:
    """Stack memory of the function."""
    return e.stack(o.attrs["count"], memory_scalar(o.results[0].type.dtype), o.attrs["align"])


def prefetch(e: FunctionEmitter, o: KOp) -> None:
    """A read is coming: into all cache levels."""
    e.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
    e.out(f"call void @llvm.prefetch.p0(ptr {e.address(*o.operands)}, i32 0, i32 {4 - o.attrs['level']}, i32 1)")


def fail(e: FunctionEmitter, o: KOp) -> None:
    """Leave an error site's number in the slot of its cores; the last one wins."""
    slot = e.assign(f"getelementptr i8, ptr {e.ref(o.operands[0])}, i64 {ERROR_OFFSET}")
    e.out(f"store atomic i32 {o.attrs['site']}, ptr {slot} monotonic, align 4")
