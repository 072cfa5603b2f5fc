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

from collections.abc import Sequence

from ...runtime.interface import interface_text
from ...runtime.stamps import stamp_text, whole_number
from ..kernel_ir.loops import KFunc
from ..kernel_ir.synchronisation import barrier, error_function
from ..targets.target import Target
from .emit_llvm import ModuleEmitter
from .link_calls import SHARED, entry_builder, load_pointers
from .link_parts import Part, segment_parts
from .link_programs import program_part
from .link_schedule import scheduled_entry
from .lower import Segment
from .programs import Program


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


def link_module(segments: list[Segment], target: Target, symbols: tuple[str, ...], trace: bool = False,
                programs: Sequence[Program] = ()) -> str:
    """LLVM text of all segments of a plan for one target; with `trace`, of the build that records its kernels.

    Args:
        programs: functions that run several of the segments, which then have no entry of their own. They, or else
            the scheduled programs, are numbered behind the segments.
    """
    module = ModuleEmitter(target)
    extra = [interface_text()] + ([stamp_text(target.arch)] if trace else [])
    inside = {number for program in programs for number in program.segments()}
    for number, segment in enumerate(segments):
        if number not in inside:
            module.add([entry(segment_parts(segment, number, symbols, trace), number, trace)])
    for program in programs:
        parts = {number: segment_parts(segments[number], number, symbols, trace) for number in program.segments()}
        module.add([entry([program_part(program, parts, symbols)], program.number, trace)])
    scheduled = [of for of, segment in enumerate(segments) if segment.scheduled is not None]
    for number, of in enumerate(scheduled, len(segments)):
        module.add([scheduled_entry(segments[of], number, of, symbols, trace)])
    return module.text(extra="\n".join(extra))
