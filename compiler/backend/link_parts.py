"""The functions that run a segment's kernels in order, in kernel IR. Owns how many there are; link.py calls them."""

from __future__ import annotations

from typing import NamedTuple

from ...runtime.stamps import MAX_CALLS
from ..kernel_ir.loops import KFunc
from ..kernel_ir.synchronisation import barrier
from .link_calls import run_call, segment_builder, share_of
from .lower import Input, Offset, Output, Place, PlacedCall, Segment

CALLS_PER_FUNCTION = 256

class Part(NamedTuple):
    """A function that runs some of a segment's kernels, and which of the segment's pointers it takes."""

    func: KFunc
    used: tuple[int, ...]


def segment_parts(segment: Segment, number: int, symbols: tuple[str, ...], trace: bool = False) -> list[Part]:
    """The functions that run a segment's kernels in order, in kernel IR.

    Parameters: pointers of the caller's, weights, arena, dims, sync, tid, nt. LLVM takes quadratic time over functions
    of thousands of calls, branches or parameters: there are no branches, and many calls become a function for each few,
    which takes only the pointers that it uses.
    """
    stamps = number * MAX_CALLS if trace else None
    n_pointers = segment.n_inputs + segment.n_outputs
    if len(segment.calls) <= CALLS_PER_FUNCTION:
        name, everything = f"segment_{number}", tuple(range(n_pointers))
        return [Part(_calls_function(segment, name, symbols, segment.calls, stamps, everything), everything)]
    parts = []
    for start in range(0, len(segment.calls), CALLS_PER_FUNCTION):
        calls = segment.calls[start : start + CALLS_PER_FUNCTION]
        used = tuple(sorted({i for call in calls for place in call.places for i in _pointers_of(place, segment)}))
        first = None if stamps is None else stamps + start
        parts.append(Part(_calls_function(segment, f"segment_{number}_{start}", symbols, calls, first, used), used))
    return parts


def _pointers_of(place: Place, segment: Segment) -> tuple[int, ...]:
    """The caller's pointer that a place lies behind: inputs come first, then outputs."""
    if isinstance(place, Offset):
        return _pointers_of(place.place, segment)
    if isinstance(place, Input):
        return (place.index,)
    return (segment.n_inputs + place.index,) if isinstance(place, Output) else ()


def _calls_function(
    segment: Segment, name: str, symbols: tuple[str, ...], calls: list[PlacedCall], stamps: int | None,
    used: tuple[int, ...],
) -> KFunc:  # fmt: skip
    """`stamps`: the number of the first call in a trace, None where there is none. `used`: see Part."""
    k = segment_builder(segment, name, symbols, used=used)
    share = share_of(k, segment, k["tid"], k["nt"])
    for i, placed in enumerate(calls):
        run_call(k, placed, share, None if stamps is None else stamps + i)
        if i + 1 < len(calls):
            barrier(k)
    return k.func
