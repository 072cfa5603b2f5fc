"""A fence between LLVM instructions: lanes pass it, what LLVM folds wrongly does not. It is no instruction.

Owns how the fence is written; whoever needs one says which mistake of LLVM's it keeps away. tests/backend/
test_llvm_patterns.py tells whether an LLVM needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emit_llvm import FunctionEmitter


def fenced(e: FunctionEmitter, raw: str, t: str, nbytes: int) -> str:
    """`raw`, of LLVM's vector type `t` of so many bytes, behind an arithmetic fence; a fence takes floats alone."""
    words, rest = divmod(8 * nbytes, 32)
    carrier = "half" if rest else "float" if words == 1 else f"<{words} x float>"
    name = "llvm.arithmetic.fence." + ("f16" if rest else "f32" if words == 1 else f"v{words}f32")
    e.module.declare(name, carrier, carrier)
    bits = e.assign(f"bitcast {t} {raw} to {carrier}")
    return e.assign(f"bitcast {carrier} {e.assign(f'call {carrier} @{name}({carrier} {bits})')} to {t}")
