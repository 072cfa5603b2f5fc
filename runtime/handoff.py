"""Native hand-off between threads: the records that threads share, and the code that waits, works and answers.

A worker is one thread of an instance: worker 0 leads, the others follow it into every segment (latency mode). The
leaders of several instances together work off one queue of pieces of a request (throughput mode): the caller's, which
closes the queue when no piece is left and waits for the others, and those that joined before, at the beginning or any
time later; some begin later than others where starts are delayed, and some leave between two pieces because they are
told to. Python starts each thread once; after that a request costs a call or two, and no thread but the caller's
touches the interpreter, unless it is to say that it left. Threads wait on POSIX semaphores after a short spin. Knows
the memory layout and the LLVM text, which is long; native.py makes it callable.
"""

from __future__ import annotations

import ctypes

from .waiting import PAUSES

_p, _i64, _i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_SEMAPHORE = ctypes.c_char * 64  # sem_t is 32 bytes on 64-bit glibc and less on musl; one cache line each

RUN, WORK, STOP = 0, 1, 2  # commands
AGAIN, UNFINISHED, HELD = -1, -2, -3
"""Answers of parax_crew: pieces are left, and somebody wanted to look after so long, call it again; none is left, but
others have not done theirs, call parax_crew_wait, which needs no instance. And of parax_crew_then: see there."""
STAY, LEAVE, TELL = 0, 1, 2
"""What a worker that works off another's queue is told: nothing, to leave after its piece, to say when none was left.
One that was told either comes back from native code once it is done (parax_worker answers 1)."""


class Worker(ctypes.Structure):
    """What one thread is told, and its answer. The workers of an instance lie in one array, the leader first."""

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
        ("busy", _i32),  # with a queue; whoever finds it 0 may have the instance
        ("leave", _i32),
        ("ended", _i64),  # the monotonic clock's nanoseconds when it last found no more to do in a queue
        ("lead", _p),  # the worker whose instance it leads through a queue, on its thread; null: its own
    ]


class Queue(ctypes.Structure):
    """The pieces of one request: workers take the next one until none is left or one has failed.

    `began` is the monotonic clock's nanoseconds, for workers with a delay. `look` is another such time, from which on
    the caller's worker comes back between two pieces; 0: never. `joined` counts the workers beside it, which post
    `done` when they are, until they were waited for; from `CLOSED` on no more may join. A worker posts after it has
    said that it is not busy: this memory must outlive that.
    """

    _fields_ = [
        ("next", _i64),
        ("count", _i64),
        ("pieces", _p),
        ("run", _p),
        ("status", _i64),
        ("began", _i64),
        ("look", _i64),
        ("joined", _i64),
        ("done", _SEMAPHORE),
    ]


CLOSED = 1 << 32


class Piece(ctypes.Structure):
    """One piece of a request: its pointers and its dimensions."""

    _fields_ = [("io", _p), ("dims", _p)]


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

; Take one unit of a semaphore if it comes while the thread spins: n times, but no longer than a hand-off takes,
; whatever a pause takes here (some 20 to 150 cycles, and a trap under some hypervisors).
define internal i1 @spin(ptr %semaphore, i64 %n) noinline {{
entry:
  br label %try
try:
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
  br i1 %late, label %out, label %again
again:
  %until1 = phi i64 [ %until, %look ], [ %until2, %clock ]
  {pause}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %try, label %out
out:
  %has = phi i1 [ 1, %try ], [ 0, %clock ], [ 0, %again ]
  ret i1 %has
}}

; The same, but sleep if it does not come meanwhile (again after a signal interrupted the sleep).
define internal void @take(ptr %semaphore, i64 %n) noinline {{
entry:
  %has = call i1 @spin(ptr %semaphore, i64 %n)
  br i1 %has, label %out, label %sleep
sleep:
  %slept = call i32 @sem_wait(ptr %semaphore)
  %woken = icmp eq i32 %slept, 0
  br i1 %woken, label %out, label %sleep
out:
  ret void
}}

