"""How cores wait for each other, as functions of the kernel IR, and calls of them.

Owns the barrier between kernels, the one inside a kernel, the self-resetting ticket counter, and counts that are waited
for; where their words lie in memory, runtime/sync.py says. It must not know who meets, nor what is taken.

The barrier is centralised and sense-reversing by a generation count (Mellor-Crummey and Scott, 1991); waiters spin,
then yield the core, because the machine may be shared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...runtime.sync import ERROR_OFFSET, GENERATION_OFFSET
from ..ir.types import I32, I64, U32, U64
from .atomics import atomic_add, atomic_load, atomic_store, pause, yield_core
from .builder import Builder, KValue
from .loops import INDEX, KFunc, KType, PtrType

SPINS = 20000  # pauses before a waiting core yields
SPINS_INSIDE = 4000  # pauses, some 50 µs, inside a kernel
WORD_NBYTES = 4


def barrier(k: Builder, slot: KValue | None = None, n_cores: int | None = None) -> None:
    """All `nt` cores of the instance meet here (parameters `sync` and `nt`), or those that share another slot."""
    cores = k["nt"] if n_cores is None else k.index(n_cores)
    k.call(barrier_function(), [k["sync"] if slot is None else slot, cores])


def meet(k: Builder, word: KValue, items: Any, everything: Any) -> None:
    """Wait for the cores with the other work items: all come equally often, each with its share (> 0) of all."""
    k.func.noalias = False  # others write what this function reads
    k.call(meeting_function(), [word, items, everything])


def take_ticket(k: Builder, count: KValue, last: Any) -> KValue:
    """How many were taken before, this one being counted; the count is set back once `last` were."""
    return k.call(ticket_function(), [count, last])


@cache
def barrier_function() -> KFunc:
    """parax_barrier(sync, nt): return once so many cores have called it."""
    k = Builder("parax_barrier", [("sync", PtrType(U32)), ("nt", INDEX)], inline="never")
    k.func.noalias = False
    sync, generation = k["sync"], GENERATION_OFFSET // WORD_NBYTES

    def arrive() -> None:
        mine = atomic_load(k, sync, generation, "relaxed")
        arrived = atomic_add(k, sync, 0, 1, "acq_rel") + 1

        def open_next() -> None:
            atomic_store(k, sync, 0, 0, "relaxed")
            atomic_store(k, sync, generation, mine + 1, "release")

        last = arrived == k.cast(k["nt"], U32)
        k.if_(last, open_next, lambda: _wait(k, lambda: atomic_load(k, sync, generation, "acquire") == mine, SPINS))

    k.if_(k.cast(k["nt"], U64) > 1, arrive)
    return k.func


@cache
def meeting_function() -> KFunc:
    """parax_meet(word, items, everything): the meeting of cores inside a kernel.

    A core arrives with the number of its work items; the one that completes all items of the call opens the next round.
    So nobody need know how many cores take part, and a core that has all items does not even touch the word. The word
    counts items in its lower half and rounds in its upper half: arrivals and waiters share one cache line that moves
    between cores twice a meeting, and the word is ready for another call after any meeting.
    """
    k = Builder("parax_meet", [("word", PtrType(I64)), ("items", INDEX), ("everything", INDEX)], inline="never")
    k.func.noalias = False
    word, items, everything = k["word"], k.cast(k["items"], U64), k.cast(k["everything"], U64)

    def arrive() -> None:
        before = k.cast(atomic_add(k, word, 0, k["items"], "acq_rel"), U64)
        arrived, round_ = (before & 0xFFFFFFFF) + items, before >> 32

        def open_next() -> None:
            atomic_store(k, word, 0, k.cast((round_ + 1) << 32, I64), "release")

        def is_closed() -> KValue:
            return (k.cast(atomic_load(k, word, 0, "acquire"), U64) >> 32) == round_

        k.if_(arrived >= everything, open_next, lambda: _wait(k, is_closed, SPINS_INSIDE))

    k.if_(items < everything, arrive)
    return k.func


@cache
def ticket_function() -> KFunc:
    """parax_claim(count, last): the counter's value before one more is counted.

    Everyone who takes goes on until it is refused once; whoever is refused last knows that nobody will ask again, and
    sets the count back.
    """
    k = Builder("parax_claim", [("count", PtrType(U32)), ("last", INDEX)], returns=KType(I64), inline="never")
    k.func.noalias = False
    number = k.cast(atomic_add(k, k["count"], 0, 1, "acq_rel"), I64)
    k.if_(number == k["last"], lambda: atomic_store(k, k["count"], 0, 0, "release"))
    k.ret(number)
    return k.func


@cache
def wait_function() -> KFunc:
    """parax_wait(progress, least): return once the count there is at least that."""
    k = Builder("parax_wait", [("progress", PtrType(I64)), ("least", INDEX)], inline="never")
    k.func.noalias = False
    _wait(k, lambda: atomic_load(k, k["progress"], 0, "acquire") < k["least"], SPINS)
    return k.func


def wait_for(k: Builder, progress: KValue, least: Any) -> None:
    """Wait until the count at `progress` is at least that."""
    k.call(wait_function(), [progress, least])


def post(k: Builder, progress: KValue, count: Any) -> None:
    """Let who waits for it know that so many are done."""
    k.call(post_function(), [progress, count])


@cache
def post_function() -> KFunc:
    """parax_post(progress, count): what the core did before is seen by whoever waits for the count."""
    k = Builder("parax_post", [("progress", PtrType(I64)), ("count", INDEX)], inline="always")
    k.func.noalias = False
    atomic_store(k, k["progress"], 0, k["count"], "release")
    return k.func


def reset(k: Builder, progress: KValue) -> None:
    """Set a count back to 0, when nobody waits for it."""
    k.call(reset_function(), [progress])


@cache
def reset_function() -> KFunc:
    """parax_reset(progress): nothing is said by the count being 0 again."""
    k = Builder("parax_reset", [("progress", PtrType(I64))], inline="always")
    k.func.noalias = False
    atomic_store(k, k["progress"], 0, 0, "relaxed")
    return k.func


@cache
def error_function() -> KFunc:
    """parax_error(slot): the error site that a kernel has left in a slot of the sync block, or 0."""
    k = Builder("parax_error", [("slot", PtrType(I32))], returns=KType(I32), inline="always")
    k.func.noalias = False
    k.ret(atomic_load(k, k["slot"], ERROR_OFFSET // WORD_NBYTES, "relaxed"))
    return k.func


def _wait(k: Builder, is_closed: Callable[[], KValue], n_spins: int) -> None:
    """Spin, then yield the core, while a condition holds."""

    def again(carried: list[KValue]) -> list[KValue]:
        more = carried[0] + 1

        def rest() -> list[KValue]:
            yield_core(k)
            return [k.const(0, U32)]

        def spin() -> list[KValue]:
            pause(k)
            return [more]

        return k.if_(more > n_spins, rest, spin)

    k.while_([k.const(0, U32)], lambda carried: (is_closed(), carried), again)
