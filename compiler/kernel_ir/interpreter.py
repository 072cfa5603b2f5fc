"""Runs kernel IR on NumPy arrays, operation by operation, with every access to memory checked.

The oracle for code that this machine cannot run, and for what a kernel means before LLVM sees it. Slow: some hundred
thousand operations a second. On one core who waits for others' work is an error; `interpret_cores` runs several in
turns, see `interpreted_cores`.

Functions of lanes (`exp`, …) are NumPy's in f64, rounded once; products and sums are rounded each, where native code
may contract them. So results are as near as the kernels' bounds say, and not the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import InternalError
from ...runtime.sync import ERROR_OFFSET
from ..ir.types import DType
from . import interpreted_atomics as atomics
from . import interpreted_matrices as matrices
from .interpreted_cores import Access, Cores, Pointer
from .interpreted_lanes import (
    BINARY,
    COMPARE,
    REDUCE,
    cast,
    dot_bf16,
    dot_i16,
    dot_u8i8,
    function,
    permute,
    register_type,
    round_to,
)
from .loops import INDEX, KFunc, KOp, KType, PtrType, Region

MOST_TRIPS = 1_000_000  # of a `while`: minutes
GARBAGE = 0xA5  # in the bytes of a stack slot that nobody has written


Value = Any  # a Pointer, or an array of as many elements as there are lanes


def interpret(func: KFunc, arguments: Sequence[Pointer | int]) -> np.ndarray | None:
    """Run a function; pointers for its pointer parameters, numbers for the others.

    Returns what it returns. Raises InternalError, which names the kernel and the operation, where it reads or writes
    beyond a pointer's memory, writes what is read-only, or waits for other cores.
    """
    return interpret_cores(func, [arguments])[0]


def interpret_cores(
    func: KFunc, arguments: Sequence[Sequence[Pointer | int]], seed: int = 0, reachable: Sequence[Pointer] = ()
) -> list[np.ndarray | None]:
    """Run a function on several cores, each with arguments of its own, in an interleaving that the seed says.

    Args:
        reachable: the memory whose addresses lie in memory; no other pointers are read there.

    Raises InternalError as above, where all cores wait for each other, or where one reads or writes what another writes
    and nothing says in which order.
    """
    cores = Cores(len(arguments), seed, reachable)
    results: list[np.ndarray | None] = [None] * cores.n

    def body(core: int) -> None:
        with np.errstate(all="ignore"):
            values = [a if isinstance(p.type, PtrType) else _filled(a, p.type)
                      for p, a in zip(func.params, arguments[core], strict=True)]  # fmt: skip
            results[core] = Frame(func, cores, core).run(values)

    cores.run(body)
    return results


def _filled(number: Any, t: KType) -> np.ndarray:
    return np.repeat(np.array([number]).astype(register_type(t.dtype)), t.lanes)  # -1 of an unsigned type is all ones


class Frame:
    """One call of a function: its values by the identity of what defines them."""

    def __init__(self, func: KFunc, cores: Cores, core: int) -> None:
        self.func, self.cores, self.core = func, cores, core
        self.values: dict[int, Value] = {}
        self.slots: dict[int, Pointer] = {}
        self.matrices: dict[int, np.ndarray] = {}

    def run(self, arguments: Sequence[Value]) -> np.ndarray | None:
        self.values.update((id(p), a) for p, a in zip(self.func.params, arguments, strict=True))
        self.region(self.func.body)
        return self.get(self.func.body.yields[0]) if self.func.returns else None

    def get(self, v: Any) -> Value:
        """The value of an operand."""
        return self.values[id(v)] if v.const is None else _filled(v.const, v.type)

    def number(self, v: Any) -> int:
        """A scalar as a Python number."""
        return int(self.get(v)[0])

    def region(self, region: Region) -> list[Value]:
        for o in region.ops:
            results = OPERATIONS[o.opcode](self, o)
            if len(o.results) == 1 and not isinstance(results, list):
                results = [results]
            self.values.update((id(r), x) for r, x in zip(o.results, results or (), strict=True))
        return [self.get(y) for y in region.yields]

    @property
    def where(self) -> str:
        return f"kernel {self.func.name}"

    def refuse(self, message: str) -> InternalError:
        return InternalError(message, where=self.where)

    # -- memory -------------------------------------------------------------------------------------------------------
    def places(self, o: KOp, pointer: Pointer, dtype: DType, indices: np.ndarray, on: np.ndarray) -> np.ndarray:
        """The first byte of each element, those that are `on` inside of the memory."""
        at = pointer.offset + indices.astype(np.int64) * dtype.nbytes
        bad = on & ((at < 0) | (at + dtype.nbytes > pointer.memory.size))
        if bad.any():
            raise self.refuse(f"{o.opcode} of {dtype} at byte {at[bad][0]} of {pointer.name}, of {pointer.memory.size}")
        return at

    def touch(self, o: KOp, access: Access, pointer: Pointer, dtype: DType, at: np.ndarray) -> None:
        """Say to the cores which bytes this one reads or writes."""
        bytes_ = (pointer.address + at[:, None] + np.arange(dtype.nbytes)).ravel().tolist() if self.cores.n > 1 else ()
        self.cores.touch(self.core, access, bytes_, f"{self.where}, {o.opcode} of {pointer.name}")

    def read(
        self, o: KOp, pointer: Pointer, t: KType, indices: np.ndarray, on: np.ndarray, access: Access = Access.READ
    ) -> np.ndarray:
        """Elements; those that are not `on` are zeros."""
        at, kind = self.places(o, pointer, t.dtype, indices, on), register_type(t.dtype)
        self.touch(o, access, pointer, t.dtype, at[on])
        raw = np.zeros((t.lanes, t.dtype.nbytes), np.uint8)
        raw[on] = pointer.memory[at[on, None] + np.arange(t.dtype.nbytes)]
        return raw.reshape(-1) != 0 if kind == np.bool_ else raw.reshape(-1).view(kind)

    def write(
        self, o: KOp, pointer: Pointer, dtype: DType, indices: np.ndarray, x: np.ndarray, on: np.ndarray,
        access: Access = Access.WRITE,
    ) -> None:  # fmt: skip
        """Elements that are `on`, in the order of the lanes."""
        at = self.places(o, pointer, dtype, indices, on)
        if not pointer.memory.flags.writeable and on.any():
            raise self.refuse(f"{o.opcode} into {pointer.name}, which is read-only")
        self.touch(o, access, pointer, dtype, at[on])
        raw = np.ascontiguousarray(x).view(np.uint8).reshape(len(x), dtype.nbytes)
        for lane in np.flatnonzero(on):
            pointer.memory[at[lane] : at[lane] + dtype.nbytes] = raw[lane]

    def turn(self) -> None:
        """Other cores may go on before this one does."""
        if self.cores.n > 1:
            self.cores.turn(self.core)

    def mask(self, operands: Sequence[Any], lanes: int) -> np.ndarray:
        """The last operand where there is one more than are needed."""
        return np.ones(lanes, bool) if not operands else np.broadcast_to(self.get(operands[0]), lanes)


def _load(f: Frame, o: KOp) -> np.ndarray:
    ptr, index, *mask = o.operands
    t = o.results[0].type
    return f.read(o, f.get(ptr), t, f.number(index) + np.arange(t.lanes), f.mask(mask, t.lanes))


def _store(f: Frame, o: KOp) -> None:
    ptr, index, value, *mask = o.operands
    lanes = np.arange(value.lanes)
    f.write(o, f.get(ptr), ptr.dtype, f.number(index) + lanes, f.get(value), f.mask(mask, value.lanes))


def _gather(f: Frame, o: KOp) -> np.ndarray:
    ptr, index, *mask = o.operands
    return f.read(o, f.get(ptr), o.results[0].type, f.get(index), f.mask(mask, index.lanes))


def _scatter(f: Frame, o: KOp) -> None:
    ptr, index, value, *mask = o.operands
    f.write(o, f.get(ptr), ptr.dtype, f.get(index), f.get(value), f.mask(mask, index.lanes))


def _gep(f: Frame, o: KOp) -> Pointer:
    ptr, index = o.operands
    moved: Pointer = f.get(ptr).moved(f.number(index) * ptr.dtype.nbytes)
    return moved


def _load_pointer(f: Frame, o: KOp) -> Pointer:
    ptr, index = map(f.get, o.operands)
    address = int(f.read(o, ptr, INDEX, index, np.ones(1, bool))[0])
    found = f.cores.pointer(address)
    if found is None:
        raise f.refuse(f"{address:#x} in {ptr.name} is the address of no memory that may be reached so")
    return found


def _alloca(f: Frame, o: KOp) -> Pointer:
    """One slot for each place in a function, however often it is reached."""
    nbytes = o.attrs["count"] * o.results[0].dtype.nbytes
    if id(o) not in f.slots:
        f.slots[id(o)] = Pointer(f.cores.kept(np.full(nbytes, GARBAGE, np.uint8)), 0, "a stack slot")
    return f.slots[id(o)]


def _fail(f: Frame, o: KOp) -> None:
    sync = f.get(o.operands[0])
    word = sync.memory[sync.offset + ERROR_OFFSET :][:4].view(np.int32)
    word[0] = word[0] or o.attrs["site"]


# -- control ----------------------------------------------------------------------------------------------------------
def _for(f: Frame, o: KOp) -> list[Value]:
    low, high, step, *init = o.operands
    region, carried = o.regions[0], [f.get(v) for v in init]
    for i in range(f.number(low), f.number(high), f.number(step)):
        f.values.update((id(p), x) for p, x in zip(region.params, [np.array([i]), *carried], strict=True))
        carried = f.region(region)
    return carried


def _while(f: Frame, o: KOp) -> list[Value]:
    look, again = o.regions
    carried = [f.get(v) for v in o.operands]
    for _ in range(MOST_TRIPS):
        f.values.update((id(p), x) for p, x in zip(look.params, carried, strict=True))
        condition, *carried = f.region(look)
        if not condition[0]:
            return carried
        f.values.update((id(p), x) for p, x in zip(again.params, carried, strict=True))
        carried = f.region(again)
    raise f.refuse(f"a loop goes round more than {MOST_TRIPS} times")


def _if(f: Frame, o: KOp) -> list[Value]:
    return f.region(o.regions[0 if f.get(o.operands[0])[0] else 1])


def _call(f: Frame, o: KOp) -> np.ndarray | None:
    return Frame(o.attrs["callee"], f.cores, f.core).run([f.get(v) for v in o.operands])


def _nothing(f: Frame, o: KOp) -> None:
    """Prefetches, and times that are recorded."""


# -- lanes ------------------------------------------------------------------------------------------------------------
def _binary(f: Frame, o: KOp) -> np.ndarray:
    a, b = map(f.get, o.operands)
    return BINARY[o.opcode](a, b).astype(a.dtype, copy=False)


def _fma(f: Frame, o: KOp) -> np.ndarray:
    """Rounded once from f64, whose own rounding of f32 products is none; f64's from the longest float there is."""
    wide = np.longdouble if o.results[0].dtype.bits == 64 else np.float64
    a, b, c = (f.get(v).astype(wide) for v in o.operands)
    return np.asarray((a * b + c).astype(register_type(o.results[0].dtype)))


