"""What is computed of sizes alone stands once, at a function's entry, unless some sizes leave it undefined."""

from __future__ import annotations

import numpy as np

from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.jit import load_function
from parax.compiler.ir.dim import symbol
from parax.compiler.kernel_ir.builder import I64PTR, Builder, kernel
from parax.compiler.kernel_ir.loops import KOp
from parax.compiler.kernel_ir.parser import parse_function
from parax.compiler.kernel_ir.verifier import verify_function

N, S = symbol("N"), symbol("S")


def opcodes(ops: list[KOp]) -> list[str]:
    return [op.opcode for op in ops]


def test_a_size_is_computed_once_wherever_it_is_asked_for() -> None:
    k = kernel("twice", [("y", I64PTR)], symbols=("N", "S"))

    def put(at: object) -> None:
        k.store(k["y"], at, k.index((N + 3) // 4 * S) - 1)

    k.for_(0, N, 1, [], lambda i, _: k.if_(i < 3, lambda: put(i), lambda: put(k.index(3))))
    put(4)
    verify_function(k.func)
    loop = opcodes(k.func.body.ops).index("for")
    assert sorted(opcodes(k.func.body.ops[:loop])) == ["add", "load", "load", "mul", "sub", "udiv"]
    every = opcodes(list(k.func.walk()))
    assert (every.count("load"), every.count("store"), every.count("udiv")) == (2, 3, 1)
    assert str(parse_function(str(k.func))) == str(k.func)


def test_a_division_by_a_size_stays_behind_what_guards_it() -> None:
    k = kernel("guarded", [("y", I64PTR)], symbols=("N", "S"))
    k.if_(k.index(S) > 0, lambda: k.store(k["y"], 0, k.index(N // S) + k.index((N - S) % S)))
    verify_function(k.func)
    assert not {"udiv", "urem", "div", "rem"} & set(opcodes(k.func.body.ops))
    run = load_function(k.func, resolve_target("native"))
    for n, s, wanted in ((7, 0, -1), (7, 2, 4), (2, 5, 2)):
        y, dims = np.full(1, -1, np.int64), np.array([n, s], np.int64)
        run(y.ctypes.data, dims.ctypes.data, 0, 0, 0)
        assert y[0] == wanted, (n, s)


def test_two_arrays_of_sizes_are_kept_apart() -> None:
    k = Builder("apart", [("y", I64PTR), ("dims", I64PTR), ("room", I64PTR)], symbols=("N",))
    for at, dims in enumerate(("dims", "room", "dims")):
        k.store(k["y"], at, k.index(N * 2, dims))
    y, arrays = np.zeros(3, np.int64), [np.array([n], np.int64) for n in (5, 9)]
    load_function(k.func, resolve_target("native"))(*(a.ctypes.data for a in (y, *arrays)))
    assert y.tolist() == [10, 18, 10]


def test_what_depends_on_anything_else_stays_where_it_is() -> None:
    k = kernel("other", [("y", I64PTR)], symbols=("N",))
    k.for_(k["begin"], k["end"], 1, [], lambda i, _: k.store(k["y"], i, i * k.index(N) + k.load(k["y"], N)))
    assert opcodes(k.func.body.ops) == ["load", "for"]
    assert opcodes(k.func.body.ops[1].regions[0].ops) == ["mul", "load", "add", "store"]
