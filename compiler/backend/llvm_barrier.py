"""The meeting inside a kernel: the LLVM text that lets the cores of one call wait for each other.

Owns the meeting word and how a core waits. A core arrives with the number of its work items; the one that completes
all items of the call opens the next round. So nobody need know how many cores take part, and a core that has all items
does not even touch the word. The word counts items in its lower half and rounds in its upper half: arrivals and waiters
share one cache line that moves between cores twice a meeting, and the word is ready for another call after any meeting.

It must not know which kernels meet. The barrier between kernels is `link`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.waiting import PAUSES

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter, ModuleEmitter

SPINS = 4000  # pauses, some 50 µs, before a waiting core yields


def waiting_text(before: str, look: str, n_spins: int, arch: str) -> str:
    """Blocks from `wait`, entered from block `before`, to the return: spin, then yield, while a condition holds.

    Args:
        arch: whose pause to take. look: instructions that leave in `%closed` whether to wait on.
    """
    return f"""wait:
  %spins = phi i32 [ 0, %{before} ], [ %more, %pause ], [ 0, %yield ]
{look}
  br i1 %closed, label %again, label %done
again:
  %more = add i32 %spins, 1
  %tired = icmp ugt i32 %more, {n_spins}
  br i1 %tired, label %yield, label %pause
pause:
  {PAUSES[arch].call()}
  br label %wait
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
done:
  ret void
}}"""


def _meet_text(arch: str) -> str:
    look = """  %seen = load atomic i64, ptr %word acquire, align 8
  %now = lshr i64 %seen, 32
  %closed = icmp eq i64 %now, %round"""
    return _ARRIVE + waiting_text("arrive", look, SPINS, arch)


_ARRIVE = """define internal void @parax_meet(ptr %word, i64 %items, i64 %all) noinline nounwind {
entry:
  %alone = icmp uge i64 %items, %all
  br i1 %alone, label %done, label %arrive
arrive:
  %before = atomicrmw add ptr %word, i64 %items acq_rel
  %waiting = and i64 %before, 4294967295
  %arrived = add i64 %waiting, %items
  %round = lshr i64 %before, 32
  %last = icmp uge i64 %arrived, %all
  br i1 %last, label %open, label %wait
open:
  %next = add i64 %round, 1
  %empty = shl i64 %next, 32
  store atomic i64 %empty, ptr %word release, align 8
  ret void
"""


def declare_waiting(module: ModuleEmitter) -> None:
    """What a waiting core calls."""
    pause = PAUSES[module.target.arch]
    module.declare(pause.name, "void", pause.parameters)
    module.declare("sched_yield", "i32", "")


def meet(e: FunctionEmitter, word: str, items: str, everything: str) -> None:
    """A call of the meeting; its function comes into the module with the first one."""
    declare_waiting(e.module)
    e.module.functions.setdefault("parax_meet", _meet_text(e.module.target.arch))
    e.out(f"call void @parax_meet({word}, {items}, {everything})")