def _select(f: Frame, o: KOp) -> Value:
    condition, a, b = map(f.get, o.operands)
    if isinstance(a, Pointer):
        return a if condition[0] else b
    return np.where(condition, a, b)


def _math(f: Frame, o: KOp) -> np.ndarray:
    return function(o.attrs["fn"], f.get(o.operands[0]))


def _scale(f: Frame, o: KOp) -> np.ndarray:
    x, n = map(f.get, o.operands)
    whole = np.clip(np.nan_to_num(n), -5000, 5000).astype(np.int64)
    return np.where(np.isnan(n), n, np.ldexp(x.astype(np.longdouble), whole)).astype(x.dtype)


def _cast(f: Frame, o: KOp) -> np.ndarray:
    return cast(f.get(o.operands[0]), o.operands[0].dtype, o.results[0].dtype)


def _round_to(f: Frame, o: KOp) -> np.ndarray:
    return round_to(f.get(o.operands[0]), o.results[0].dtype, o.attrs["zero"])


def _insert(f: Frame, o: KOp) -> np.ndarray:
    v, x = map(f.get, o.operands)
    v = v.copy()
    v[o.attrs["lane"]] = x[0]
    return np.asarray(v)


def _results_type(o: KOp) -> Any:
    return register_type(o.results[0].dtype)


