"""Native hand-off between threads: the records that threads share, and the code that waits, works and answers.

A lane is one thread of an instance: lane 0 leads, the others follow it into every segment (latency mode). The leaders
of several instances together work off one queue of pieces of a request (throughput mode), some of them later than
others where starts are delayed. Python starts each thread once; after that a request costs one call and no thread but
the caller's touches the interpreter. Threads wait on POSIX semaphores after a short spin. Knows the memory layout and
the LLVM text, which is long; native.py makes it callable.
"""

from __future__ import annotations

import ctypes

_p, _i64, _i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_SEMAPHORE = ctypes.c_char * 64  # sem_t is 32 bytes on 64-bit glibc and less on musl; one cache line each

RUN, WORK, STOP = 0, 1, 2  # commands


class Lane(ctypes.Structure):
    """What one thread is told, and its answer. The lanes of an instance lie in one array, the leader first."""

    _fields_ = [
        ("wake", _SEMAPHORE),
        ("done", _SEMAPHORE),
        ("run", _p),  # parax_run_S
        ("io", _p),
        ("weights", _p),
        ("arena", _p),
        ("dims", _p),
        ("tid", _i64),
        ("nt", _i64),
        ("sync", _p),
        ("queue", _p),
        ("command", _i32),
        ("status", _i32),
        ("n_spins", _i64),
        ("core", _i64),
        ("delay", _i64),  # nanoseconds after a queue's begin
        ("padding", ctypes.c_char * 24),
    ]


class Queue(ctypes.Structure):
    """The pieces of one request: lanes take the next one until none is left or one has failed.

    `began` is the monotonic clock's nanoseconds, for lanes with a delay.
    """

    _fields_ = [("next", _i64), ("count", _i64), ("pieces", _p), ("run", _p), ("status", _i32), ("began", _i64)]


class Piece(ctypes.Structure):
    """One piece of a request: its pointers and its dimensions."""

    _fields_ = [("io", _p), ("dims", _p)]


_PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARATION = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.hint(i32)",
}

