"""Taking one of several things that cores may take: the LLVM text of a count that forgets itself.

Owns the count. Everyone who takes goes on until it is refused once; whoever is refused last knows that nobody will ask
again, and sets the count back. It must not know what is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter

_CLAIM = """define internal i64 @parax_claim(ptr %count, i64 %last) noinline nounwind {
entry:
  %before = atomicrmw add ptr %count, i32 1 acq_rel
  %number = zext i32 %before to i64
  %over = icmp eq i64 %number, %last
  br i1 %over, label %forget, label %done
forget:
  store atomic i32 0, ptr %count release, align 4
  br label %done
done:
  ret i64 %number
}"""


def claim(e: FunctionEmitter, count: str, last: str) -> str:
    """A call that counts one more and returns how many there were before; its function comes with the first one."""
    e.module.functions.setdefault("parax_claim", _CLAIM)
    return e.assign(f"call i64 @parax_claim({count}, {last})")
