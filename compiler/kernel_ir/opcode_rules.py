"""What holds of single operations of the kernel IR besides the kinds of their operands: a function for each rule.

A rule takes an operation whose operands are of the right kinds and number, and gives what is wrong with it. It must
not look beyond the operation and the edges of its regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..ir.types import BF16, BOOL, F32, I32, I64, U8, U32, U64
from .loops import INDEX, KOp, KType, PtrType
from .matrix_registers import ELEMENT_NBYTES, MOST_NBYTES, MOST_ROWS, REGISTERS


class Mismatch(NamedTuple):
    """What of an operation is wrong, and both sides of it."""

    what: str
    expected: object
    found: object


Rule = Callable[[KOp], Iterator[Mismatch]]


def types_text(values: Sequence[Any]) -> str:
    """The types of values, as text."""
    return f"({', '.join(str(v.type) for v in values)})"


def _same_types(what: str, wanted: Sequence[Any], found: Sequence[Any]) -> Iterator[Mismatch]:
    if [v.type for v in wanted] != [v.type for v in found]:
        yield Mismatch(what, types_text(wanted), types_text(found))


# -- lanes ------------------------------------------------------------------------------------------------------------
def rounds_floats(o: KOp) -> Iterator[Mismatch]:
    """Only floats are rounded."""
    if o.attrs.get("rounds") and not o.operands[0].dtype.is_float:
        yield Mismatch("attribute rounds", "floats", o.operands[0].type)


def as_many_lanes(o: KOp) -> Iterator[Mismatch]:
    """A pair for each sum."""
    pairs, sums = o.operands[0], o.operands[2]
    if pairs.lanes != sums.lanes:
        yield Mismatch("operand 2", f"{pairs.lanes} lanes", sums.type)


def twice_as_many_lanes(o: KOp) -> Iterator[Mismatch]:
    """Two neighbouring lanes for each sum."""
    pairs, sums = o.operands[0], o.operands[2]
    if pairs.lanes != 2 * sums.lanes:
        yield Mismatch("operand 0", f"{2 * sums.lanes} lanes", pairs.type)


def four_times_as_many_lanes(o: KOp) -> Iterator[Mismatch]:
    """Four neighbouring lanes for each sum."""
    sums = o.operands[2]
    for i, v in enumerate(o.operands[:2]):
        if v.lanes != 4 * sums.lanes:
            yield Mismatch(f"operand {i}", f"{4 * sums.lanes} lanes", v.type)


def has_an_entry_for_each_byte(o: KOp) -> Iterator[Mismatch]:
    """256 lanes of the table."""
    if o.operands[1].lanes != 256:
        yield Mismatch("operand 1", "256 lanes", o.operands[1].type)


def selects_by_lane_or_once(o: KOp) -> Iterator[Mismatch]:
    """A condition for each lane or one for all; one for pointers."""
    condition, chosen = o.operands[0], o.operands[1]
    if condition.lanes not in (1, chosen.lanes):
        yield Mismatch("operand 0", f"1 or {chosen.lanes} lanes", condition.type)


def casts_within_range(o: KOp) -> Iterator[Mismatch]:
    """A promise of the range is one about floats that become i32."""
    a, result = o.operands[0], o.results[0]
    if o.attrs.get("in_range") and not (a.dtype.is_float and result.dtype == I32):
        yield Mismatch("attribute in_range", "floats to i32", f"{a.type} to {result.type}")


def flushes_bf16(o: KOp) -> Iterator[Mismatch]:
    """Leave to take denormals for zeros is one about floats of f32 that become bf16."""
    a, result = o.operands[0], o.results[0]
    if o.attrs.get("flushes") and not (a.dtype == F32 and result.dtype == BF16):
        yield Mismatch("attribute flushes", "f32 to bf16", f"{a.type} to {result.type}")


def rounds_to_narrow(o: KOp) -> Iterator[Mismatch]:
    """Integers of 8 or 16 bits, of which the zero point is one."""
    to = o.results[0].dtype
    if not to.is_int or to.bits > 16:
        yield Mismatch("the result", "integers of 8 or 16 bits", to)
        return
    least = -(2 ** (to.bits - 1)) if to.is_signed else 0
    if not least <= o.attrs["zero"] < least + 2**to.bits:
        yield Mismatch("attribute zero", f"a number of {to}", o.attrs["zero"])


def keeps_bits(o: KOp) -> Iterator[Mismatch]:
    """The width of all lanes together stays."""
    a, result = o.operands[0], o.results[0]
    if a.lanes * a.dtype.nbytes != result.lanes * result.dtype.nbytes:
        yield Mismatch("the result", f"{8 * a.lanes * a.dtype.nbytes} bits", result.type)


def gives_whole_numbers(o: KOp) -> Iterator[Mismatch]:
    """The numbers of lanes are integers, or floats that hold them."""
    t = o.results[0].type
    if not (t.dtype.is_int or (t.dtype.is_float and t.dtype.bits >= F32.bits)):
        yield Mismatch("the result", "integers, f32 or f64", t)


def reduces_bits_of_no_float(o: KOp) -> Iterator[Mismatch]:
    """and, or and xor are of bits; sums are of numbers."""
    dtype, op = o.operands[0].dtype, o.attrs["op"]
    if op in ("and", "or", "xor") and dtype.is_float:
        yield Mismatch("attribute op", "add mul min max of floats", op)
    if op in ("add", "mul") and not (dtype.is_float or dtype.is_int):
        yield Mismatch("attribute op", "and or xor min max of bool", op)


def lane_is_there(o: KOp) -> Iterator[Mismatch]:
    """The lane is one of the vector's."""
    if o.attrs["lane"] >= o.operands[0].lanes:
        yield Mismatch("attribute lane", f"below {o.operands[0].lanes}", o.attrs["lane"])


