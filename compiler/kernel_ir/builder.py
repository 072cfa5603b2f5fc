"""Builds kernel IR: the `k` (or `e`) that kernels and the operators' `compute` receive.

Owns typing, splatting of scalars, folding of constant index arithmetic and loop unrolling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...errors import InternalError
from ..ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, Dim, DType, SymDim
from .constants import COMPARE, FOLD
from .dims import dim_value
from .entry import Entry
from .loops import INDEX, KFunc, KOp, KType, PtrType, Region
from .opcodes import MATH

Number = int | float | bool


class KValue:
    """An SSA value of a kernel, with Python's arithmetic and comparison operators.

    `const` is a Python number for constants (then no operation defines it); `narrow` what was widened to it.
    """

    __slots__ = ("type", "builder", "const", "name", "narrow")

    def __init__(self, type: KType | PtrType, builder: Builder, const: Number | None = None, name: str = "") -> None:
        self.type, self.builder, self.const, self.name = type, builder, const, name
        self.narrow: KValue | None = None

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def lanes(self) -> int:
        return self.type.lanes if isinstance(self.type, KType) else 1

    def __add__(self, o: Any) -> KValue: return self.builder.binary("add", self, o)
    def __radd__(self, o: Any) -> KValue: return self.builder.binary("add", o, self)
    def __sub__(self, o: Any) -> KValue: return self.builder.binary("sub", self, o)
    def __rsub__(self, o: Any) -> KValue: return self.builder.binary("sub", o, self)
    def __mul__(self, o: Any) -> KValue: return self.builder.binary("mul", self, o)
    def __rmul__(self, o: Any) -> KValue: return self.builder.binary("mul", o, self)
    def __truediv__(self, o: Any) -> KValue: return self.builder.binary("div", self, o)
    def __rtruediv__(self, o: Any) -> KValue: return self.builder.binary("div", o, self)
    def __floordiv__(self, o: Any) -> KValue: return self.builder.binary("udiv", self, o)
    def __mod__(self, o: Any) -> KValue: return self.builder.binary("rem", self, o)
    def __and__(self, o: Any) -> KValue: return self.builder.binary("and", self, o)
    def __or__(self, o: Any) -> KValue: return self.builder.binary("or", self, o)
    def __xor__(self, o: Any) -> KValue: return self.builder.binary("xor", self, o)
    def __lshift__(self, o: Any) -> KValue: return self.builder.binary("shl", self, o)
    def __rshift__(self, o: Any) -> KValue: return self.builder.binary("shr", self, o)
    def __neg__(self) -> KValue: return self.builder.neg(self)
    def __invert__(self) -> KValue: return self.builder.bit_not(self)
    def __lt__(self, o: Any) -> KValue: return self.builder.compare("lt", self, o)
    def __le__(self, o: Any) -> KValue: return self.builder.compare("le", self, o)
    def __gt__(self, o: Any) -> KValue: return self.builder.compare("gt", self, o)
    def __ge__(self, o: Any) -> KValue: return self.builder.compare("ge", self, o)
    def __eq__(self, o: Any) -> KValue: return self.builder.compare("eq", self, o)  # type: ignore[override]
    def __ne__(self, o: Any) -> KValue: return self.builder.compare("ne", self, o)  # type: ignore[override]
    __hash__ = object.__hash__


class Builder:
    """Appends operations to the current region of one function.

    Args:
        name: the function's name. params: (name, type) pairs.
        symbols: names of the graph's symbolic dimensions, in the order of the `dims` array.
    """

    def __init__(self, name: str, params: Sequence[tuple[str, KType | PtrType]], symbols: Sequence[str] = (),
                 returns: KType | None = None, inline: str = "") -> None:
        values = [KValue(t, self, name=n) for n, t in params]
        self.func = KFunc(name, values, Region(), returns, inline)
        self.params = {v.name: v for v in values}
        self.symbols = {s: i for i, s in enumerate(symbols)}
        self.entry: Entry[KValue] = Entry(self.func.body, lambda t: KValue(t, self))
        self._region = self.func.body
        self._rounds = False

    @contextmanager
    def rounding(self) -> Iterator[None]:
        """Sums, differences and products of floats made meanwhile round by themselves, in no fused multiply-add."""
        before, self._rounds = self._rounds, True
        yield
        self._rounds = before

    def __getitem__(self, param: str) -> KValue:
        return self.params[param]

    # -- constants and coercion ---------------------------------------------------------------------------
    def const(self, value: Number, like: KValue | KType | DType) -> KValue:
        """A constant of the type of `like` (all lanes alike)."""
        t = like.type if isinstance(like, KValue) else KType(like) if isinstance(like, DType) else like
        assert isinstance(t, KType)
        value = bool(value) if t.dtype == BOOL else float(value) if t.dtype.is_float else int(value)
        return KValue(t, self, const=value)

    def index(self, value: int | KValue | Dim, dims: str = "dims") -> KValue:
        """An i64 value from an int, a value or a symbolic dimension; `dims`: the parameter with the symbols' values."""
        if isinstance(value, KValue):
            return value
        if isinstance(value, SymDim):
            return dim_value(self, value, dims)
        return KValue(INDEX, self, const=int(value))

    def _pair(self, a: Any, b: Any) -> tuple[KValue, KValue]:
        if not isinstance(a, KValue):
            a = self.index(a) if isinstance(a, SymDim) else self.const(a, b)
        if not isinstance(b, KValue):
            b = self.index(b) if isinstance(b, SymDim) else self.const(b, a)
        if a.lanes != b.lanes:
            a, b = (self.splat(a, b.lanes), b) if a.lanes == 1 else (a, self.splat(b, a.lanes))
        if a.type != b.type:
            raise InternalError(f"operands of different types {a.type} and {b.type}", where=f"kernel {self.func.name}")
        return a, b

    # -- operations ---------------------------------------------------------------------------------------
    def op(self, opcode: str, operands: Sequence[KValue], result: KType | PtrType | None = None,
           regions: list[Region] | None = None, **attrs: Any) -> KValue:
        """Append an operation with at most one result; what is computed of sizes alone, at the function's entry."""
        if isinstance(result, KType) and not regions and self.entry.takes(opcode, operands):
            return self.entry.value(opcode, operands, result, attrs)
        o = KOp(opcode, tuple(operands), attrs, regions or [])
        self._region.ops.append(o)
        if result is None:
            return None  # type: ignore[return-value]
        v = KValue(result, self)
        o.results.append(v)
        return v

    def binary(self, opcode: str, a: Any, b: Any) -> KValue:
        """add sub mul div rem min max and or xor shl shr udiv urem on equal types (scalars are splatted)."""
        a, b = self._pair(a, b)
        if a.dtype == I64 and a.const is not None and b.const is not None and opcode in FOLD:
            folded = FOLD[opcode](a.const, b.const)
            if folded is not None and -(2**63) <= folded < 2**63:
                return KValue(a.type, self, const=folded)
        if a.dtype.is_int:
            x, y = a.const, b.const
            if (opcode == "add" and y == 0) or (opcode in ("mul", "udiv") and y == 1) or (opcode == "sub" and y == 0):
                return a
            if (opcode == "add" and x == 0) or (opcode == "mul" and x == 1):
                return b
            if (opcode == "mul" and 0 in (x, y)) or (opcode == "urem" and y == 1):
                return KValue(a.type, self, const=0)
        alone = self._rounds and a.dtype.is_float and opcode in ("add", "sub", "mul")
        return self.op(opcode, (a, b), a.type, rounds=True) if alone else self.op(opcode, (a, b), a.type)

    def compare(self, predicate: str, a: Any, b: Any) -> KValue:
        """lt le gt ge eq ne (ordered for floats, except ne, which is true on NaN)."""
        a, b = self._pair(a, b)
        if a.dtype == I64 and a.const is not None and b.const is not None:
            return KValue(KType(BOOL, a.lanes), self, const=COMPARE[predicate](a.const, b.const))
        return self.op("cmp", (a, b), KType(BOOL, a.lanes), pred=predicate)

    def neg(self, a: KValue) -> KValue:
        return self.op("neg", (a,), a.type) if a.dtype.is_float else self.binary("sub", self.const(0, a), a)

    def bit_not(self, a: KValue) -> KValue:
        return self.binary("xor", a, self.const(True if a.dtype == BOOL else -1, a))

    def min(self, a: Any, b: Any) -> KValue: return self.binary("min", a, b)
    def max(self, a: Any, b: Any) -> KValue: return self.binary("max", a, b)
    def udiv(self, a: Any, b: Any) -> KValue: return self.binary("udiv", *self._indices(a, b))
    def urem(self, a: Any, b: Any) -> KValue: return self.binary("urem", *self._indices(a, b))
    def pow(self, a: Any, b: Any) -> KValue: return self.binary("pow", a, b)

    def _indices(self, a: Any, b: Any) -> tuple[KValue, KValue]:
        return self.index(a), self.index(b)

    def clip(self, x: KValue, low: Any, high: Any) -> KValue:
        return self.min(self.max(x, low), high)

    def fma(self, a: Any, b: Any, c: Any) -> KValue:
        """a * b + c, rounded once."""
        a, b = self._pair(a, b)
        a, c = self._pair(a, c)
        b, c = self._pair(b, c)
        return self.op("fma", (a, b, c), a.type)

    def select(self, cond: KValue, a: Any, b: Any) -> KValue:
        a, b = self._pair(a, b)
        if cond.const is not None and cond.lanes == 1:
            return a if cond.const else b
        if cond.lanes == 1 and a.lanes > 1:
            return self.op("select", (cond, a, b), a.type)
        if a.lanes != cond.lanes:
            a, b = self.splat(a, cond.lanes), self.splat(b, cond.lanes)
        return self.op("select", (cond, a, b), a.type)

    def cast(self, a: KValue, dtype: DType) -> KValue:
        """C-like conversion; float → int truncates and saturates (NaN gives 0); anything → bool is `!= 0`."""
        if a.dtype == dtype:
            return a
        if a.narrow is not None and a.narrow.dtype == dtype:
            return a.narrow
        if dtype == BOOL:
            return self.compare("ne", a, self.const(0, a))
        if a.const is not None and not dtype.is_float and not a.dtype.is_float:
            return self.const(a.const, KType(dtype, a.lanes))
        result = self.op("cast", (a,), KType(dtype, a.lanes))
        result.narrow = a if dtype == F32 and a.dtype in (F16, BF16) else None
        return result

    def round_to(self, a: KValue, dtype: DType, zero: int = 0) -> KValue:
        """f32 → 8 or 16 bits: rounded half to even, plus `zero`, a number of `dtype`, saturated (NaN gives 0)."""
        return self.op("round_to", (a,), KType(dtype, a.lanes), zero=zero)

    def bitcast(self, a: KValue, dtype: DType) -> KValue:
        return self.op("bitcast", (a,), KType(dtype, a.lanes * a.dtype.nbytes // dtype.nbytes))

    def round_to_bf16(self, a: KValue) -> KValue: return self.op("cast", (a,), KType(BF16, a.lanes), flushes=True)
    def math(self, fn: str, a: KValue) -> KValue: return self.op("math", (a,), a.type, fn=fn)
    def is_nan(self, a: KValue) -> KValue: return self.compare("ne", a, a)
    def is_inf(self, a: KValue) -> KValue: return self.compare("eq", self.math("abs", a), self.const(math.inf, a))

    # -- vectors ------------------------------------------------------------------------------------------
    def splat(self, a: KValue, lanes: int) -> KValue:
        if a.lanes == lanes:
            return a
        if a.const is not None:
            return KValue(KType(a.dtype, lanes), self, const=a.const)
        return self.op("splat", (a,), KType(a.dtype, lanes))

    def ramp(self, lanes: int, dtype: DType = I64) -> KValue:
        """<0, 1, 2, …>."""
        return self.op("ramp", (), KType(dtype, lanes))

    def tail_mask(self, count: KValue, lanes: int) -> KValue:
        """Lane i is on iff i < count (count: i64 scalar)."""
        narrow = self.cast(self.min(self.max(count, 0), lanes), I32)
        return self.compare("lt", self.ramp(lanes, I32), self.splat(narrow, lanes))

    def reduce(self, opcode: str, v: KValue) -> KValue:
        """Horizontal add, mul, min, max, and, or, xor of the lanes."""
        return v if v.lanes == 1 else self.op("reduce", (v,), KType(v.dtype), op=opcode)

    def extract(self, v: KValue, lane: int) -> KValue:
        return self.op("extract", (v,), KType(v.dtype), lane=lane)

    def insert(self, v: KValue, x: KValue, lane: int) -> KValue:
        return self.op("insert", (v, x), v.type, lane=lane)

    def shuffle(self, a: KValue, b: KValue, lanes: Sequence[int]) -> KValue:
        """Lanes picked from the concatenation of `a` and `b`."""
        return self.op("shuffle", (a, b), KType(a.dtype, len(lanes)), lanes=tuple(lanes))

    # -- memory -------------------------------------------------------------------------------------------
    def load(self, ptr: KValue, index: Any = 0, lanes: int = 1, mask: KValue | None = None,
             align: int | None = None) -> KValue:
        """`lanes` consecutive elements from ptr[index] (masked lanes give 0). align: bytes, default the element's."""
        operands = (ptr, self.index(index)) + ((mask,) if mask is not None else ())
        return self.op("load", operands, KType(ptr.dtype, lanes), align=align)

    def store(self, ptr: KValue, index: Any, value: KValue, mask: KValue | None = None,
              align: int | None = None) -> None:
        operands = (ptr, self.index(index), value) + ((mask,) if mask is not None else ())
        self.op("store", operands, None, align=align)

    def gather(self, ptr: KValue, index: KValue, mask: KValue | None = None) -> KValue:
        """ptr[index[i]] for each lane i of an i64 index vector."""
        operands = (ptr, index) + ((mask,) if mask is not None else ())
        return self.op("gather", operands, KType(ptr.dtype, index.lanes))

    def scatter(self, ptr: KValue, index: KValue, value: KValue, mask: KValue | None = None) -> None:
        self.op("scatter", (ptr, index, value) + ((mask,) if mask is not None else ()), None)

    def gep(self, ptr: KValue, index: Any) -> KValue:
        """The pointer to ptr[index]."""
        index = self.index(index)
        return ptr if index.const == 0 else self.op("gep", (ptr, index), ptr.type)

    def load_pointer(self, ptr: KValue, index: Any, dtype: DType = U8) -> KValue:
        """The pointer to elements of `dtype` whose address is ptr[index], an i64."""
        return self.op("load_pointer", (ptr, self.index(index)), PtrType(dtype))

    def alloca(self, dtype: DType, count: int, align: int = 64) -> KValue:
        """Stack scratch of `count` elements (keep it under 64 KiB)."""
        return self.op("alloca", (), PtrType(dtype), count=count, align=align)

    def prefetch(self, ptr: KValue, index: Any = 0, level: int = 1) -> None:
        """Ask for the cache line of ptr[index] in the cache of that level (1 or 2)."""
        self.op("prefetch", (ptr, self.index(index)), None, level=level)

    # -- control ------------------------------------------------------------------------------------------
    def _inside(self, region: Region, build: Callable[[], Any]) -> Any:
        outer, self._region = self._region, region
        try:
            return build()
        finally:
            self._region = outer

    def for_(self, lo: Any, hi: Any, step: int, init: Sequence[KValue], body: Callable[..., Any],
             unroll: int = 1) -> list[KValue]:
        """`for iv in range(lo, hi, step)` with carried values; body(iv, carried) returns the new carried values.

        A trip count known to be 1 needs no loop; `unroll` repeats the body and adds a remainder loop.
        """
        lo, hi = self.index(lo), self.index(hi)
        if lo.const is not None and hi.const is not None:
            trips = max(0, -(-(int(hi.const) - int(lo.const)) // step))
            if trips == 0:
                return list(init)
            if trips == 1:
                return list(body(lo, list(init)) or [])
        if unroll > 1:
            wide = step * unroll
            middle = lo + self.udiv(self.max(hi - lo, 0), wide) * wide

            def several(iv: KValue, carried: list[KValue]) -> list[KValue]:
                for u in range(unroll):
                    carried = list(body(iv + u * step, carried) or [])
                return carried

            carried = self.for_(lo, middle, wide, init, several)
            return self.for_(middle, hi, step, carried, body)
        region = Region()
        iv = KValue(INDEX, self)
        region.params = [iv] + [KValue(v.type, self) for v in init]
        region.yields = list(self._inside(region, lambda: body(iv, region.params[1:])) or [])
        o = KOp("for", (lo, hi, self.index(step), *init), {}, [region])
        o.results = [KValue(v.type, self) for v in init]
        self._region.ops.append(o)
        return o.results

    def while_(self, init: Sequence[KValue], look: Callable[[list[KValue]], tuple[KValue, Sequence[KValue]]],
               body: Callable[[list[KValue]], Sequence[KValue]]) -> list[KValue]:
        """A loop while `look` says so, which returns that and the values for `body`; the values that it saw last."""
        regions = [Region([KValue(v.type, self) for v in init]) for _ in range(2)]
        condition, seen = self._inside(regions[0], lambda: look(regions[0].params))
        regions[0].yields = [condition, *seen]
        regions[1].yields = list(self._inside(regions[1], lambda: body(regions[1].params)))
        o = KOp("while", tuple(init), {}, regions)
        o.results = [KValue(v.type, self) for v in init]
        self._region.ops.append(o)
        return o.results

    def if_(self, cond: KValue, then: Callable[[], Any], orelse: Callable[[], Any] | None = None) -> list[KValue]:
        """A conditional; both branches return lists of values of the same types."""
        if cond.const is not None:
            return list((then() if cond.const else orelse() if orelse else None) or [])
        regions = [Region(), Region()]
        regions[0].yields = list(self._inside(regions[0], then) or [])
        if orelse is not None:
            regions[1].yields = list(self._inside(regions[1], orelse) or [])
        o = KOp("if", (cond,), {}, regions)
        o.results = [KValue(v.type, self) for v in regions[0].yields]
        self._region.ops.append(o)
        return o.results

    def call(self, func: KFunc, args: Sequence[Any]) -> KValue:
        """Call another kernel function (registered as a callee)."""
        self.func.callees[func.name] = func
        values = [a if isinstance(a, KValue) else self.index(a) for a in args]
        return self.op("call", values, func.returns, callee=func)

    def stamp(self, number: int) -> None:
        """Record the time under a number, where a trace is kept (parameters `sync` and `tid`)."""
        self.op("stamp", (self.params["sync"], self.params["tid"]), None, number=number)

    def ret(self, value: KValue) -> None:
        """The function's result; once, at the end of its body."""
        self.func.body.yields = [value]

    def fail(self, site: int) -> None:
        """Report error site `site` (> 0): the call ends with it; the kernel itself goes on with safe values."""
        self.op("fail", (self.params["sync"],), None, site=site)


def _math(fn: str) -> Callable[[Builder, KValue], KValue]:
    def method(self: Builder, a: KValue) -> KValue:
        return self.math(fn, a)
    method.__name__ = fn
    method.__doc__ = f"{fn}(a), lane by lane."
    return method


for _fn in MATH:
    setattr(Builder, _fn, _math(_fn))

F32PTR, I64PTR, BYTES = PtrType(F32), PtrType(I64), PtrType(U8)


def kernel(name: str, operands: Sequence[tuple[str, PtrType]], symbols: Sequence[str] = ()) -> Builder:
    """A builder for a kernel in the one calling convention (operands, dims, sync, begin, end)."""
    tail: list[tuple[str, KType | PtrType]] = [("dims", I64PTR), ("sync", BYTES), ("begin", INDEX), ("end", INDEX)]
    return Builder(name, [*operands, *tail], symbols)


__all__ = ["BOOL", "BYTES", "F32", "F32PTR", "F64", "I32", "I64", "I64PTR", "Builder", "KValue", "kernel"]
