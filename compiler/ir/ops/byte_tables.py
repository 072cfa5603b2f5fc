"""Functions of a byte, by a table of all that it can be: what quantised activations are computed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import I8, U8
from . import layout_policies, row_rules, work_rules
from .base import In, InferContext, Operator, TypeGroup, op

ENTRIES = 256


class TableByte(TypeGroup):
    """8-bit integers."""

    dtypes = frozenset({U8, I8})


class TableResult(TypeGroup):
    """What the table holds."""

    dtypes = frozenset({U8, I8})


@op(domain="parax")
class ByteTable(Operator):
    """table[x], the bits of x taken for a number from 0 to 255; `table` has 256 elements."""

    x: In[TableByte]
    table: In[TableResult]
    row_axis = row_rules.same_extent
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        if ctx.shape(1) != (ENTRIES,):
            ctx.fail("a table must have an element for each byte", expected=(ENTRIES,), found=ctx.types[1])
        return [ctx.tensor(0).with_dtype(ctx.tensor(1).dtype)]
