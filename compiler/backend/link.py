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
from ...runtime.stamps import MAX_CALLS, stamp_text, whole_stamp
from ...runtime.sync import ERROR_OFFSET
from ..kernel_ir.loops import KFunc
from ..kernel_ir.synchronisation import barrier, barrier_function, wait_function
from ..targets.target import Target
from .emit_llvm import ModuleEmitter
from .link_calls import run_call, segment_builder, share_of
from .link_schedule import schedule_functions, schedule_text
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


def entry_text(parts: list[Part], number: int, trace: bool = False) -> str:
    """The exported entry of a segment: unpacks the pointers of each part, runs it, returns the error site."""
    lines = [f"define i32 @parax_run_{number}(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, "
             "ptr %sync) #0 {"]
    lines += [whole_stamp(number, is_end=False)] if trace else []
    for p, part in enumerate(parts):
        suffix = f".{p}" if len(parts) > 1 else ""
        for i in part.used:
            at, pointer = f"%at{i}{suffix}", f"%a{i}{suffix}"
            lines += [f"  {at} = getelementptr ptr, ptr %io, i64 {i}", f"  {pointer} = load ptr, ptr {at}"]
        args = ", ".join([f"ptr %a{i}{suffix}" for i in part.used] + ["ptr %weights", "ptr %arena", "ptr %dims",
                                                                     "ptr %sync", "i64 %tid", "i64 %nt"])
        lines += [f"  call void @{part.func.name}({args})", "  call void @parax_barrier(ptr %sync, i64 %nt)"]
    lines += [whole_stamp(number, is_end=True)] if trace else []
    lines += [f"  %slot = getelementptr i8, ptr %sync, i64 {ERROR_OFFSET}",
              "  %site = load atomic i32, ptr %slot monotonic, align 4", "  ret i32 %site", "}"]
    return "\n".join(lines)


def link_module(segments: list[Segment], target: Target, symbols: tuple[str, ...], trace: bool = False) -> str:
    """LLVM text of all segments of a plan for one target; with `trace`, of the build that records its kernels.

    The scheduled programs are numbered behind the segments.
    """
    module = ModuleEmitter(target)
    module.add([barrier_function()])
    extra = [interface_text()]
    extra += [stamp_text(target.arch)] if trace else []
    for number, segment in enumerate(segments):
        parts = segment_parts(segment, number, symbols, trace)
        module.add([part.func for part in parts])
        extra.append(entry_text(parts, number, trace))
    scheduled = [of for of, segment in enumerate(segments) if segment.scheduled is not None]
    for number, of in enumerate(scheduled, len(segments)):
        module.add(schedule_functions(segments[of], number, of, symbols, trace))
        extra.append(schedule_text(segments[of], number, of if trace else None))
    if scheduled:
        module.add([wait_function()])
    return module.text(extra="\n".join(extra))
