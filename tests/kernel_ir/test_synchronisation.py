"""Barriers, the ticket counter and the wait for a count, on interpreted cores in many interleavings."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from parax.compiler.ir.types import I64
from parax.compiler.kernel_ir.builder import BYTES, Builder, KValue
from parax.compiler.kernel_ir.interpreter import Pointer, interpret, interpret_cores
from parax.compiler.kernel_ir.loops import INDEX, KFunc, PtrType, all_functions
from parax.compiler.kernel_ir.parser import parse_function
from parax.compiler.kernel_ir.synchronisation import (
    barrier,
    barrier_function,
    error_function,
    meeting_function,
    post,
    post_function,
    reset_function,
    take_ticket,
    ticket_function,
    wait_for,
    wait_function,
)
from parax.compiler.kernel_ir.verifier import verify_function
from parax.errors import InternalError
from parax.runtime.sync import SLOT_NBYTES

ROUNDS, SEEDS = 3, range(12)
Wait = Callable[[Builder, KFunc], None]


def at_the_barrier(k: Builder, waits: KFunc) -> None:
    """All n cores come."""
    k.call(waits, [k["sync"], k["n"]])


def inside(k: Builder, waits: KFunc) -> None:
    """Core i comes with i + 1 items."""
    k.call(waits, [k["sync"], k["core"] + 1, k.udiv(k["n"] * (k["n"] + 1), 2)])


WAYS: dict[str, tuple[Callable[[], KFunc], Wait]] = {
    "barrier": (barrier_function, at_the_barrier), "meeting": (meeting_function, inside),
}  # fmt: skip


def rounds(waits: KFunc, wait: Wait) -> KFunc:
    """Every core writes its word, waits, adds its neighbours' to its sum, and waits before it writes again."""
    k = Builder("rounds", [("sync", BYTES), ("words", PtrType(I64)), ("sums", PtrType(I64)), ("core", INDEX),
                           ("n", INDEX)])  # fmt: skip
    k.func.noalias = False

    def one(i: KValue, total: list[KValue]) -> list[KValue]:
        k.store(k["words"], k["core"], (i + 1) * (k["core"] + 1))
        wait(k, waits)
        total = k.for_(0, k["n"], 1, total, lambda j, t: [t[0] + k.load(k["words"], j)])
        wait(k, waits)
        return total

    k.store(k["sums"], k["core"], k.for_(0, ROUNDS, 1, [k.index(0)], one)[0])
    return k.func


def run(f: KFunc, n: int, seed: int) -> tuple[list[int], np.ndarray]:
    """The cores' sums, and the slot in which they met."""
    sync, words, sums = np.zeros(SLOT_NBYTES, np.uint8), np.zeros(8 * n, np.uint8), np.zeros(8 * n, np.uint8)
    shared = [Pointer(sync, 0, "sync"), Pointer(words, 0, "words"), Pointer(sums, 0, "sums")]
    interpret_cores(f, [[*shared, core, n] for core in range(n)], seed)
    return sums.view(np.int64).tolist(), sync


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("way", WAYS)
def test_nobody_goes_on_before_all_are_there(way: str, n: int, seed: int) -> None:
    make, wait = WAYS[way]
    total = sum(range(1, ROUNDS + 1)) * sum(range(1, n + 1))
    assert run(rounds(make(), wait), n, seed)[0] == [total] * n


WEAKER = {"acq_rel": ("acquire", "release"), "acquire": ("relaxed",), "release": ("relaxed",)}


def weakened(f: KFunc) -> list[tuple[str, str]]:
    """The text of a function with one order of memory less strict than it is, and the line where."""
    text, found = str(f), []
    for match in re.finditer(r"order=(\w+)", text):
        for order in WEAKER.get(match[1], ()):
            line = text[: match.start()].splitlines()[-1].strip()
            found.append((f"{line}order={order}", f"{text[: match.start(1)]}{order}{text[match.end(1) :]}"))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_no_order_of_memory_is_stricter_than_it_must_be(way: str) -> None:
    """With any of them less strict, what cores read is not surely what others wrote; on x86-64 alone it mostly is."""
    make, wait = WAYS[way]
    lacking = weakened(make())
    assert len(lacking) == 4
    for where, text in lacking:
        f = rounds(parse_function(text), wait)
        with pytest.raises(InternalError, match="in no order"):
            for seed in SEEDS:
                run(f, 3, seed)
                print(f"seed {seed} does not tell: {where}")


