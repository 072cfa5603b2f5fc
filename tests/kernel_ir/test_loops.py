"""The kernel IR itself: building, folding, printing, walking."""

from __future__ import annotations

from typing import Any

import pytest

from parax.compiler.ir.types import symbol
from parax.compiler.kernel_ir.builder import BOOL, F32, F32PTR, F64, I64, Builder, kernel
from parax.compiler.kernel_ir.loops import INDEX, KFunc, KType, PtrType, all_functions, print_function
from parax.compiler.kernel_ir.verifier import verify_function
from parax.errors import InternalError


def test_text_of_types() -> None:
    assert [str(t) for t in (KType(F32), KType(F32, 16), PtrType(BOOL))] == ["f32", "16xf32", "ptr<bool>"]


def test_golden_text() -> None:
    k = kernel("scale", [("x", F32PTR), ("y", F32PTR)])

    def step(i: Any, carried: list) -> list:
        x = k.load(k["x"], i, 8)
        k.if_(i > 3, lambda: k.store(k["y"], i, x * 2.0))
        return [carried[0] + 1]

    k.for_(k["begin"], k["end"], 8, [k.index(5)], step)
    verify_function(k.func)
    assert (
        print_function(k.func)
        == """\
kernel @scale(%x: ptr<f32>, %y: ptr<f32>, %dims: ptr<i64>, %sync: ptr<u8>, %begin: i64, %end: i64) {
  %6 = for(%begin, %end, 8, 5) : i64 {
    ^(%7: i64, %8: i64)
    %9 = load(%x, %7) : 8xf32
    %10 = cmp(%7, 3) {pred=gt} : bool
    if(%10) {
      %11 = mul(%9, 2.0:8xf32) : 8xf32
      store(%y, %7, %11)
    } else {
    }
    %12 = add(%8, 1) : i64
    yield %12
  }
}"""
    )


def test_index_arithmetic_folds() -> None:
    k = Builder("f", [("n", INDEX)])
    n = k["n"]
    assert (k.index(6) * 7 - 2).const == 40
    assert k.udiv(k.index(41), 8).const == 5
    assert k.urem(k.index(41), 8).const == 1
    assert k.urem(n, 1).const == 0
    assert (n * 0).const == 0
    assert (n + 0) is n
    assert (n * 1) is n
    assert (1 * n) is n
    assert k.udiv(n, 1) is n
    assert (k.index(3) < 4).const is True
    assert k.min(k.index(3), 4).const == 3
    assert (k.index(2**62) * 4).const is None  # it would not fit
    assert k.udiv(k.index(1), 0).const is None


def test_float_arithmetic_is_not_folded_away() -> None:
    k = Builder("f", [("x", KType(F32))])
    assert (k["x"] * 0.0).const is None
    assert (k["x"] + 0.0) is not k["x"]


def test_scalars_splat_and_types_must_agree() -> None:
    k = Builder("f", [("x", KType(F32, 8)), ("s", KType(F32)), ("d", KType(F64))])
    assert (k["x"] + k["s"]).lanes == 8
    assert (k["s"] * k["x"]).lanes == 8
    assert (k["x"] < 1.0).type == KType(BOOL, 8)
    with pytest.raises(InternalError, match="operands of different types"):
        k["s"] + k["d"]


def test_loops_of_known_length() -> None:
    k = Builder("f", [("n", INDEX)])
    n = k["n"]
    assert k.for_(3, 3, 1, [n], lambda i, c: [c[0] + 1]) == [n]
    (once,) = k.for_(0, 4, 8, [n], lambda i, c: [c[0] + i])
    assert once is n
    assert not any(o.opcode == "for" for o in k.func.walk())
    k.for_(0, n, 1, [], lambda i, c: None, unroll=2)
    assert sum(o.opcode == "for" for o in k.func.walk()) == 2


def test_conditions_known_while_building() -> None:
    k = Builder("f", [("n", INDEX)])
    assert k.if_(k.index(1) < 2, lambda: [k["n"]], lambda: [k.index(0)])[0] is k["n"]
    assert k.if_(k.index(3) < 2, lambda: [k["n"]]) == []
    assert k.func.body.ops == []


def test_symbolic_dimensions_are_read_from_dims() -> None:
    n = symbol("N")
    k = kernel("f", [], symbols=("M", "N"))
    assert k.index(n * 0 + 3).const == 3
    k.index(2 * n + 1)
    load = next(o for o in k.func.walk() if o.opcode == "load")
    assert load.operands[0] is k["dims"]
    assert load.operands[1].const == 1


def test_walk_visits_nested_operations_in_order() -> None:
    k = Builder("f", [("n", INDEX), ("p", PtrType(I64))])

    def body(i: Any, _: list) -> None:
        k.if_(i > 1, lambda: k.store(k["p"], i, i), lambda: k.prefetch(k["p"], i))
        k.store(k["p"], 0, i)

    k.for_(0, k["n"], 1, [], body)
    k.prefetch(k["p"])
    assert [o.opcode for o in k.func.walk()] == ["for", "cmp", "if", "store", "prefetch", "store", "prefetch"]


def test_callees_come_before_callers_once() -> None:
    def leaf(name: str, *callees: KFunc) -> KFunc:
        k = Builder(name, [])
        for c in callees:
            k.call(c, [])
        return k.func

    a = leaf("a")
    b, c = leaf("b", a), leaf("c", a)
    names = [f.name for f in all_functions([leaf("d", b, c), c])]
    assert sorted(names) == ["a", "b", "c", "d"]
    assert (names[0], names[-1]) == ("a", "d")
