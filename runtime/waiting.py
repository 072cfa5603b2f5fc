"""What a waiting thread executes between two looks at memory, by the architecture that code is made for.

Owns the LLVM text; who waits for what, how often it looks and when it yields the core, others know.
"""

from __future__ import annotations

from typing import NamedTuple


class Pause(NamedTuple):
    """A call of LLVM's that makes a spinning thread leave its core's units to others for a moment.

    Attributes:
        name: of the intrinsic. parameters: their types. arguments: with their types.
    """

    name: str
    parameters: str
    arguments: str

    def call(self) -> str:
        """The instruction."""
        return f"call void @{self.name}({self.arguments})"

    def declaration(self) -> str:
        """The line that a module needs for it."""
        return f"declare void @{self.name}({self.parameters})"


PAUSES = {
    "x86_64": Pause("llvm.x86.sse2.pause", "", ""),
    # isb, not yield: that is no operation on cores without simultaneous multithreading, and waiters would spin at full
    # speed on the line that they wait for
    "aarch64": Pause("llvm.aarch64.isb", "i32", "i32 15"),
}
"""By architecture, as LLVM spells it."""