OPERATIONS: dict[str, Callable[[Frame, KOp], Any]] = {
    **dict.fromkeys(BINARY, _binary),
    "cmp": lambda f, o: COMPARE[o.attrs["pred"]](*map(f.get, o.operands)),
    "neg": lambda f, o: -f.get(o.operands[0]), "fma": _fma, "select": _select, "cast": _cast, "math": _math,
    "round_to": _round_to, "scale": _scale, "bitcast": lambda f, o: f.get(o.operands[0]).view(_results_type(o)),
    "splat": lambda f, o: np.repeat(f.get(o.operands[0]), o.results[0].lanes),
    "ramp": lambda f, o: np.arange(o.results[0].lanes).astype(_results_type(o)),
    "reduce": lambda f, o: np.array([REDUCE[o.attrs["op"]](f.get(o.operands[0]))], _results_type(o)),
    "extract": lambda f, o: f.get(o.operands[0])[o.attrs["lane"] :][:1], "insert": _insert,
    "shuffle": lambda f, o: np.concatenate([f.get(v) for v in o.operands])[list(o.attrs["lanes"])],
    "permute": lambda f, o: permute(*map(f.get, o.operands)),
    "load": _load, "store": _store, "gather": _gather, "scatter": _scatter, "gep": _gep, "alloca": _alloca,
    "load_pointer": _load_pointer,
    "prefetch": _nothing, "stamp": _nothing, "fail": _fail, "for": _for, "if": _if,
    "call": _call, "dot_bf16": lambda f, o: dot_bf16(*map(f.get, o.operands)),
    "dot_i16": lambda f, o: dot_i16(*map(f.get, o.operands)),
    "dot_u8i8": lambda f, o: dot_u8i8(*map(f.get, o.operands), **o.attrs),
    "lookup": lambda f, o: f.get(o.operands[1])[f.get(o.operands[0])],
    "while": _while, "pause": atomics.pause, "yield_core": atomics.pause, "atomic_load": atomics.load,
    "atomic_store": atomics.store, "atomic_add": atomics.add,
    "matrix_shapes": matrices.shapes, "matrix_release": matrices.release, "matrix_zero": matrices.zero,
    "matrix_load": matrices.load, "matrix_store": matrices.store, "matrix_dot": matrices.dot,
}  # fmt: skip

