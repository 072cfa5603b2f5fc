"""The opcodes of the kernel IR: what each takes, gives and does to memory, in one table.

Owns what an operation by itself must be like. `verifier` holds kernels against the table; the emitter of LLVM and the
interpreter have an entry for each opcode of it. It must not know of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, NamedTuple

from ..ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U32, DType
from . import opcode_rules as rules
from .loops import INDEX, KFunc, KOp, KType, PtrType
from .matrix_registers import KINDS, REGISTERS
from .opcode_rules import Mismatch, Rule

Type = KType | PtrType
PREDICATES = ("lt", "le", "gt", "ge", "eq", "ne")
LOAD_ORDERS, STORE_ORDERS = ("relaxed", "acquire"), ("relaxed", "release")
ADD_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
REDUCTIONS = ("add", "mul", "min", "max", "and", "or", "xor")
# unary functions that the backend expands or maps to an LLVM intrinsic
MATH = ("exp", "log", "tanh", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
        "atanh", "sqrt", "abs", "floor", "ceil", "trunc", "round_even", "sigmoid", "log1p", "exp2")


class Effect(Flag):
    """What an operation does besides giving its results; what does nothing may be left out if nobody uses them."""

    NONE = 0
    READS = auto()
    WRITES = auto()
    WAITS = auto()
    CALLS = auto()
    REGISTERS = auto()  # of matrices, which have numbers


class Kind(NamedTuple):
    """What an operand may be: in words, and whether a type is that."""

    text: str
    accepts: Callable[[Any], bool]


def _lanes(text: str, *accepts: Callable[[DType], bool]) -> Kind:
    """Registers of any number of lanes whose element type is one of these."""
    return Kind(text, lambda t: isinstance(t, KType) and any(accept(t.dtype) for accept in accepts))


def _is_real(dtype: DType) -> bool:
    return dtype in (F32, F64)


def _is_whole(dtype: DType) -> bool:
    return dtype.is_int and dtype.bits >= 8


def _is_bool(dtype: DType) -> bool:
    return dtype == BOOL


POINTER = Kind("a pointer", lambda t: isinstance(t, PtrType))
ADDRESSES = Kind("a pointer to i64", lambda t: t == PtrType(I64))
ANY = Kind("a pointer or lanes", lambda t: True)
REGISTER = Kind("lanes of any type", lambda t: isinstance(t, KType))
NUMBER = _lanes("lanes of f32, f64 or integers", _is_real, _is_whole)
ORDERED = _lanes("lanes of f32, f64, integers or bool", _is_real, _is_whole, _is_bool)
REAL = _lanes("lanes of f32 or f64", _is_real)
SINGLE = _lanes("lanes of f32", lambda dtype: dtype == F32)
WHOLE = _lanes("lanes of integers", _is_whole)
BITS = _lanes("lanes of integers or bool", _is_whole, _is_bool)
PAIRS = _lanes("lanes of u32, a pair of bf16 each", lambda dtype: dtype == U32)
SHORTS = _lanes("lanes of i16", lambda dtype: dtype == I16)
UNSIGNED_BYTES = _lanes("lanes of u8", lambda dtype: dtype == U8)
SIGNED_BYTES = _lanes("lanes of i8", lambda dtype: dtype == I8)
INTS = _lanes("lanes of i32", lambda dtype: dtype == I32)
INDICES = _lanes("lanes of i64", lambda dtype: dtype == I64)
MASK = _lanes("lanes of bool", _is_bool)
INDEX_KIND = Kind("an i64 scalar", lambda t: t == INDEX)
CONDITION = Kind("a bool scalar", lambda t: t == KType(BOOL))
SCALAR = Kind("a scalar", lambda t: isinstance(t, KType) and t.lanes == 1)


class Attribute(NamedTuple):
    """What an attribute may be: in words, and whether a value is that; whether it may be left out (or be None)."""

    text: str
    accepts: Callable[[Any], bool]
    optional: bool = False


def _one_of(words: tuple[str, ...]) -> Attribute:
    return Attribute(" ".join(words), lambda v: v in words)


def _whole(least: int, optional: bool = False) -> Attribute:
    return Attribute(f"a whole number from {least}", lambda v: type(v) is int and v >= least, optional)


def _is_power_of_two(v: Any) -> bool:
    return type(v) is int and v > 0 and v & (v - 1) == 0


FLAG = Attribute("true", lambda v: v is True, optional=True)
NUMBER_OF_RESULT = Attribute("a whole number", lambda v: type(v) is int)
ALIGN = Attribute("a power of two", _is_power_of_two)
REGISTER_NUMBER = Attribute(f"below {REGISTERS}", lambda v: type(v) is int and 0 <= v < REGISTERS)
LANE_LIST = Attribute("numbers of lanes", lambda v: isinstance(v, tuple) and all(type(i) is int and i >= 0 for i in v))


@dataclass(frozen=True)
class Opcode:
    """An opcode's contract.

    Attributes:
        name: as KOp.opcode says it. operands: the kind of each. more: kinds of operands that may follow.
        result: the only result's type, from the operands and, where they leave it open, from what the result has;
            None where there is no result, or where `rules` say what the results are.
        alike: numbers of the operands that have one type.
        attributes: by name. effect: on memory and other cores. n_regions: how many it has.
        rules: what else holds, each a function from the operation to what is wrong with it.
        variadic: any number of operands, and results, that the rules judge.
    """

    name: str
    operands: tuple[Kind, ...] = ()
    result: Callable[[KOp], Type] | None = None
    alike: tuple[int, ...] = ()
    more: tuple[Kind, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    effect: Effect = Effect.NONE
    n_regions: int = 0
    rules: tuple[Rule, ...] = ()
    variadic: bool = False

    def mismatches(self, o: KOp) -> Iterator[Mismatch]:
        """What is wrong with an operation of this opcode by itself; the first one may make those behind it wrong."""
        yield from self._operands(o)
        yield from self._attributes(o)
        if len(o.regions) != self.n_regions:
            yield Mismatch("regions", self.n_regions, len(o.regions))
        yield from self._results(o)
        for rule in self.rules:
            yield from rule(o)

    def _operands(self, o: KOp) -> Iterator[Mismatch]:
        least, found = len(self.operands), len(o.operands)
        if found < least or (not self.variadic and found > least + len(self.more)):
            most = " or more" if self.variadic else f" to {least + len(self.more)}" if self.more else ""
            yield Mismatch("operands", f"{least}{most}", found)
        for i, (kind, v) in enumerate(zip(self.operands + self.more, o.operands)):
            if not kind.accepts(v.type):
                yield Mismatch(f"operand {i}", kind.text, v.type)
        for i in self.alike[1:]:
            if o.operands[i].type != o.operands[self.alike[0]].type:
                wanted = f"{o.operands[self.alike[0]].type} as operand {self.alike[0]}"
                yield Mismatch(f"operand {i}", wanted, o.operands[i].type)

    def _attributes(self, o: KOp) -> Iterator[Mismatch]:
        for name in o.attrs:
            if name not in self.attributes:
                yield Mismatch("attributes", " ".join(self.attributes) or "none", name)
        for name, attribute in self.attributes.items():
            value = o.attrs.get(name)
            if value is None and attribute.optional:
                continue
            if not attribute.accepts(value):
                yield Mismatch(f"attribute {name}", attribute.text, value)

    def _results(self, o: KOp) -> Iterator[Mismatch]:
        if self.variadic:
            return
        if len(o.results) != (self.result is not None):
            yield Mismatch("results", int(self.result is not None), len(o.results))
        elif self.result is not None and o.results[0].type != self.result(o):
            yield Mismatch("the result", self.result(o), o.results[0].type)


# -- types of results ---------------------------------------------------------------------------------------------
def _same(number: int) -> Callable[[KOp], Type]:
    """That of an operand."""
    def of(o: KOp) -> Type:
        found: Type = o.operands[number].type
        return found
    return of


def _scalar_of_first(o: KOp) -> Type:
    return KType(o.operands[0].dtype)


def _elements(o: KOp) -> Type:
    """As many lanes as the result has, of what the pointer points to."""
    return KType(o.operands[0].dtype, o.results[0].lanes)


def _element(o: KOp) -> Type:
    """What the pointer points to."""
    return KType(o.operands[0].dtype)


def _binary(names: str, kind: Kind, *more: Rule, **attributes: Attribute) -> list[Opcode]:
    return [Opcode(n, (kind, kind), _same(0), (0, 1), attributes=attributes, rules=more) for n in names.split()]


_ALL = (
    *_binary("add sub mul", NUMBER, rules.rounds_floats, rounds=FLAG), *_binary("div rem pow", NUMBER),
    *_binary("min max", ORDERED), *_binary("and or xor", BITS), *_binary("shl shr udiv urem", WHOLE),
    Opcode("cmp", (ORDERED, ORDERED), lambda o: KType(BOOL, o.operands[0].lanes), (0, 1),
           attributes={"pred": _one_of(PREDICATES)}),
    Opcode("neg", (REAL,), _same(0)), Opcode("fma", (REAL, REAL, REAL), _same(0), (0, 1, 2)),
    Opcode("dot_bf16", (PAIRS, PAIRS, SINGLE), _same(2), (0, 1), rules=(rules.as_many_lanes,)),
    Opcode("dot_i16", (SHORTS, SHORTS, INTS), _same(2), (0, 1), rules=(rules.twice_as_many_lanes,)),
    Opcode("dot_u8i8", (UNSIGNED_BYTES, SIGNED_BYTES, INTS), _same(2), attributes={"pairs_in_i16": FLAG},
           rules=(rules.four_times_as_many_lanes,)),
    Opcode("lookup", (UNSIGNED_BYTES, UNSIGNED_BYTES), _same(0), rules=(rules.has_an_entry_for_each_byte,)),
    Opcode("select", (MASK, ANY, ANY), _same(1), (1, 2), rules=(rules.selects_by_lane_or_once,)),
    Opcode("cast", (REGISTER,), lambda o: KType(o.results[0].dtype, o.operands[0].lanes),
           attributes={"in_range": FLAG, "flushes": FLAG}, rules=(rules.casts_within_range, rules.flushes_bf16)),
    Opcode("round_to", (SINGLE,), lambda o: KType(o.results[0].dtype, o.operands[0].lanes),
           attributes={"zero": NUMBER_OF_RESULT}, rules=(rules.rounds_to_narrow,)),
    Opcode("bitcast", (REGISTER,), lambda o: KType(o.results[0].dtype, o.results[0].lanes),
           rules=(rules.keeps_bits,)),
    Opcode("math", (NUMBER,), _same(0), attributes={"fn": _one_of(MATH), "libm": FLAG}),
    Opcode("scale", (REAL, REAL), _same(0), (0, 1)),
    Opcode("splat", (SCALAR,), lambda o: KType(o.operands[0].dtype, o.results[0].lanes)),
    Opcode("ramp", (), lambda o: KType(o.results[0].dtype, o.results[0].lanes), rules=(rules.gives_whole_numbers,)),
    Opcode("reduce", (ORDERED,), _scalar_of_first, attributes={"op": _one_of(REDUCTIONS)},
           rules=(rules.reduces_bits_of_no_float,)),
    Opcode("extract", (REGISTER,), _scalar_of_first, attributes={"lane": _whole(0)}, rules=(rules.lane_is_there,)),
    Opcode("insert", (REGISTER, SCALAR), _same(0), attributes={"lane": _whole(0)},
           rules=(rules.lane_is_there, rules.inserts_an_element)),
    Opcode("shuffle", (REGISTER, REGISTER), lambda o: KType(o.operands[0].dtype, len(o.attrs["lanes"])), (0, 1),
           attributes={"lanes": LANE_LIST}, rules=(rules.shuffled_lanes_are_there,)),
    Opcode("permute", (NUMBER, NUMBER, INTS), _same(0), (0, 1), rules=(rules.permutes_lane_by_lane,)),
    Opcode("load", (POINTER, INDEX_KIND), _elements, more=(MASK,), attributes={"align": ALIGN._replace(optional=True)},
           effect=Effect.READS, rules=(rules.mask_has_the_results_lanes,)),
    Opcode("store", (POINTER, INDEX_KIND, REGISTER), more=(MASK,), attributes={"align": ALIGN._replace(optional=True)},
           effect=Effect.WRITES, rules=(rules.stores_elements, rules.mask_has_the_values_lanes)),
    Opcode("gather", (POINTER, INDICES), lambda o: KType(o.operands[0].dtype, o.operands[1].lanes), more=(MASK,),
           effect=Effect.READS, rules=(rules.mask_has_the_results_lanes,)),
    Opcode("scatter", (POINTER, INDICES, REGISTER), more=(MASK,), effect=Effect.WRITES,
           rules=(rules.stores_elements, rules.mask_has_the_values_lanes, rules.scatters_lane_by_lane)),
    Opcode("gep", (POINTER, INDEX_KIND), _same(0)),
    Opcode("load_pointer", (ADDRESSES, INDEX_KIND), lambda o: PtrType(o.results[0].dtype), effect=Effect.READS),
    Opcode("alloca", (), lambda o: PtrType(o.results[0].dtype), attributes={"count": _whole(1), "align": ALIGN}),
    Opcode("prefetch", (POINTER, INDEX_KIND),
           attributes={"level": Attribute("1 or 2", lambda v: v in (1, 2))}, effect=Effect.READS),
    Opcode("atomic_load", (POINTER, INDEX_KIND), _element, attributes={"order": _one_of(LOAD_ORDERS)},
           effect=Effect.READS, rules=(rules.is_of_atomic_width,)),
    Opcode("atomic_store", (POINTER, INDEX_KIND, SCALAR), attributes={"order": _one_of(STORE_ORDERS)},
           effect=Effect.WRITES, rules=(rules.is_of_atomic_width, rules.stores_elements)),
    Opcode("atomic_add", (POINTER, INDEX_KIND, SCALAR), _element, attributes={"order": _one_of(ADD_ORDERS)},
           effect=Effect.READS | Effect.WRITES, rules=(rules.is_of_atomic_width, rules.stores_elements)),
    Opcode("matrix_shapes", attributes={"rows": LANE_LIST, "nbytes": LANE_LIST}, effect=Effect.REGISTERS,
           rules=(rules.matrices_have_such_shapes,)),
    Opcode("matrix_release", effect=Effect.REGISTERS),
    Opcode("matrix_zero", attributes={"number": REGISTER_NUMBER}, effect=Effect.REGISTERS),
    Opcode("matrix_load", (POINTER, INDEX_KIND, INDEX_KIND), attributes={"number": REGISTER_NUMBER},
           effect=Effect.READS | Effect.REGISTERS),
    Opcode("matrix_store", (POINTER, INDEX_KIND, INDEX_KIND), attributes={"number": REGISTER_NUMBER},
           effect=Effect.WRITES | Effect.REGISTERS),
    Opcode("matrix_dot", effect=Effect.REGISTERS, rules=(rules.multiplies_other_matrices,),
           attributes={"kind": _one_of(tuple(KINDS)), **dict.fromkeys(("sums", "a", "b"), REGISTER_NUMBER)}),
    Opcode("pause", (), effect=Effect.WAITS), Opcode("yield_core", (), effect=Effect.WAITS),
    Opcode("fail", (POINTER,), attributes={"site": _whole(1)}, effect=Effect.WRITES),
    Opcode("stamp", (POINTER, INDEX_KIND), attributes={"number": _whole(0)}, effect=Effect.CALLS),
    Opcode("call", variadic=True, attributes={"callee": Attribute("a function", lambda v: isinstance(v, KFunc))},
           effect=Effect.CALLS, rules=(rules.calls_by_signature,)),
    Opcode("for", (INDEX_KIND, INDEX_KIND, INDEX_KIND), n_regions=1, variadic=True,
           rules=(rules.steps_forwards, rules.carries_its_types)),
    Opcode("while", (), n_regions=2, variadic=True, rules=(rules.looks_and_goes_on,)),
    Opcode("if", (CONDITION,), n_regions=2, variadic=True, rules=(rules.has_no_more_operands, rules.branches_agree)),
)  # fmt: skip
OPCODES: dict[str, Opcode] = {opcode.name: opcode for opcode in _ALL}
