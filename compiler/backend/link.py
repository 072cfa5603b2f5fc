"""Kernel calls → one native function per segment → object code: the last step before the plan.

Owns the native interface that the runtime calls:
`i32 parax_run_<S>(ptr io, ptr weights, ptr arena, ptr dims, i64 tid, i64 nt, ptr sync)`, io holding the pointers of
inputs, then outputs; between kernels the cores that share an instance meet. The runtime's own native functions
(runtime/handoff.py), the same for every plan, are an object of their own, which `objects` adds. It must not know how
kernels are made.

A module linked with `trace` stores the processor's time counter before and after every kernel call, for
runtime/profiling/recorder.py to read; others carry no trace of it.
"""

from __future__ import annotations

from typing import NamedTuple

from ...runtime.interface import interface_text
from ...runtime.stamps import MAX_CALLS, stamp_text, whole_number
from ..kernel_ir.loops import KFunc
from ..kernel_ir.synchronisation import barrier, error_function
from ..targets.target import Target
from .emit_llvm import ModuleEmitter
from .link_calls import SHARED, entry_builder, load_pointers, run_call, segment_builder, share_of
from .link_schedule import scheduled_entry
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


def entry(parts: list[Part], number: int, trace: bool = False) -> KFunc:
    """The exported entry of a segment: unpacks the pointers of each part, runs it, returns the error site."""
    k = entry_builder(number)
    if trace:
        k.stamp(whole_number(number, is_end=False))
    for part in parts:
        k.call(part.func, [*load_pointers(k, k["io"], part.used), *(k[name] for name in SHARED)])
        barrier(k)
    if trace:
        k.stamp(whole_number(number, is_end=True))
    k.ret(k.call(error_function(), [k["sync"]]))
    return k.func


def link_module(segments: list[Segment], target: Target, symbols: tuple[str, ...], trace: bool = False) -> str:
    """LLVM text of all segments of a plan for one target; with `trace`, of the build that records its kernels.

    The scheduled programs are numbered behind the segments.
    """
    module = ModuleEmitter(target)
    extra = [interface_text()] + ([stamp_text(target.arch)] if trace else [])
    for number, segment in enumerate(segments):
        module.add([entry(segment_parts(segment, number, symbols, trace), number, trace)])
    scheduled = [of for of, segment in enumerate(segments) if segment.scheduled is not None]
    for number, of in enumerate(scheduled, len(segments)):
        module.add([scheduled_entry(segments[of], number, of, symbols, trace)])
    return module.text(extra="\n".join(extra))
