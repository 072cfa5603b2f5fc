"""The verifier: for each of its rules a kernel that breaks it, and what the error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel_ir.every_opcode import builder, callee
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.ir.types import BF16, BOOL, F32, F64, I8, I32, I64, U8
from parax.compiler.kernel_ir.atomics import atomic_add, atomic_load, atomic_store
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.loops import INDEX, KOp, KType, PtrType, Region
from parax.compiler.kernel_ir.verifier import verify_function
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError

X, S = KType(F32, 8), KType(F32)
Break = Callable[[Builder], Any]


def region_op(k: Builder, opcode: str, operands: tuple[KValue, ...], regions: list[Region],
              results: list[KValue] | None = None) -> None:  # fmt: skip
    """An operation with regions, as given."""
    k.op(opcode, operands, None, regions)
    k.func.body.ops[-1].results = results or []


def loop(k: Builder, *, lo: Any = 0, step: Any = 1, params: Any = (INDEX, S), yields: Any = None,
         result: Any = S) -> None:  # fmt: skip
    """A loop that carries s, with something else in places."""
    values = [KValue(t, k) for t in params]
    region = Region(values, [], values[1:] if yields is None else yields(k))
    region_op(k, "for", (k.index(lo), k["n"], k.index(step), k["s"]), [region], [KValue(result, k)])


def branch(k: Builder, then: list[KValue], orelse: list[KValue], result: KType = S, cond: str = "c",
           more: tuple[KValue, ...] = ()) -> None:  # fmt: skip
    regions = [Region(yields=then), Region(yields=orelse)]
    region_op(k, "if", (k[cond], *more), regions, [KValue(result, k)])


def spin(k: Builder, seen: list[KValue], *, params: Any = (S,), yields: Any = None, result: Any = S) -> None:
    """A `while` that carries s, with something else in places."""
    values = [KValue(t, k) for t in params]
    regions = [Region([KValue(S, k)], [], seen), Region(values, [], values if yields is None else yields)]
    region_op(k, "while", (k["s"],), regions, [KValue(result, k)])


def _shuffled(lanes: Any) -> Break:
    return lambda k: k.op("shuffle", (k["x"], k["y"]), KType(F32, 2), lanes=lanes)


OPERATIONS: dict[str, tuple[Break, str]] = {
    "unknown opcode": (lambda k: k.op("power", (k["x"],), X), "opcode; expected one of .*found power"),
    "too few operands": (lambda k: k.op("add", (k["x"],), X), "operands; expected 2; found 1"),
    "too many operands": (lambda k: k.op("load", (k["p"], k["n"], k["c"], k["c"]), S), "expected 2 to 3; found 4"),
    "too few of a loop": (lambda k: k.op("for", (k["n"],), None, [Region()]), "expected 3 or more; found 1"),
    "a pointer's sum": (lambda k: k.op("add", (k["p"], k["p"]), X), "operand 0; expected lanes of .*ptr<f32>"),
    "sum of bf16": (lambda k: [b := k.cast(k["x"], BF16), k.op("add", (b, b), b.type)], "found 8xbf16"),
    "sum of bool": (lambda k: k.op("add", (k["m"], k["m"]), k["m"].type), "operand 0; .*found 8xbool"),
    "other types": (lambda k: k.op("add", (k["x"], k["s"]), X), "operand 1; expected 8xf32 as operand 0; found f32"),
    "result type": (lambda k: k.op("add", (k["x"], k["y"]), S), "the result; expected 8xf32; found f32"),
    "no result": (lambda k: k.op("add", (k["x"], k["y"])), "results; expected 1; found 0"),
    "a result of a store": (lambda k: k.op("store", (k["p"], k["n"], k["s"]), S), "results; expected 0; found 1"),
    "unknown attribute": (lambda k: k.op("neg", (k["x"],), X, pred="lt"), "attributes; expected none; found pred"),
    "attribute missing": (lambda k: k.op("cmp", (k["x"], k["y"]), k["m"].type), "attribute pred; expected lt le"),
    "wrong attribute": (lambda k: k.op("math", (k["x"],), X, fn="sinc"), "attribute fn; .*found sinc"),
    "odd alignment": (lambda k: k.load(k["p"], 0, align=3), "attribute align; expected a power of two; found 3"),
    "nothing on the stack": (lambda k: k.alloca(F32, 0), "attribute count; expected a whole number from 1; found 0"),
    "level 3": (lambda k: k.prefetch(k["p"], 0, 3), "attribute level; expected 1 or 2; found 3"),
    "a flag": (lambda k: k.op("add", (k["x"], k["y"]), X, rounds=1), "attribute rounds; expected true; found 1"),
    "a region": (lambda k: k.op("neg", (k["x"],), X, [Region()]), "regions; expected 0; found 1"),
    "bits of floats": (lambda k: k.op("and", (k["x"], k["y"]), X), "expected lanes of integers or bool"),
    "shift of bool": (lambda k: k.op("shl", (k["m"], k["m"]), k["m"].type), "expected lanes of integers; found"),
    "minus an integer": (lambda k: k.op("neg", (k["i"],), k["i"].type), "expected lanes of f32 or f64"),
    "mask of integers": (lambda k: k.op("select", (k["z"], k["x"], k["y"]), X), "expected lanes of bool"),
    "vector index": (lambda k: k.op("load", (k["p"], k["i"]), X), "expected an i64 scalar; found 8xi64"),
    "index of i32": (lambda k: k.op("gather", (k["p"], k["z"]), X), "expected lanes of i64; found 8xi32"),
    "splat of lanes": (lambda k: k.op("splat", (k["x"],), KType(F32, 64)), "expected a scalar; found 8xf32"),
    "no pointer": (lambda k: k.op("gep", (k["n"], k["n"]), INDEX), "expected a pointer; found i64"),
    "pairs of i32": (lambda k: k.op("dot_bf16", (k["z"], k["z"], k["x"]), X), "a pair of bf16 each; found 8xi32"),
    "pairs of pairs": (lambda k: k.op("dot_i16", (k["w"], k["w"], k["z"]), k["z"].type), "lanes of i16; found 8xu32"),
    "signed bytes": (lambda k: k.op("dot_u8i8", (k["sb"], k["sb"], k["z"]), k["z"].type), "lanes of u8; found 32xi8"),
    "unsigned": (lambda k: k.op("dot_u8i8", (k["ub"], k["ub"], k["z"]), k["z"].type), "lanes of i8; found 32xu8"),
    "sums of f64": (lambda k: k.op("dot_bf16", (k["w"], k["w"], k["d"]), k["d"].type), "expected lanes of f32"),
    # -- rules of single opcodes
    "rounded integers": (lambda k: k.op("add", (k["i"], k["i"]), k["i"].type, rounds=True), "expected floats"),
    "pairs": (lambda k: k.op("dot_bf16", (k["w"], k["w"], k["s"]), S), "operand 2; expected 8 lanes; found f32"),
    "halves": (lambda k: k.op("dot_i16", (k["h"], k["h"], k.splat(k.extract(k["z"], 0), 4)), KType(I32, 4)),
               "operand 0; expected 8 lanes; found 16xi16"),
    "quads": (lambda k: k.op("dot_u8i8", (k["ub"], k["sb"], k.splat(k.extract(k["z"], 0), 4)), KType(I32, 4)),
              "operand 0; expected 16 lanes; found 32xu8"),
    "a short table": (lambda k: k.op("lookup", (k["ub"], k["ub"]), k["ub"].type), "operand 1; expected 256 lanes"),
    "select lanes": (lambda k: k.op("select", (k["m"], k["s"], k["s"]), S), "expected 1 or 1 lanes; found 8xbool"),
    "select pointers": (lambda k: k.op("select", (k["m"], k["p"], k["p"]), k["p"].type), "expected 1 or 1 lanes"),
    "cast that flushes": (lambda k: k.op("cast", (k["x"],), k["i"].type, flushes=True), "expected f32 to bf16"),
    "cast in range": (lambda k: k.op("cast", (k["x"],), k["i"].type, in_range=True), "expected floats to i32"),
    "cast of lanes": (lambda k: k.op("cast", (k["x"],), KType(I32, 4)), "expected 8xi32; found 4xi32"),
    "bitcast": (lambda k: k.op("bitcast", (k["x"],), KType(F64, 8)), "expected 256 bits; found 8xf64"),
    "ramp of bool": (lambda k: k.ramp(8, BOOL), "expected integers, f32 or f64; found 8xbool"),
    "or of floats": (lambda k: k.reduce("or", k["x"]), "attribute op; expected add mul min max of floats; found or"),
    "sum of a mask": (lambda k: k.reduce("add", k["m"]), "expected and or xor min max of bool; found add"),
    "lane 8 of 8": (lambda k: k.extract(k["x"], 8), "attribute lane; expected below 8; found 8"),
    "insert at 8": (lambda k: k.insert(k["x"], k["s"], 8), "attribute lane; expected below 8; found 8"),
    "insert an index": (lambda k: k.insert(k["x"], k["n"], 0), "operand 1; expected f32; found i64"),
    "shuffle beyond": (_shuffled((0, 16)), "expected some, below 16"),
    "shuffle of none": (lambda k: k.op("shuffle", (k["x"], k["y"]), KType(F32, 0), lanes=()), "some, below 16"),
    "shuffle by list": (_shuffled([0, 1]), "attribute lanes; expected numbers of lanes"),
    "permute by few": (lambda k: k.op("permute", (k["x"], k["y"], k.splat(k.extract(k["z"], 0), 4)), k["x"].type),
                       "operand 2; expected 8 lanes, a power of two; found 4xi32"),
    "load mask": (lambda k: k.load(k["p"], 0, 4, k["m"]), "operand 2; expected 4 lanes; found 8xbool"),
    "store mask": (lambda k: k.store(k["p"], 0, k["s"], k["m"]), "operand 3; expected 1 lanes; found 8xbool"),
    "load of another type": (lambda k: k.op("load", (k["q"], k["n"]), S), "the result; expected i64; found f32"),
    "store of another type": (lambda k: k.store(k["q"], 0, k["s"]), "operand 2; expected lanes of i64; found f32"),
    "scatter lanes": (lambda k: k.scatter(k["p"], k["i"], k["s"]), "operand 2; expected 8 lanes; found f32"),
    "scatter mask": (lambda k: k.scatter(k["p"], k["i"], k["x"], k["c"]), "operand 3; expected 8 lanes; found bool"),
    "gather lanes": (lambda k: k.op("gather", (k["p"], k["i"]), S), "the result; expected 8xf32; found f32"),
    "stack of numbers": (lambda k: k.op("alloca", (), S, count=1, align=4), r"expected ptr<f32>; found f32"),
    # -- control
    "arguments": (lambda k: k.call(callee(), [k["s"], k["x"]]),
                  r"arguments; expected \(8xf32, f32\); found \(f32, 8xf32\)"),
    "result of a call": (lambda k: [k.call(callee(), [k["x"], k["s"]]), k.func.body.ops[-1].results.clear()],
                         r"results; expected \(8xf32\); found \(\)"),
    "callees": (lambda k: [k.call(callee(), [k["x"], k["s"]]), k.func.callees.clear()],
                "callees; expected @sum among them; found none"),
    "other callee": (lambda k: [k.call(callee(), [k["x"], k["s"]]), k.func.callees.update(sum=callee())], "callees"),
    "backwards": (lambda k: loop(k, step=-1), "operand 2; expected a constant step above 0; found -1"),
    "a step of none": (lambda k: loop(k, step=0), "expected a constant step above 0; found 0"),
    "a step at run time": (lambda k: loop(k, step=k["n"]), "expected a constant step above 0; found a value"),
    "bound of f32": (lambda k: loop(k, lo=k["s"]), "operand 0; expected an i64 scalar; found f32"),
    "loop variable": (lambda k: loop(k, params=(KType(I32), S)), r"the loop's variable; expected i64; found \(i32\)"),
    "no loop variable": (lambda k: loop(k, params=(), yields=lambda k: [k["s"]]),
                         r"variable; expected i64; found \(\)"),
    "carried": (lambda k: loop(k, params=(INDEX, X)), r"carried values; expected \(f32\); found \(8xf32\)"),
    "yields of a loop": (lambda k: loop(k, yields=lambda k: [k["x"]]),
                         r"a loop yields; expected \(f32\); found \(8xf32\)"),
    "results of a loop": (lambda k: loop(k, result=X), r"results; expected \(f32\); found \(8xf32\)"),
    "words of f32": (lambda k: atomic_load(k, k["p"], 0, "relaxed"), "integers of 32 or 64 bits; found ptr<f32>"),
    "a releasing load": (lambda k: atomic_load(k, k["q"], 0, "release"), "expected relaxed acquire; found release"),
    "an acquiring store": (lambda k: atomic_store(k, k["q"], 0, 1, "acquire"), "expected relaxed release; found acqu"),
    "an add of no order": (lambda k: k.op("atomic_add", (k["q"], k["n"], k["n"]), INDEX), "attribute order; expected"),
    "another word": (lambda k: atomic_add(k, k["q"], 0, k["s"], "relaxed"), "expected lanes of i64; found f32"),
    "a word's result": (lambda k: k.op("atomic_load", (k["q"], k["n"]), S, order="relaxed"), "expected i64; found f32"),
    "an address of f32": (lambda k: k.load_pointer(k["p"], 0), "operand 0; expected a pointer to i64; found ptr<f32>"),
    "an address as a number": (lambda k: k.op("load_pointer", (k["q"], k["n"]), INDEX), "ptr<i64>; found i64"),
    "waiting for": (lambda k: k.op("pause", (k["n"],)), "operands; expected 0; found 1"),
    "while a number": (lambda k: spin(k, [k["n"], k["s"]]), r"the condition; expected bool; found \(i64\)"),
    "while nothing": (lambda k: spin(k, []), r"the condition; expected bool; found \(\)"),
    "while carried": (lambda k: spin(k, [k["c"], k["x"]]), r"the condition carries; expected \(f32\); found \(8xf32\)"),
    "while a body": (lambda k: spin(k, [k["c"], k["s"]], params=(X,)),
                     r"of the body; expected \(f32\); found \(8xf32\)"),
    "while yields": (lambda k: spin(k, [k["c"], k["s"]], yields=[]), r"a loop yields; expected \(f32\); found \(\)"),
    "while results": (lambda k: spin(k, [k["c"], k["s"]], result=X), r"results; expected \(f32\); found \(8xf32\)"),
    "while once": (lambda k: region_op(k, "while", (), [Region()]), "regions; expected 2; found 1"),
    "condition": (lambda k: branch(k, [k["s"]], [k["s"]], cond="m"), "operand 0; expected a bool scalar; found 8xbool"),
    "two conditions": (lambda k: branch(k, [k["s"]], [k["s"]], more=(k["c"],)), "operands; expected 1; found 2"),
    "other branch": (lambda k: branch(k, [k["s"]], [k["x"]]), r"a branch yields; expected \(f32\); found \(8xf32\)"),
    "first branch": (lambda k: branch(k, [k["x"]], [k["s"]]), r"a branch yields; expected \(f32\); found \(8xf32\)"),
    "one branch": (lambda k: region_op(k, "if", (k["c"],), [Region()]), "regions; expected 2; found 1"),
    "parameter of a branch": (lambda k: region_op(k, "if", (k["c"],), [Region([KValue(S, k)]), Region()]),
                              r"parameters of a branch; expected \(\); found \(f32\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_broken_operation_is_refused(name: str) -> None:
    make, wanted = OPERATIONS[name]
    k = builder()
    verify_function(k.func)
    make(k)
    with pytest.raises(InternalError, match=wanted):
        verify_function(k.func)


def test_bytes_are_passed_as_pointers_to_anything_and_nothing_else_is() -> None:
    inner = Builder("inner", [("p", PtrType(F32))])
    k = builder()
    k.call(inner.func, [k["sync"]])
    verify_function(k.func)
    k.call(inner.func, [k["q"]])
    broken(k, r"arguments; expected \(ptr<f32>\); found \(ptr<i64>\)")


def test_too_few_arguments() -> None:
    k = builder()
    k.op("call", (k["x"],), X, callee=k.func.callees.setdefault("sum", callee()))
    broken(k, r"arguments; expected \(8xf32, f32\); found \(8xf32\)")


def broken(k: Builder, wanted: str) -> InternalError:
    with pytest.raises(InternalError, match=wanted) as caught:
        verify_function(k.func)
    return caught.value


def test_the_error_says_kernel_and_line_and_carries_the_text() -> None:
    k = builder("kernel_7")
    k.for_(0, k["n"], 1, [], lambda i, c: k.store(k["q"], i, k["s"]))
    error = broken(k, "expected lanes of i64; found f32")
    assert error.where == "kernel kernel_7, line 4: store(%q, %18, %s)"
    assert str(k.func) in getattr(error, "__notes__", [str(k.func)])


def test_values_of_other_functions() -> None:
    k, other = builder(), builder("g")
    k.op("add", (k["x"], other["x"]), X)
    broken(k, "operand 1; expected a value that is defined here")


def test_values_that_leave_their_region() -> None:
    k = builder()
    inner: list[KValue] = []
    k.for_(0, k["n"], 1, [], lambda i, c: inner.append(i + k["n"]))
    k.op("add", (inner[0], k["n"]), INDEX)
    broken(k, "kernel f, line 6: .* expected a value that is defined here")


def test_values_of_the_other_branch() -> None:
    k = builder()
    inner: list[KValue] = []
    k.if_(k["c"], lambda: inner.append(k["x"] + 1.0), lambda: inner.append(k.op("neg", (inner[0],), X)))
    broken(k, "operand 0; expected a value that is defined here")


def test_uses_before_definitions() -> None:
    k = builder()
    a = k["x"] + 1.0
    k.op("neg", (a,), X)
    k.func.body.ops.reverse()
    broken(k, "operand 0; expected a value that is defined here")


def test_values_that_are_defined_twice() -> None:
    k = builder()
    a = k["x"] + 1.0
    k.op("neg", (k["x"],), X)
    k.func.body.ops[-1].results[:] = [a]
    broken(k, "expected a value that is not defined before; found one that is")


def test_constants_that_are_defined() -> None:
    k = builder()
    k.op("neg", (k["s"],), S)
    k.func.body.ops[-1].results[:] = [k.const(1.0, F32)]
    broken(k, "expected no constant; found 1.0")


def test_yields_from_elsewhere() -> None:
    k = builder()
    inner: list[KValue] = []
    k.if_(k["c"], lambda: inner.append(k["s"] + 1.0))
    loop(k, yields=lambda k: inner)
    broken(k, "what a region yields; expected values defined in it or around it")


def test_what_a_function_returns() -> None:
    k = builder(returns=X)
    broken(k, r"what a function returns; expected \(8xf32\); found \(\)")
    k.ret(k["s"])
    broken(k, r"expected \(8xf32\); found \(f32\)")
    k.ret(k["x"])
    verify_function(k.func)


def test_parameters_of_one_name() -> None:
    broken(Builder("f", [("a", PtrType(U8)), ("a", KType(I8))]), "parameters; expected a name each; found a a")


def test_emission_verifies_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    k = Builder("inner", [("p", PtrType(I64)), ("s", S)])
    k.store(k["p"], 0, k["s"])
    outer = Builder("outer", [("p", PtrType(I64)), ("s", S)])
    outer.call(k.func, [outer["p"], outer["s"]])
    monkeypatch.setenv("PARAX_VERIFY", "0")
    ModuleEmitter(TARGETS["x86-64-v3"]).add([outer.func])
    monkeypatch.setenv("PARAX_VERIFY", "1")
    with pytest.raises(InternalError, match="kernel inner, line 2"):
        ModuleEmitter(TARGETS["x86-64-v3"]).add([outer.func])


def test_operations_are_checked_in_regions() -> None:
    k = builder()
    k.if_(k["c"], lambda: k.for_(0, k["n"], 1, [], lambda i, c: [k.extract(k["x"], 9)][1:]))
    assert isinstance(k.func.body.ops[0], KOp)
    broken(k, "expected below 8; found 9")