def inserts_an_element(o: KOp) -> Iterator[Mismatch]:
    """What is put into a vector is of its element type."""
    v, x = o.operands
    if v.dtype != x.dtype:
        yield Mismatch("operand 1", KType(v.dtype), x.type)


def shuffled_lanes_are_there(o: KOp) -> Iterator[Mismatch]:
    """Every lane is one of both vectors', and there is one."""
    both, lanes = 2 * o.operands[0].lanes, o.attrs["lanes"]
    if not lanes or max(lanes) >= both:
        yield Mismatch("attribute lanes", f"some, below {both}", list(lanes))


def permutes_lane_by_lane(o: KOp) -> Iterator[Mismatch]:
    """A number for each lane, of as many lanes as numbers modulo their double are cut out of."""
    n, index = o.operands[0].lanes, o.operands[2]
    if index.lanes != n or n & (n - 1):
        yield Mismatch("operand 2", f"{n} lanes, a power of two", index.type)


# -- memory -----------------------------------------------------------------------------------------------------------
def mask_has_the_results_lanes(o: KOp) -> Iterator[Mismatch]:
    """A bit for each lane that is read."""
    for mask in o.operands[2:]:
        if mask.lanes != o.results[0].lanes:
            yield Mismatch("operand 2", f"{o.results[0].lanes} lanes", mask.type)


def mask_has_the_values_lanes(o: KOp) -> Iterator[Mismatch]:
    """A bit for each lane that is written."""
    for mask in o.operands[3:]:
        if mask.lanes != o.operands[2].lanes:
            yield Mismatch("operand 3", f"{o.operands[2].lanes} lanes", mask.type)


def stores_elements(o: KOp) -> Iterator[Mismatch]:
    """What is written is what the pointer points to."""
    ptr, value = o.operands[0], o.operands[2]
    if ptr.dtype != value.dtype:
        yield Mismatch("operand 2", f"lanes of {ptr.dtype}", value.type)


def scatters_lane_by_lane(o: KOp) -> Iterator[Mismatch]:
    """An index for each lane."""
    index, value = o.operands[1], o.operands[2]
    if index.lanes != value.lanes:
        yield Mismatch("operand 2", f"{index.lanes} lanes", value.type)


def is_of_atomic_width(o: KOp) -> Iterator[Mismatch]:
    """What every target reads and writes as a whole, and adds to: words of 32 and 64 bits."""
    if o.operands[0].dtype not in (I32, U32, I64, U64):
        yield Mismatch("operand 0", "a pointer to integers of 32 or 64 bits", o.operands[0].type)


