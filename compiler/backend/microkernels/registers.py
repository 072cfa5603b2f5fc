"""How many sums a target's vector registers hold beside the operands of a multiply-add.

Owns the count for tiles that are made to measure, where no row of the table has their shape: the small products of
recurrent operators, and convolutions with pixels along the registers.
"""

from __future__ import annotations

from ...targets.target import Target


def passing(target: Target) -> int:
    """Registers that an operand takes which is used once, and its product where that is not added at once."""
    return 1 if target.has_fma else 2


def tallest_fit(target: Target, vectors: int) -> int:
    """Rows of the tallest tile whose sums leave registers for its `vectors` of B and what passes; at least 1."""
    return max(1, (target.n_registers - passing(target) - vectors) // vectors)


def most_outer(target: Target, vectors: int) -> int:
    """The most rows of sums of an outer product of so many vectors, of whose operands the fewer stay in registers.

    What passes is one register with or without multiply-adds in one instruction: the product takes the operand's.
    """
    sizes = range(1, target.n_registers)
    return max((n for n in sizes if n * vectors + min(n, vectors) + 1 <= target.n_registers), default=0)


def left_beside(target: Target, held: int) -> int:
    """Registers for sums where so many hold operands."""
    return target.n_registers - held - passing(target)