_TEXT = """
declare i32 @sem_wait(ptr)
declare i32 @sem_trywait(ptr)
declare i32 @sem_post(ptr)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @clock_nanosleep(i32, i32, ptr, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{pause_declaration}

define internal i64 @nanoseconds() noinline {{
entry:
  %time = alloca {{ i64, i64 }}, align 8
  call i32 @clock_gettime(i32 {CLOCK}, ptr %time)
  %seconds = load i64, ptr %time
  %part.p = getelementptr i8, ptr %time, i64 8
  %part = load i64, ptr %part.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %part
  ret i64 %now
}}

; Take one unit of a semaphore: spin n times, but no longer than a hand-off takes, whatever a pause takes here (some 20
; to 150 cycles, and a trap under some hypervisors); then sleep (again after a signal interrupted the sleep).
define internal void @take(ptr %semaphore, i64 %n) noinline {{
entry:
  br label %spin
spin:
  %i = phi i64 [ 0, %entry ], [ %i1, %again ]
  %until = phi i64 [ 0, %entry ], [ %until1, %again ]
  %tried = call i32 @sem_trywait(ptr %semaphore)
  %got = icmp eq i32 %tried, 0
  br i1 %got, label %out, label %look
look:
  %since = urem i64 %i, {tries}
  %due = icmp eq i64 %since, 0
  br i1 %due, label %clock, label %again
clock:
  %now = call i64 @nanoseconds()
  %first = icmp eq i64 %i, 0
  %latest = add i64 %now, {spin}
  %until2 = select i1 %first, i64 %latest, i64 %until
  %late = icmp sge i64 %now, %until2
  br i1 %late, label %sleep, label %again
again:
  %until1 = phi i64 [ %until, %look ], [ %until2, %clock ]
  {pause}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %spin, label %sleep
sleep:
  %slept = call i32 @sem_wait(ptr %semaphore)
  %woken = icmp eq i32 %slept, 0
  br i1 %woken, label %out, label %sleep
out:
  ret void
}}

; Bring the calling thread to its lane's core, where the mask it came with allows, and leave it free to move again:
; a thread that shares a core with a pinned one would meet it at no barrier before the system's time slice ends.
define internal void @settle(ptr %lane) noinline {{
entry:
  %mask = alloca [{mask_size} x i8], align 8
  %saved = alloca [{mask_size} x i8], align 8
  %core.p = getelementptr i8, ptr %lane, i64 {core}
  %core = load i64, ptr %core.p
  %here32 = call i32 @sched_getcpu()
  %here = sext i32 %here32 to i64
  %settled = icmp eq i64 %here, %core
  br i1 %settled, label %out, label %look
look:
  %got = call i32 @sched_getaffinity(i32 0, i64 {mask_size}, ptr %saved)
  %known = icmp sge i32 %got, 0
  br i1 %known, label %check, label %out
check:
  %byte = lshr i64 %core, 3
  %bit64 = and i64 %core, 7
  %bit = trunc i64 %bit64 to i8
  %one = shl i8 1, %bit
  %saved.p = getelementptr i8, ptr %saved, i64 %byte
  %saved.byte = load i8, ptr %saved.p
  %both = and i8 %saved.byte, %one
  %allowed = icmp ne i8 %both, 0
  br i1 %allowed, label %move, label %out
move:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 {mask_size}, i1 false)
  %mask.p = getelementptr i8, ptr %mask, i64 %byte
  store i8 %one, ptr %mask.p
  call i32 @sched_setaffinity(i32 0, i64 {mask_size}, ptr %mask)
  call i32 @sched_setaffinity(i32 0, i64 {mask_size}, ptr %saved)
  br label %out
out:
  ret void
}}

define internal i32 @call_segment(ptr %lane) {{
{loads}
  %status = call i32 %run(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync)
  ret i32 %status
}}

; The calling thread leads an instance into one segment; the answer is the first failure in order of lanes.
define i32 @parax_team(ptr %lane) {{
  %nt.p = getelementptr i8, ptr %lane, i64 {nt}
  %nt = load i64, ptr %nt.p
  %alone = icmp eq i64 %nt, 1
  br i1 %alone, label %run, label %several
several:
  call void @settle(ptr %lane)
  br label %run
run:
  %status = call i32 @team(ptr %lane)
  ret i32 %status
}}

define internal i32 @team(ptr %lane) noinline {{
entry:
{loads}
  %n_spins.p = getelementptr i8, ptr %lane, i64 {n_spins}
  %n_spins = load i64, ptr %n_spins.p
  br label %tell
tell:
  %t = phi i64 [ 1, %entry ], [ %t1, %tell.body ]
  %tell.more = icmp slt i64 %t, %nt
  br i1 %tell.more, label %tell.body, label %own
tell.body:
  %o = mul i64 %t, {lane_size}
  %f = getelementptr i8, ptr %lane, i64 %o
  %f.run = getelementptr i8, ptr %f, i64 {run}
  store ptr %run, ptr %f.run
  %f.io = getelementptr i8, ptr %f, i64 {io}
  store ptr %io, ptr %f.io
  %f.arena = getelementptr i8, ptr %f, i64 {arena}
  store ptr %arena, ptr %f.arena
  %f.dims = getelementptr i8, ptr %f, i64 {dims}
  store ptr %dims, ptr %f.dims
  %f.wake = getelementptr i8, ptr %f, i64 {wake}
  call i32 @sem_post(ptr %f.wake)
  %t1 = add i64 %t, 1
  br label %tell
own:
  %mine = call i32 @call_segment(ptr %lane)
  br label %wait
wait:
  %w = phi i64 [ 1, %own ], [ %w1, %wait.body ]
  %status = phi i32 [ %mine, %own ], [ %status1, %wait.body ]
  %wait.more = icmp slt i64 %w, %nt
  br i1 %wait.more, label %wait.body, label %out
wait.body:
  %wo = mul i64 %w, {lane_size}
  %g = getelementptr i8, ptr %lane, i64 %wo
  %g.done = getelementptr i8, ptr %g, i64 {done}
  call void @take(ptr %g.done, i64 %n_spins)
  %g.status = getelementptr i8, ptr %g, i64 {status}
  %theirs = load i32, ptr %g.status
  %fine = icmp eq i32 %status, 0
  %status1 = select i1 %fine, i32 %theirs, i32 %status
  %w1 = add i64 %w, 1
  br label %wait
out:
  ret i32 %status
}}

; A leader with a delay sleeps until so long after its queue began, in slices: it gets up once nothing is left to do.
define void @parax_start_late(ptr %lane, ptr %queue) noinline {{
entry:
  %time = alloca {{ i64, i64 }}, align 8
  %part.p = getelementptr i8, ptr %time, i64 8
  %delay.p = getelementptr i8, ptr %lane, i64 {delay}
  %delay = load i64, ptr %delay.p
  %late = icmp sgt i64 %delay, 0
  br i1 %late, label %plan, label %out
plan:
  %began.p = getelementptr i8, ptr %queue, i64 {q_began}
  %began = load i64, ptr %began.p
  %start = add i64 %began, %delay
  %next = getelementptr i8, ptr %queue, i64 {q_next}
  %count.p = getelementptr i8, ptr %queue, i64 {q_count}
  %count = load i64, ptr %count.p
  %status.p = getelementptr i8, ptr %queue, i64 {q_status}
  br label %look
look:
  %taken = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %taken, %count
  %failure = load atomic i32, ptr %status.p monotonic, align 4
  %sound = icmp eq i32 %failure, 0
  %of_use = and i1 %some, %sound
  br i1 %of_use, label %clock, label %out
clock:
  %now = call i64 @nanoseconds()
  %left = sub i64 %start, %now
  %early = icmp sgt i64 %left, 0
  br i1 %early, label %nap, label %out
nap:
  %short = icmp slt i64 %left, {slice}
  %slice = select i1 %short, i64 %left, i64 {slice}
  %until = add i64 %now, %slice
  %until.seconds = sdiv i64 %until, 1000000000
  %until.part = srem i64 %until, 1000000000
  store i64 %until.seconds, ptr %time
  store i64 %until.part, ptr %part.p
  call i32 @clock_nanosleep(i32 {CLOCK}, i32 1, ptr %time, ptr null)
  br label %look
out:
  ret void
}}

; A leader takes pieces off its queue until none is left or any has failed.
define internal void @work(ptr %lane) {{
entry:
  %queue.p = getelementptr i8, ptr %lane, i64 {queue}
  %queue = load ptr, ptr %queue.p
  call void @parax_start_late(ptr %lane, ptr %queue)
  %next = getelementptr i8, ptr %queue, i64 {q_next}
  %count.p = getelementptr i8, ptr %queue, i64 {q_count}
  %count = load i64, ptr %count.p
  %pieces.p = getelementptr i8, ptr %queue, i64 {q_pieces}
  %pieces = load ptr, ptr %pieces.p
  %run.p = getelementptr i8, ptr %queue, i64 {q_run}
  %run = load ptr, ptr %run.p
  %status.p = getelementptr i8, ptr %queue, i64 {q_status}
  %lane.run = getelementptr i8, ptr %lane, i64 {run}
  store ptr %run, ptr %lane.run
  br label %again
again:
  %i = atomicrmw add ptr %next, i64 1 seq_cst
  %left = icmp slt i64 %i, %count
  %failure = load atomic i32, ptr %status.p monotonic, align 4
  %sound = icmp eq i32 %failure, 0
  %go = and i1 %left, %sound
  br i1 %go, label %piece, label %out
piece:
  %offset = mul i64 %i, {piece_size}
  %piece.p = getelementptr i8, ptr %pieces, i64 %offset
  %io.p = getelementptr i8, ptr %piece.p, i64 {p_io}
  %io = load ptr, ptr %io.p
  %dims.p = getelementptr i8, ptr %piece.p, i64 {p_dims}
  %dims = load ptr, ptr %dims.p
  %lane.io = getelementptr i8, ptr %lane, i64 {io}
  store ptr %io, ptr %lane.io
  %lane.dims = getelementptr i8, ptr %lane, i64 {dims}
  store ptr %dims, ptr %lane.dims
  %status = call i32 @team(ptr %lane)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %again, label %fail
fail:
  store atomic i32 %status, ptr %status.p monotonic, align 4
  br label %again
out:
  ret void
}}

; n leaders work off one queue; the first is the calling thread's. The answer is 0 or a failed piece's status.
define i32 @parax_crew(ptr %lanes, i64 %n, ptr %queue) {{
entry:
  %first = load ptr, ptr %lanes
  %n_spins.p = getelementptr i8, ptr %first, i64 {n_spins}
  %n_spins = load i64, ptr %n_spins.p
  br label %tell
tell:
  %t = phi i64 [ 0, %entry ], [ %t1, %tell.next ]
  %lane.p = getelementptr ptr, ptr %lanes, i64 %t
  %lane = load ptr, ptr %lane.p
  %lane.queue = getelementptr i8, ptr %lane, i64 {queue}
  store ptr %queue, ptr %lane.queue
  %other = icmp sgt i64 %t, 0
  br i1 %other, label %tell.other, label %tell.next
tell.other:
  %lane.command = getelementptr i8, ptr %lane, i64 {command}
  store i32 {WORK}, ptr %lane.command
  %lane.wake = getelementptr i8, ptr %lane, i64 {wake}
  call i32 @sem_post(ptr %lane.wake)
  br label %tell.next
tell.next:
  %t1 = add i64 %t, 1
  %tell.more = icmp slt i64 %t1, %n
  br i1 %tell.more, label %tell, label %own
own:
  %first.nt.p = getelementptr i8, ptr %first, i64 {nt}
  %first.nt = load i64, ptr %first.nt.p
  %n_threads = mul i64 %n, %first.nt
  %several = icmp sgt i64 %n_threads, 1
  br i1 %several, label %place, label %begin
place:
  call void @settle(ptr %first)
  br label %begin
begin:
  call void @work(ptr %first)
  br label %wait
wait:
  %w = phi i64 [ 1, %begin ], [ %w1, %wait.body ]
  %wait.more = icmp slt i64 %w, %n
  br i1 %wait.more, label %wait.body, label %out
wait.body:
  %wlane.p = getelementptr ptr, ptr %lanes, i64 %w
  %wlane = load ptr, ptr %wlane.p
  %wdone = getelementptr i8, ptr %wlane, i64 {done}
  call void @take(ptr %wdone, i64 %n_spins)
  %w1 = add i64 %w, 1
  br label %wait
out:
  %status.p = getelementptr i8, ptr %queue, i64 {q_status}
  %status = load i32, ptr %status.p
  ret i32 %status
}}

; The life of every thread but the caller's: wait, obey, answer; returns once told to stop.
define i32 @parax_worker(ptr %lane) {{
entry:
  %wake = getelementptr i8, ptr %lane, i64 {wake}
  %done = getelementptr i8, ptr %lane, i64 {done}
  %command.p = getelementptr i8, ptr %lane, i64 {command}
  %status.p = getelementptr i8, ptr %lane, i64 {status}
  %n_spins.p = getelementptr i8, ptr %lane, i64 {n_spins}
  %n_spins = load i64, ptr %n_spins.p
  br label %listen
listen:
  call void @take(ptr %wake, i64 %n_spins)
  %command = load i32, ptr %command.p
  switch i32 %command, label %out [ i32 {RUN}, label %segment
                                    i32 {WORK}, label %pieces ]
segment:
  %status = call i32 @call_segment(ptr %lane)
  store i32 %status, ptr %status.p
  br label %answer
pieces:
  call void @work(ptr %lane)
  br label %answer
answer:
  call i32 @sem_post(ptr %done)
  br label %listen
out:
  ret i32 0
}}
"""