; Bring the calling thread to its worker's core, where the mask it came with allows, and leave it free to move again:
; a thread that shares a core with a pinned one would meet it at no barrier before the system's time slice ends.
define internal void @settle(ptr %worker) noinline {{
entry:
  %mask = alloca [{mask_size} x i8], align 8
  %saved = alloca [{mask_size} x i8], align 8
  %core.p = getelementptr i8, ptr %worker, i64 {core}
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

define internal i32 @call_segment(ptr %worker) {{
{loads}
  %status = call i32 %run(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync)
  ret i32 %status
}}

; The calling thread leads an instance into one segment; the answer is the first failure in order of workers.
define i32 @parax_team(ptr %worker) {{
  %nt.p = getelementptr i8, ptr %worker, i64 {nt}
  %nt = load i64, ptr %nt.p
  %alone = icmp eq i64 %nt, 1
  br i1 %alone, label %run, label %several
several:
  call void @settle(ptr %worker)
  br label %run
run:
  %status = call i32 @team(ptr %worker)
  ret i32 %status
}}

; The same from the instance's core, whoever is alone there: where all instances are at work, a core that has two leaves
; another idle until the system looks for one.
define i32 @parax_team_settled(ptr %worker) {{
  call void @settle(ptr %worker)
  %status = call i32 @team(ptr %worker)
  ret i32 %status
}}

define internal i32 @team(ptr %worker) noinline {{
entry:
{loads}
  %n_spins.p = getelementptr i8, ptr %worker, i64 {n_spins}
  %n_spins = load i64, ptr %n_spins.p
  br label %tell
tell:
  %t = phi i64 [ 1, %entry ], [ %t1, %tell.body ]
  %tell.more = icmp slt i64 %t, %nt
  br i1 %tell.more, label %tell.body, label %own
tell.body:
  %o = mul i64 %t, {worker_size}
  %f = getelementptr i8, ptr %worker, i64 %o
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
  %mine = call i32 @call_segment(ptr %worker)
  br label %wait
wait:
  %w = phi i64 [ 1, %own ], [ %w1, %wait.body ]
  %status = phi i32 [ %mine, %own ], [ %status1, %wait.body ]
  %wait.more = icmp slt i64 %w, %nt
  br i1 %wait.more, label %wait.body, label %out
wait.body:
  %wo = mul i64 %w, {worker_size}
  %g = getelementptr i8, ptr %worker, i64 %wo
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

; A leader with a delay sleeps until so long after its queue began, in slices: it gets up once nothing is left to do, or
; it shall leave.
define void @parax_start_late(ptr %worker, ptr %queue) noinline {{
entry:
  %time = alloca {{ i64, i64 }}, align 8
  %part.p = getelementptr i8, ptr %time, i64 8
  %delay.p = getelementptr i8, ptr %worker, i64 {delay}
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
  %leave.p = getelementptr i8, ptr %worker, i64 {leave}
  br label %look
look:
  %taken = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %taken, %count
  %failure = load atomic i32, ptr %status.p monotonic, align 4
  %sound = icmp eq i32 %failure, 0
  %asked = load atomic i32, ptr %leave.p monotonic, align 4
  %stays = icmp ne i32 %asked, {LEAVE}
  %wanted = and i1 %stays, %sound
  %of_use = and i1 %some, %wanted
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

; A leader takes pieces off its queue until none is left or any has failed, or it is told to leave. The answer is
; whether a time has passed from which on somebody wants to look, pieces being left.
define internal i1 @work(ptr %worker, i64 %look_at) noinline {{
entry:
  %queue.p = getelementptr i8, ptr %worker, i64 {queue}
  %queue = load ptr, ptr %queue.p
  call void @parax_start_late(ptr %worker, ptr %queue)
  %next = getelementptr i8, ptr %queue, i64 {q_next}
  %count.p = getelementptr i8, ptr %queue, i64 {q_count}
  %count = load i64, ptr %count.p
  %pieces.p = getelementptr i8, ptr %queue, i64 {q_pieces}
  %pieces = load ptr, ptr %pieces.p
  %run.p = getelementptr i8, ptr %queue, i64 {q_run}
  %run = load ptr, ptr %run.p
  %status.p = getelementptr i8, ptr %queue, i64 {q_status}
  %leave.p = getelementptr i8, ptr %worker, i64 {leave}
  %other.p = getelementptr i8, ptr %worker, i64 {lead}
  %other = load ptr, ptr %other.p
  %own = icmp eq ptr %other, null
  %lead = select i1 %own, ptr %worker, ptr %other
  %lead.run = getelementptr i8, ptr %lead, i64 {run}
  store ptr %run, ptr %lead.run
  br label %again
again:
  %asked = load atomic i32, ptr %leave.p monotonic, align 4
  %leaves = icmp eq i32 %asked, {LEAVE}
  br i1 %leaves, label %out, label %more
more:
  %taken = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %taken, %count
  %failed = load atomic i32, ptr %status.p monotonic, align 4
  %fine.yet = icmp eq i32 %failed, 0
  %of_use = and i1 %some, %fine.yet
  br i1 %of_use, label %timed, label %out
timed:
  %limited = icmp ne i64 %look_at, 0
  br i1 %limited, label %clock, label %next_piece
clock:
  %now = call i64 @nanoseconds()
  %due = icmp sge i64 %now, %look_at
  br i1 %due, label %out.again, label %next_piece
next_piece:
  %i = atomicrmw add ptr %next, i64 1 seq_cst
  %left = icmp slt i64 %i, %count
  br i1 %left, label %piece, label %out
piece:
  %offset = mul i64 %i, {piece_size}
  %piece.p = getelementptr i8, ptr %pieces, i64 %offset
  %io.p = getelementptr i8, ptr %piece.p, i64 {p_io}
  %io = load ptr, ptr %io.p
  %dims.p = getelementptr i8, ptr %piece.p, i64 {p_dims}
  %dims = load ptr, ptr %dims.p
  %lead.io = getelementptr i8, ptr %lead, i64 {io}
  store ptr %io, ptr %lead.io
  %lead.dims = getelementptr i8, ptr %lead, i64 {dims}
  store ptr %dims, ptr %lead.dims
  %status = call i32 @team(ptr %lead)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %again, label %fail
fail:
  store atomic i32 %status, ptr %status.p monotonic, align 4
  br label %out
out.again:
  ret i1 1
out:
  %ended = call i64 @nanoseconds()
  %ended.p = getelementptr i8, ptr %worker, i64 {ended}
  store i64 %ended, ptr %ended.p
  ret i1 0
}}

; n leaders of other instances join a queue, as long as pieces are left and it is not closed; answers how many did.
define i64 @parax_join(ptr %workers, i64 %n, ptr %queue) {{
entry:
  %next = getelementptr i8, ptr %queue, i64 {q_next}
  %count.p = getelementptr i8, ptr %queue, i64 {q_count}
  %count = load i64, ptr %count.p
  %joined = getelementptr i8, ptr %queue, i64 {q_joined}
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %i1, %tell ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %out
look:
  %taken = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %taken, %count
  br i1 %some, label %ask, label %out
ask:
  %was = load atomic i64, ptr %joined monotonic, align 8
  br label %try
try:
  %known = phi i64 [ %was, %ask ], [ %seen, %open ]
  %closed = icmp sge i64 %known, {closed}
  br i1 %closed, label %out, label %open
open:
  %one_more = add i64 %known, 1
  %pair = cmpxchg ptr %joined, i64 %known, i64 %one_more seq_cst seq_cst
  %seen = extractvalue {{ i64, i1 }} %pair, 0
  %did = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %did, label %tell, label %try
tell:
  %worker.p = getelementptr ptr, ptr %workers, i64 %i
  %worker = load ptr, ptr %worker.p
  %worker.queue = getelementptr i8, ptr %worker, i64 {queue}
  store ptr %queue, ptr %worker.queue
  %worker.command = getelementptr i8, ptr %worker, i64 {command}
  store i32 {WORK}, ptr %worker.command
  %worker.leave = getelementptr i8, ptr %worker, i64 {leave}
  store atomic i32 {STAY}, ptr %worker.leave monotonic, align 4
  %worker.busy = getelementptr i8, ptr %worker, i64 {busy}
  store atomic i32 1, ptr %worker.busy seq_cst, align 4
  %worker.wake = getelementptr i8, ptr %worker, i64 {wake}
  call i32 @sem_post(ptr %worker.wake)
  %i1 = add i64 %i, 1
  br label %again
out:
  ret i64 %i
}}

; From now on nobody joins a queue; the answer is how many joined and have not been waited for.
define internal i64 @close_queue(ptr %queue) {{
entry:
  %joined = getelementptr i8, ptr %queue, i64 {q_joined}
  %members = atomicrmw or ptr %joined, i64 {closed} seq_cst
  %most = sub i64 {closed}, 1
  %n = and i64 %members, %most
  ret i64 %n
}}

; The calling thread leads its instance through a queue that others may join. The answer is 0 or a failed piece's
; status; or AGAIN; or UNFINISHED where it has nothing to do any more and others do: parax_crew_wait must follow.
define i32 @parax_crew(ptr %worker, ptr %queue) {{
entry:
  %worker.queue = getelementptr i8, ptr %worker, i64 {queue}
  store ptr %queue, ptr %worker.queue
  %worker.leave = getelementptr i8, ptr %worker, i64 {leave}
  store atomic i32 {STAY}, ptr %worker.leave monotonic, align 4
  %n_spins.p = getelementptr i8, ptr %worker, i64 {n_spins}
  %n_spins = load i64, ptr %n_spins.p
  %joined = getelementptr i8, ptr %queue, i64 {q_joined}
  %done = getelementptr i8, ptr %queue, i64 {q_done}
  %look.p = getelementptr i8, ptr %queue, i64 {q_look}
  %look_at = load i64, ptr %look.p
  call void @settle(ptr %worker)
  %early = call i1 @work(ptr %worker, i64 %look_at)
  br i1 %early, label %look, label %close
look:
  ret i32 {AGAIN}
close:
  %n = call i64 @close_queue(ptr %queue)
  br label %wait
wait:
  %w = phi i64 [ %n, %close ], [ %w1, %came ]
  %some = icmp sgt i64 %w, 0
  br i1 %some, label %spin, label %out
spin:
  %has = call i1 @spin(ptr %done, i64 %n_spins)
  br i1 %has, label %came, label %unfinished
came:
  %w1 = sub i64 %w, 1
  %known = or i64 %w1, {closed}
  store i64 %known, ptr %joined
  br label %wait
unfinished:
  ret i32 {UNFINISHED}
out:
  %status.p = getelementptr i8, ptr %queue, i64 {q_status}
  %status = load i32, ptr %status.p
  ret i32 %status
}}

; Wait for those that joined a queue, of which the caller works off no more; the answer is 0 or a failed piece's status.
define i32 @parax_crew_wait(ptr %queue) {{
entry:
  %joined = getelementptr i8, ptr %queue, i64 {q_joined}
  %done = getelementptr i8, ptr %queue, i64 {q_done}
  %n = call i64 @close_queue(ptr %queue)
  br label %wait
wait:
  %w = phi i64 [ %n, %entry ], [ %w1, %sleep ]
  %some = icmp sgt i64 %w, 0
  br i1 %some, label %sleep, label %out
sleep:
  call void @take(ptr %done, i64 0)
  %w1 = sub i64 %w, 1
  %known = or i64 %w1, {closed}
  store i64 %known, ptr %joined
  br label %wait
out:
  %status.p = getelementptr i8, ptr %queue, i64 {q_status}
  %status = load i32, ptr %status.p
  ret i32 %status
}}

; Work a queue off to its end, then lead another instance into one segment, if all pieces went well and n numbers that
; they left, f32 one behind the other, are finite. The answer is 0 or a failed piece's status; or HELD, as a number was
; not. The segment's status is in its worker.
define i32 @parax_crew_then(ptr %worker, ptr %queue, ptr %then, ptr %numbers, i64 %n) {{
entry:
  %come = call i32 @parax_crew(ptr %worker, ptr %queue)
  %unfinished = icmp eq i32 %come, {UNFINISHED}
  br i1 %unfinished, label %wait, label %done
wait:
  %late = call i32 @parax_crew_wait(ptr %queue)
  br label %done
done:
  %status = phi i32 [ %come, %entry ], [ %late, %wait ]
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %look, label %out
look:
  %i = phi i64 [ 0, %done ], [ %i1, %number ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %number, label %then_run
number:
  %number.p = getelementptr float, ptr %numbers, i64 %i
  %value = load float, ptr %number.p
  %zero = fsub float %value, %value
  %finite = fcmp oeq float %zero, 0.0
  %i1 = add i64 %i, 1
  br i1 %finite, label %look, label %held
then_run:
  %last = call i32 @team(ptr %then)
  %then.status = getelementptr i8, ptr %then, i64 {status}
  store i32 %last, ptr %then.status
  ret i32 0
held:
  ret i32 {HELD}
out:
  ret i32 %status
}}

; The life of every thread but the caller's: wait, obey, answer; returns 0 once told to stop, and 1 to say that it is
; done with a queue, where it was told to.
define i32 @parax_worker(ptr %worker) {{
entry:
  %wake = getelementptr i8, ptr %worker, i64 {wake}
  %done = getelementptr i8, ptr %worker, i64 {done}
  %command.p = getelementptr i8, ptr %worker, i64 {command}
  %status.p = getelementptr i8, ptr %worker, i64 {status}
  %n_spins.p = getelementptr i8, ptr %worker, i64 {n_spins}
  %n_spins = load i64, ptr %n_spins.p
  br label %listen
listen:
  call void @take(ptr %wake, i64 %n_spins)
  %command = load i32, ptr %command.p
  switch i32 %command, label %out [ i32 {RUN}, label %segment
                                    i32 {WORK}, label %pieces ]
segment:
  %status = call i32 @call_segment(ptr %worker)
  store i32 %status, ptr %status.p
  br label %answer
pieces:
  %queue.p = getelementptr i8, ptr %worker, i64 {queue}
  %queue = load ptr, ptr %queue.p
  %never = call i1 @work(ptr %worker, i64 0)
  store i32 {RUN}, ptr %command.p
  %leave.p = getelementptr i8, ptr %worker, i64 {leave}
  %leave = load atomic i32, ptr %leave.p monotonic, align 4
  %busy.p = getelementptr i8, ptr %worker, i64 {busy}
  store atomic i32 0, ptr %busy.p seq_cst, align 4
  %queue.done = getelementptr i8, ptr %queue, i64 {q_done}
  call i32 @sem_post(ptr %queue.done)
  %tells = icmp ne i32 %leave, {STAY}
  br i1 %tells, label %told, label %listen
told:
  ret i32 1
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


def handoff_text(arch: str) -> str:
    """The LLVM text of the functions that `native.LANE_FUNCTIONS` names, for a machine architecture.

    Args:
        arch: as LLVM spells it, one of `waiting.PAUSES`.
    """
    offsets: dict[str, object] = {name: getattr(Worker, name).offset for name, *_ in Worker._fields_}
    offsets |= {f"q_{name}": getattr(Queue, name).offset for name, *_ in Queue._fields_}
    offsets |= {f"p_{name}": getattr(Piece, name).offset for name, *_ in Piece._fields_}
    loads = "\n".join(
        f"  %{name}.p = getelementptr i8, ptr %worker, i64 {offsets[name]}\n  %{name} = load {kind}, ptr %{name}.p"
        for name, kind in _ARGUMENTS.items()
    )
    return _TEXT.format(
        **offsets,
        loads=loads,
        pause=PAUSES[arch].call(),
        pause_declaration=PAUSES[arch].declaration(),
        worker_size=ctypes.sizeof(Worker),
        piece_size=ctypes.sizeof(Piece),
        mask_size=_MASK_NBYTES,
        CLOCK=_CLOCK_MONOTONIC,
        spin=_SPIN_NANOSECONDS,
        tries=_SPIN_TRIES,
        slice=_SLICE_NANOSECONDS,
        RUN=RUN,
        WORK=WORK,
        AGAIN=AGAIN,
        UNFINISHED=UNFINISHED,
        HELD=HELD,
        STAY=STAY,
        LEAVE=LEAVE,
        closed=CLOSED,
    )
