"""How a native function runs a kernel call: the operands' addresses, this core's share of the work, its stamps.

Owns the parameters of a segment's functions. It must not know in which order calls run, nor who waits for whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...runtime.sync import MEETING_OFFSET
from ..ir.types import I32, ceil_div
from ..kernel_ir.builder import BYTES, I64PTR, Builder, KValue
from ..kernel_ir.loops import INDEX, KType, PtrType
from .lower import (
    ALIGN,
    Arena,
    CommonScratch,
    CoreScratch,
    Input,
    MeetingWord,
    Offset,
    Output,
    Place,
    PlacedCall,
    RotatingBuffer,
    ScheduledSegment,
    Segment,
)


@dataclass(frozen=True)
class Share:
    """Which part of a call's work is this core's, and what it shares with the others that run the call.

    Attributes:
        core: its number among them, from 0. n_cores: how many they are.
        slot: their slot of the sync block, in which they meet and report; see runtime/sync.py.
        scratch: this core's scratch memory. common: that of the first of them. None if no call needs any.
    """

    core: KValue
    n_cores: KValue
    slot: KValue
    scratch: KValue | None
    common: KValue | None


def segment_builder(
    segment: Segment, name: str, symbols: tuple[str, ...], pipelined: bool = False, used: Sequence[int] | None = None
) -> Builder:
    """A function with the parameters of a segment; in a pipeline also `room` and `piece`, see link_schedule.

    Args:
        used: which of the caller's pointers, inputs first, are parameters; None: all.
    """
    n_in = segment.n_inputs
    every = range(n_in + segment.n_outputs) if used is None else used
    pointers = [(f"in{i}" if i < n_in else f"out{i - n_in}", BYTES) for i in every]
    pointers += [("weights", BYTES), ("arena", BYTES), ("dims", I64PTR), ("sync", BYTES)]
    cores: list[tuple[str, KType | PtrType]] = [("tid", INDEX), ("nt", INDEX)]
    more: list[tuple[str, KType | PtrType]] = [("room", I64PTR), ("piece", INDEX)] if pipelined else []
    k = Builder(name, [*pointers, *cores, *more], symbols, inline="never")
    k.func.noalias = False  # operands of different kernels share the arena
    return k


SHARED = ("weights", "arena", "dims", "sync", "tid", "nt")
"""The parameters of a segment's functions behind the caller's pointers."""


def entry_builder(number: int) -> Builder:
    """A segment's exported function, as the runtime calls it; see link."""
    parameters: list[tuple[str, KType | PtrType]] = [
        ("io", I64PTR), ("weights", BYTES), ("arena", BYTES), ("dims", I64PTR), ("tid", INDEX), ("nt", INDEX),
        ("sync", BYTES),
    ]  # fmt: skip
    k = Builder(f"parax_run_{number}", parameters, returns=KType(I32))
    k.func.noalias, k.func.exported = False, True
    return k


def load_pointers(k: Builder, io: KValue, used: Iterable[int]) -> list[KValue]:
    """Those of the caller's pointers, inputs first, whose numbers are used."""
    return [k.load_pointer(io, i) for i in used]


def layout(k: Builder) -> str:
    """The parameter with the dimensions by which the arena is laid out."""
    return "room" if "room" in k.params else "dims"


def share_of(
    k: Builder, memory: Segment | ScheduledSegment, core: KValue, n_cores: KValue, first_core: int = 0, slot: int = 0
) -> Share:
    """The share of a core of a group.

    Args:
        memory: what the arena and the cores' scratch behind it need. core: its number in the group.
        first_core: of the group, among the instance's. slot: bytes to the group's slot.
    """
    scratch = common = None
    if memory.scratch != 0:
        stride = k.index(ceil_div(memory.scratch, ALIGN) * ALIGN, layout(k))
        common = k.gep(k["arena"], k.index(memory.arena, layout(k)) + stride * first_core)
        scratch = k.gep(common, core * stride)
    return Share(core, n_cores, k.gep(k["sync"], slot), scratch, common)


def run_call(k: Builder, placed: PlacedCall, share: Share, stamp: int | None) -> None:
    """This core's share of one kernel call; with its number in a trace, its begin and end are recorded."""
    args = pointers(k, placed, share)
    work = k.index(placed.call.work)
    begin = k.udiv(work * share.core, share.n_cores)
    end = k.udiv(work * (share.core + 1), share.n_cores)
    run_items(k, placed, args, share, begin, end, stamp)


def pointers(k: Builder, placed: PlacedCall, share: Share) -> list[KValue]:
    """Where a call's operands lie for this core."""
    return [_pointer(k, place, share) for place in placed.places]


def run_items(
    k: Builder, placed: PlacedCall, args: list[KValue], share: Share, begin: KValue, end: KValue, stamp: int | None
) -> None:  # fmt: skip
    """Items [begin, end) of a call with these `pointers`."""
    if stamp is not None:
        k.stamp(2 * stamp)
    k.call(placed.call.func, [*args, k["dims"], share.slot, begin, end])
    if stamp is not None:
        k.stamp(2 * stamp + 1)


def _pointer(k: Builder, place: Place, share: Share) -> KValue:
    if isinstance(place, Input):
        return k[f"in{place.index}"]
    if isinstance(place, Output):
        return k[f"out{place.index}"]
    if isinstance(place, Arena):
        return k.gep(k["arena"], k.index(place.offset, layout(k)))
    if isinstance(place, RotatingBuffer):
        turn = k.urem(k["piece"], place.count) * k.index(place.stride, layout(k))
        return k.gep(k["arena"], k.index(place.offset, layout(k)) + turn)
    if isinstance(place, (CoreScratch, CommonScratch)):
        memory = share.scratch if isinstance(place, CoreScratch) else share.common
        assert memory is not None
        return k.gep(memory, k.index(place.offset))
    if isinstance(place, MeetingWord):
        return k.gep(share.slot, MEETING_OFFSET)
    if isinstance(place, Offset):
        return k.gep(_pointer(k, place.place, share), k.index(place.offset))
    return k.gep(k["weights"], place.offset)