_MASK_NBYTES = 1024  # 8192 cores
_CLOCK_MONOTONIC = 1
_SPIN_NANOSECONDS = 40_000  # a little more than a hand-off: a caller that comes at once finds the thread awake
_SPIN_TRIES = 32  # between two looks at the clock
_SLICE_NANOSECONDS = 200_000  # of a sleep before a late start
_ARGUMENTS = {
    "run": "ptr",
    "io": "ptr",
    "weights": "ptr",
    "arena": "ptr",
    "dims": "ptr",
    "tid": "i64",
    "nt": "i64",
    "sync": "ptr",
}


def lanes_text(arch: str, pause_is_declared: bool = False) -> str:
    """The LLVM text of parax_team, parax_crew and parax_worker, all `i32(ptr ...)`, for a machine architecture.

    Args:
        arch: as LLVM spells it; x86_64 and aarch64 have a pause instruction for waiting threads.
        pause_is_declared: the text joins a module that declares the pause intrinsic itself.
    """
    offsets: dict[str, object] = {name: getattr(Lane, name).offset for name, *_ in Lane._fields_}
    offsets |= {f"q_{name}": getattr(Queue, name).offset for name, *_ in Queue._fields_}
    offsets |= {f"p_{name}": getattr(Piece, name).offset for name, *_ in Piece._fields_}
    loads = "\n".join(
        f"  %{name}.p = getelementptr i8, ptr %lane, i64 {offsets[name]}\n  %{name} = load {kind}, ptr %{name}.p"
        for name, kind in _ARGUMENTS.items()
    )
    return _TEXT.format(
        **offsets,
        loads=loads,
        pause=_PAUSE.get(arch, ""),
        pause_declaration="" if pause_is_declared else _PAUSE_DECLARATION.get(arch, ""),
        lane_size=ctypes.sizeof(Lane),
        piece_size=ctypes.sizeof(Piece),
        mask_size=_MASK_NBYTES,
        CLOCK=_CLOCK_MONOTONIC,
        spin=_SPIN_NANOSECONDS,
        tries=_SPIN_TRIES,
        slice=_SLICE_NANOSECONDS,
        RUN=RUN,
        WORK=WORK,
    )
