"""The test of a node, of one row or of a vector of rows."""

from __future__ import annotations

from ....ir.ops.tree_nodes import EQUAL, LESS, MISSING
from ....ir.ops.tree_walk import WalkTrees
from ....ir.types import BOOL
from ....kernel_ir.builder import Builder, KValue


def has_own_bits(op: WalkTrees) -> bool:
    """Whether nodes need bits of their own, as their tests differ or missing values matter."""
    return not op.test or bool(op.missing)


def passes(k: Builder, op: WalkTrees, x: KValue, threshold: KValue, bits: KValue) -> KValue:
    """Whether features pass; `bits`, of the node, are read where `has_own_bits`."""
    known = {LESS: "lt", EQUAL: "eq", LESS | EQUAL: "le"}.get(op.test)
    if known:
        passed = k.compare(known, x, threshold)
    else:
        passed = (x < threshold) & _bit(k, bits, LESS) | k.compare("eq", x, threshold) & _bit(k, bits, EQUAL)
    return passed | (k.is_nan(x) & _bit(k, bits, MISSING)) if op.missing else passed


def _bit(k: Builder, word: KValue, bit: int) -> KValue:
    return k.cast(word & bit, BOOL)
