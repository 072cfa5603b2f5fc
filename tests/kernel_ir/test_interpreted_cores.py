"""Several interpreted cores: what orders their memory, who waits for ever, and that seeds choose interleavings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parax.compiler.ir.types import I64
from parax.compiler.kernel_ir.atomics import AddOrder, LoadOrder, StoreOrder, atomic_add, atomic_load, atomic_store
from parax.compiler.kernel_ir.atomics import pause as pause_
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.interpreter import Pointer, interpret, interpret_cores
from parax.compiler.kernel_ir.loops import INDEX, KFunc, KType, PtrType
from parax.compiler.kernel_ir.verifier import verify_function
from parax.errors import InternalError

SEEDS = range(20)


def function(body: Callable[[Builder], KValue | None]) -> KFunc:
    """Of two words, `flag` and `data`, and the number of the core."""
    k = Builder("f", [("flag", PtrType(I64)), ("data", PtrType(I64)), ("core", INDEX)], returns=KType(I64))
    k.func.noalias = False
    result = body(k)
    k.ret(k.index(0) if result is None else result)
    verify_function(k.func)
    return k.func


def run(f: KFunc, n: int, seed: int) -> tuple[list[int], list[int], list[int]]:
    """What the cores return, the flags, the data."""
    flag, data = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    found = interpret_cores(f, [[Pointer(flag, 0, "flag"), Pointer(data, 0, "data"), core] for core in range(n)], seed)
    returned = [int(r[0]) for r in found if r is not None]
    return returned, flag.view(np.int64).tolist(), data.view(np.int64).tolist()


def wait_while(k: Builder, is_closed: Callable[[], KValue]) -> None:
    def again(_: list[KValue]) -> list[KValue]:
        pause_(k)
        return []

    k.while_([], lambda _: (is_closed(), []), again)


def message(store: StoreOrder, load: LoadOrder) -> KFunc:
    """Core 0 writes data, then the flag; the others read the data once they see the flag."""

    def body(k: Builder) -> KValue:
        def tell() -> list[KValue]:
            k.store(k["data"], 0, k.index(7))
            atomic_store(k, k["flag"], 0, 1, store)
            return [k.index(7)]

        def listen() -> list[KValue]:
            wait_while(k, lambda: atomic_load(k, k["flag"], 0, load) < 1)
            return [k.load(k["data"], 0)]

        return k.if_(k["core"] < 1, tell, listen)[0]

    return function(body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_release_and_an_acquire_pass_data_on(seed: int) -> None:
    assert run(message("release", "acquire"), 3, seed)[0] == [7, 7, 7]


@pytest.mark.parametrize(("store", "load"), [("relaxed", "acquire"), ("release", "relaxed"), ("relaxed", "relaxed")])
@pytest.mark.parametrize("seed", SEEDS)
def test_with_less_order_than_that_what_is_read_is_not_surely_there(
    store: StoreOrder, load: LoadOrder, seed: int
) -> None:
    with pytest.raises(InternalError, match=r"f, load of data: core 1 reads what core 0 writes in no order"):
        run(message(store, load), 2, seed)


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
def test_sums_are_whole_in_any_order(order: AddOrder) -> None:
    def add_three(k: Builder) -> None:
        def once(i: KValue, _: list[KValue]) -> None:
            atomic_add(k, k["flag"], 0, 1, order)

        k.for_(0, 3, 1, [], once)

    for seed in SEEDS:
        assert run(function(add_three), 4, seed)[1][0] == 12


@pytest.mark.parametrize(("order", "is_ordered"), [("acq_rel", True), ("acquire", False), ("release", False)])
def test_who_comes_last_sees_what_all_others_did(order: AddOrder, is_ordered: bool) -> None:
    """Each writes a word of its own; the last of three to count adds them up."""

    def body(k: Builder) -> KValue:
        k.store(k["data"], k["core"], k["core"] + 1)
        before = atomic_add(k, k["flag"], 0, 1, order)
        return k.if_(before > 1, lambda: [k.load(k["data"], 0) + k.load(k["data"], 1) + k.load(k["data"], 2)],
                     lambda: [k.index(0)])[0]  # fmt: skip

    for seed in SEEDS:
        if is_ordered:
            assert sorted(run(function(body), 3, seed)[0]) == [0, 0, 6]
        else:
            with pytest.raises(InternalError, match="in no order"):
                run(function(body), 3, seed)


def test_plain_words_are_no_flags() -> None:
    def body(k: Builder) -> None:
        k.if_(k["core"] < 1, lambda: k.store(k["flag"], 0, k.index(1)))
        wait_while(k, lambda: k.load(k["flag"], 0) < 1)

    with pytest.raises(InternalError, match="in no order"):
        for seed in SEEDS:
            run(function(body), 2, seed)


def test_stack_slots_are_each_cores_own() -> None:
    def body(k: Builder) -> KValue:
        slot = k.alloca(I64, 4)
        k.store(slot, 0, k["core"])
        atomic_add(k, k["flag"], 0, 1, "relaxed")
        return k.load(slot, 0)

    for seed in SEEDS:
        assert run(function(body), 3, seed)[0] == [0, 1, 2]


def test_who_waits_for_what_nobody_does_is_told() -> None:
    def body(k: Builder) -> None:
        wait_while(k, lambda: atomic_load(k, k["flag"], 0, "acquire") <= k["core"])

    with pytest.raises(InternalError, match="waits for other cores"):
        interpret(function(body), [Pointer(np.zeros(8, np.uint8)), Pointer(np.zeros(8, np.uint8)), 0])
    with pytest.raises(InternalError, match="all of 3 cores wait for each other"):
        run(function(body), 3, 0)


def test_a_loop_without_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parax.compiler.kernel_ir.interpreter.MOST_TRIPS", 50)

    def count(to: int) -> KFunc:
        return function(lambda k: k.while_([k.index(0)], lambda c: (c[0] < to, c), lambda c: [c[0] + 1])[0])

    assert run(count(49), 1, 0)[0] == [49]
    with pytest.raises(InternalError, match="more than 50 times"):
        run(count(50), 1, 0)


def test_an_error_of_one_core_ends_all() -> None:
    def body(k: Builder) -> None:
        k.if_(k["core"] > 0, lambda: wait_while(k, lambda: atomic_load(k, k["flag"], 0, "acquire") < 1),
              lambda: k.store(k["data"], 1000, k.index(1)))  # fmt: skip

    with pytest.raises(InternalError, match="at byte 8000 of data"):
        run(function(body), 3, 1)


def test_seeds_choose_interleavings() -> None:
    def body(k: Builder) -> KValue:
        return atomic_add(k, k["flag"], 0, 1, "relaxed")

    orders = [tuple(run(function(body), 3, seed)[0]) for seed in SEEDS]
    assert len(set(orders)) > 2 and {tuple(sorted(order)) for order in orders} == {(0, 1, 2)}
    assert orders == [tuple(run(function(body), 3, seed)[0]) for seed in SEEDS]
