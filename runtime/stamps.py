"""The native code that stamps the time of a kernel's begin and end, in plans linked for tracing.

A stamp goes to the calling thread's own log; the sync block of its instance holds the address of the instance's logs,
or none, and then nothing is recorded. Knows the layout and the LLVM text; profiling/recorder.py reads the logs.
"""

from __future__ import annotations

TRACE_OFFSET = 96
"""Bytes into the sync block, where the address of the instance's logs is."""
MAX_CALLS = 1 << 20
"""Kernel calls of a segment, at most; call c of segment s has number s × MAX_CALLS + c."""
WHOLE = MAX_CALLS - 1
"""The "call" that is a core's time in the segment from its entry to its return, with all kernels inside."""
HEAD_NBYTES, EVENT_NBYTES = 64, 16
"""Of the logs: bytes of one log, events it holds. Of a log: events so far. Of an event: its number, its ticks."""

_COUNTERS = {
    "x86_64": ("declare i64 @llvm.readcyclecounter()", "call i64 @llvm.readcyclecounter()"),
    "aarch64": (
        'declare i64 @llvm.read_volatile_register.i64(metadata)\n!100 = !{!"cntvct_el0"}',
        "call i64 @llvm.read_volatile_register.i64(metadata !100)",
    ),
}
"""By architecture, what declares and what reads the counter that all its cores share and programs may read. AArch64's
cycle counter they may not, and of llvm.readsteadycounter LLVM 22 makes 0 there."""

_TEXT = f"""
DECLARATION
define i64 @parax_ticks() {{
  %now = COUNTER
  ret i64 %now
}}
define internal void @parax_stamp(ptr %sync, i64 %tid, i64 %number) noinline nounwind {{
entry:
  %slot = getelementptr i8, ptr %sync, i64 {TRACE_OFFSET}
  %logs = load ptr, ptr %slot
  %off = icmp eq ptr %logs, null
  br i1 %off, label %out, label %find
find:
  %nbytes = load i64, ptr %logs
  %capacity.p = getelementptr i8, ptr %logs, i64 8
  %capacity = load i64, ptr %capacity.p
  %offset = mul i64 %tid, %nbytes
  %from = add i64 %offset, {HEAD_NBYTES}
  %log = getelementptr i8, ptr %logs, i64 %from
  %n = load i64, ptr %log
  %more = add i64 %n, 1
  store i64 %more, ptr %log
  %fits = icmp ult i64 %n, %capacity
  br i1 %fits, label %record, label %out
record:
  %at = mul i64 %n, {EVENT_NBYTES}
  %beyond = add i64 %at, {HEAD_NBYTES}
  %event = getelementptr i8, ptr %log, i64 %beyond
  store i64 %number, ptr %event
  %ticks.p = getelementptr i8, ptr %event, i64 8
  %ticks = COUNTER
  store i64 %ticks, ptr %ticks.p
  br label %out
out:
  ret void
}}
"""


def whole_number(segment: int, *, is_end: bool) -> int:
    """The number of the stamp of a core's entry into a segment, or of its return."""
    return 2 * (segment * MAX_CALLS + WHOLE) + is_end


def stamp_text(arch: str) -> str:
    """The LLVM text of parax_stamp(ptr sync, i64 tid, i64 number) and of parax_ticks()."""
    declaration, counter = _COUNTERS[arch]
    return _TEXT.replace("DECLARATION", declaration).replace("COUNTER", counter)