# -- matrix registers -------------------------------------------------------------------------------------------------
def matrices_have_such_shapes(o: KOp) -> Iterator[Mismatch]:
    """A size for each register, both numbers 0 where it is not used; whole elements."""
    for name, most, unit in (("rows", MOST_ROWS, 1), ("nbytes", MOST_NBYTES, ELEMENT_NBYTES)):
        sizes = o.attrs[name]
        if len(sizes) != REGISTERS or any(n > most or n % unit for n in sizes):
            yield Mismatch(f"attribute {name}", f"{REGISTERS} multiples of {unit} up to {most}", list(sizes))
            return
    if [n > 0 for n in o.attrs["rows"]] != [n > 0 for n in o.attrs["nbytes"]]:
        yield Mismatch("attribute nbytes", "0 where there are no rows, and nowhere else", list(o.attrs["nbytes"]))


def multiplies_other_matrices(o: KOp) -> Iterator[Mismatch]:
    """Sums, A and B are three registers."""
    numbers = [o.attrs[name] for name in ("sums", "a", "b")]
    if len(set(numbers)) < len(numbers):
        yield Mismatch("attributes sums, a, b", "three registers", numbers)


# -- control ----------------------------------------------------------------------------------------------------------
def calls_by_signature(o: KOp) -> Iterator[Mismatch]:
    """Arguments and result have the types that the callee says; bytes are pointed to as anything."""
    callee = o.attrs["callee"]
    if len(callee.params) != len(o.operands) or not all(map(_may_pass, o.operands, callee.params)):
        yield Mismatch("arguments", types_text(callee.params), types_text(o.operands))
    wanted = [] if callee.returns is None else [callee.returns]
    if [r.type for r in o.results] != wanted:
        yield Mismatch("results", f"({', '.join(map(str, wanted))})", types_text(o.results))


def _may_pass(given: Any, wanted: Any) -> bool:
    """Whoever links kernels knows of arenas, weights and buffers where an operand begins, not what it is."""
    return bool(given.type == wanted.type or (given.type == PtrType(U8) and isinstance(wanted.type, PtrType)))


def steps_forwards(o: KOp) -> Iterator[Mismatch]:
    """A loop's step is a constant above 0, so that it ends."""
    step = o.operands[2].const
    if step is None or step <= 0:
        yield Mismatch("operand 2", "a constant step above 0", "a value" if step is None else step)


def carries_its_types(o: KOp) -> Iterator[Mismatch]:
    """The loop's variable is an index; what it carries in, around and out has the same types."""
    init, region = o.operands[3:], o.regions[0]
    if not region.params or region.params[0].type != INDEX:
        yield Mismatch("the loop's variable", INDEX, types_text(region.params[:1]))
    yield from _same_types("carried values", init, region.params[1:])
    yield from _same_types("what a loop yields", init, region.yields)
    yield from _same_types("results", init, o.results)


def looks_and_goes_on(o: KOp) -> Iterator[Mismatch]:
    """The first region takes what is carried, and yields whether to go on and what is carried then; the second one
    takes that and yields the same types; the last values that the first one yields are the results."""
    look, again = o.regions
    yield from _same_types("carried values", o.operands, look.params)
    if not look.yields or look.yields[0].type != KType(BOOL):
        yield Mismatch("the condition", KType(BOOL), types_text(look.yields[:1]))
    yield from _same_types("what the condition carries", o.operands, look.yields[1:])
    yield from _same_types("values of the body", o.operands, again.params)
    yield from _same_types("what a loop yields", o.operands, again.yields)
    yield from _same_types("results", o.operands, o.results)


def has_no_more_operands(o: KOp) -> Iterator[Mismatch]:
    """A conditional takes its condition alone."""
    if len(o.operands) != 1:
        yield Mismatch("operands", 1, len(o.operands))


def branches_agree(o: KOp) -> Iterator[Mismatch]:
    """Both branches yield what the conditional gives, and take nothing."""
    for region in o.regions:
        if region.params:
            yield Mismatch("parameters of a branch", "()", types_text(region.params))
        yield from _same_types("what a branch yields", o.results, region.yields)