def test_a_barrier_for_more_cores_than_come_is_told() -> None:
    f = rounds(barrier_function(), lambda k, waits: barrier(k, k["sync"], 3))
    with pytest.raises(InternalError, match="all of 2 cores wait for each other"):
        run(f, 2, 0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("way", WAYS)
def test_words_are_ready_for_other_cores_afterwards(way: str, seed: int) -> None:
    """Not the number of cores but the round is left; nobody else's bytes of the slot are touched."""
    make, wait = WAYS[way]
    sync = run(rounds(make(), wait), 3, seed)[1].view(np.uint32)
    where = {"barrier": 8, "meeting": 1}[way]
    assert sync[where] == 2 * ROUNDS
    sync[where] = 0
    assert not sync.any()


@pytest.mark.parametrize("way", WAYS)
def test_a_core_alone_waits_for_nobody(way: str) -> None:
    make, wait = WAYS[way]
    assert not run(rounds(make(), wait), 1, 0)[1].any()


def test_who_has_some_of_the_items_waits_for_the_others() -> None:
    word = Pointer(np.zeros(8, np.uint8))
    interpret(meeting_function(), [word, 4, 4])
    with pytest.raises(InternalError, match="waits for other cores"):
        interpret(meeting_function(), [word, 3, 4])


@pytest.mark.parametrize("seed", SEEDS)
def test_tickets_go_to_one_core_each_and_are_there_again(seed: int) -> None:
    """Cores take until they are refused, twice; between, they meet."""
    n_tickets, n = 5, 3
    k = Builder("takes", [("sync", BYTES), ("count", BYTES), ("taken", PtrType(I64)), ("n", INDEX)])
    k.func.noalias = False

    def taking(i: KValue, _: list[KValue]) -> None:
        def look(_: list[KValue]) -> tuple[KValue, list[KValue]]:
            number = take_ticket(k, k["count"], k["n"] + (n_tickets - 1))
            return number < n_tickets, [number]

        def use(number: list[KValue]) -> list[KValue]:
            k.store(k["taken"], number[0], k.load(k["taken"], number[0]) + 1)
            return number

        k.while_([k.index(0)], look, use)
        barrier(k, k["sync"], n)

    k.for_(0, 2, 1, [], taking)
    verify_function(k.func)
    sync, count, taken = np.zeros(SLOT_NBYTES, np.uint8), np.zeros(4, np.uint8), np.zeros(8 * n_tickets, np.uint8)
    interpret_cores(k.func, [[Pointer(sync), Pointer(count), Pointer(taken, 0, "taken"), n]] * n, seed)
    assert taken.view(np.int64).tolist() == [2] * n_tickets
    assert not count.any()


@pytest.mark.parametrize("seed", SEEDS)
def test_who_waits_for_a_count_sees_what_was_done_before(seed: int) -> None:
    k = Builder("flow", [("progress", PtrType(I64)), ("data", PtrType(I64)), ("core", INDEX)])
    k.func.noalias = False

    def make(i: KValue, _: list[KValue]) -> None:
        k.store(k["data"], i, i * i)
        post(k, k["progress"], i + 1)

    def take(i: KValue, total: list[KValue]) -> list[KValue]:
        wait_for(k, k["progress"], i + 1)
        return [total[0] + k.load(k["data"], i)]

    k.if_(k["core"] < 1, lambda: k.for_(0, 5, 1, [], make),
          lambda: k.store(k["data"], 5, k.for_(0, 5, 1, [k.index(0)], take)[0]))  # fmt: skip
    progress, data = np.zeros(8, np.uint8), np.zeros(48, np.uint8)
    interpret_cores(k.func, [[Pointer(progress), Pointer(data), core] for core in range(2)], seed)
    assert data.view(np.int64)[5] == 30


@pytest.mark.parametrize(
    "make",
    [barrier_function, meeting_function, ticket_function, wait_function, post_function, reset_function, error_function],
)
def test_they_are_right_functions_whose_text_is_read_back(make: Callable[[], KFunc]) -> None:
    assert make() is make() and all_functions([make()]) == [make()]
    verify_function(make())
    assert str(parse_function(str(make()))) == str(make())
