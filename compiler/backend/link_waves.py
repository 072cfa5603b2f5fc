"""Kernels that a group of cores runs together: in waves between which they meet, each divided while it runs.

Owns who runs which work items. The kernels of a wave do not depend on one another, so nobody waits inside it. A call's
items are cut among the cores in order, as in a program without a schedule, so that a core finds in its caches what it
wrote itself. But of the items of two neighbours those in the middle, about a quarter, are nobody's at first:

    static | first core's ->  rest, in chunks  <- second core's | static

The first core takes chunks upwards from its own items, the second downwards, until none is left: at most as many are
taken as there are, so they never overlap. A core that is held up thus leaves work to the other (guided self-scheduling,
Polychronopoulos and Kuck, 1987, with affinity). Each call of a wave has a count of taken chunks of its own in the sync
block (runtime/sync.py). Small calls are divided in advance, being over sooner than a count is worth; so are calls whose
cores meet inside, which want all items at once, and memory that they share: they have a wave of their own.

It must not know layers, nor which calls depend on which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ...runtime.sync import CLAIMS_OFFSET, N_CLAIMS, SLOT_NBYTES
from ..ir.types import Dim, evaluate, symbols_of
from ..kernel_ir.builder import Builder, KValue
from ..kernel_ir.synchronisation import barrier, take_ticket
from .link_calls import Share, pointers, run_call, run_items
from .lower import PlacedBranch, PlacedCall

LEAST_NANOSECONDS = 8_000  # of a call on one core, roughly, to be divided while it runs
FLOPS_PER_NANOSECOND, NBYTES_PER_NANOSECOND = 100, 20  # of a core, roughly
MOST_CHUNKS = 16  # of what two cores share, if all of it were left open
CLAIM_NBYTES = 4

Wave = list[PlacedCall]


def waves_of(branches: Sequence[PlacedBranch]) -> list[Wave]:
    """The first calls of all branches, the second ones, and so on; parts of these where they need to be apart."""
    return [part for calls in zip_longest(*(branch.calls for branch in branches)) for part in _parts(calls)]


def _parts(calls: Iterable[PlacedCall | None]) -> list[Wave]:
    """Calls that may run at the same time: small ones first; those whose cores meet inside alone."""
    listed = [placed for placed in calls if placed is not None]
    small = [placed for placed in listed if not is_open(placed)]
    open_ = [placed for placed in listed if is_open(placed)]
    waves = [[placed] for placed in small if placed.call.meets]
    starts = range(0, len(open_), N_CLAIMS)
    waves += [open_[start : start + N_CLAIMS] for start in starts]
    rest = [placed for placed in small if not placed.call.meets]
    if rest and starts:
        waves[-len(starts)][:0] = rest
    elif rest:
        waves.append(rest)
    return waves


def is_open(placed: PlacedCall) -> bool:
    """Whether a call is divided while it runs, judged for open dimensions of size 1."""
    call = placed.call
    spent = _at_least(call.flops) / FLOPS_PER_NANOSECOND + _at_least(call.nbytes) / NBYTES_PER_NANOSECOND
    return not call.meets and spent >= LEAST_NANOSECONDS and _at_least(call.work) > 1


def _at_least(dim: Dim) -> int:
    return evaluate(dim, dict.fromkeys(symbols_of([dim]), 1))


@dataclass(frozen=True)
class Group:
    """The cores that run waves together.

    Attributes:
        first_core, n_cores: of the instance. share: the running core's.
        counts: the slot of the first core's branch, where counts of taken chunks lie, see runtime/sync.py.
    """

    first_core: int
    n_cores: int
    share: Share
    counts: KValue


def run_waves(k: Builder, waves: Sequence[Wave], group: Group, stamp: Callable[[PlacedCall], int | None]) -> None:
    """The running core's part of all waves. `stamp`: a call's number in a trace, None where there is none."""
    for i, wave in enumerate(waves):
        if i and group.n_cores > 1:
            barrier(k, group.share.slot, group.n_cores)
        number = 0
        for placed in wave:
            if group.n_cores > 1 and is_open(placed):
                _run_open(k, placed, group, number, stamp(placed))
                number += 1
            else:
                run_call(k, placed, group.share, stamp(placed))


def _run_open(k: Builder, placed: PlacedCall, group: Group, number: int, stamp: int | None) -> None:
    """Run a call with the neighbour, until nothing is left of what both may take; `number`: of the count."""
    share, n = group.share, group.n_cores
    args = pointers(k, placed, share)
    work = k.index(placed.call.work)
    pair = k.udiv(share.core, 2) * 2
    after = k.min(pair + 2, n)
    low, high = k.udiv(work * pair, n), k.udiv(work * after, n)
    is_second = k.urem(share.core, 2) > 0
    takers = after - pair
    size = high - low
    chunk = k.max(k.udiv(size, MOST_CHUNKS), 1)
    most = k.min(k.udiv(size, chunk * 4) + 2, k.udiv(size, chunk))
    chunks = k.select(takers > 1, most, 0)
    own = size - chunks * chunk
    below = k.select(takers > 1, k.udiv(own, 2), own)
    middle, end = low + below, high - (own - below)

    def run(begin: KValue, end: KValue) -> None:
        run_items(k, placed, args, share, begin, end, stamp)

    begin, until = k.select(is_second, end, low), k.select(is_second, high, middle)
    k.if_(begin < until, lambda: run(begin, until))
    count = k.gep(group.counts, pair * SLOT_NBYTES + (CLAIMS_OFFSET + CLAIM_NBYTES * number))

    def take(i: KValue, going: list[KValue]) -> list[KValue]:
        def another() -> list[KValue]:
            found = take_ticket(k, count, chunks + takers - 1) < chunks
            at = k.select(is_second, end - (i + 1) * chunk, middle + i * chunk)
            k.if_(found, lambda: run(at, at + chunk))
            return [k.select(found, k.index(1), k.index(0))]

        return k.if_(going[0] > 0, another, lambda: [k.index(0)])

    k.for_(0, chunks + 1, 1, [k.index(1)], take)


__all__ = ["Group", "Wave", "is_open", "run_waves", "waves_of"]
