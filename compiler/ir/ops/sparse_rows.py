"""Sums of rows that belong to rows of a table, kept without the table: the gradient of an embedding, and its reader.

    first, more = RowChains(indices)        which of the rows given belong together, in their order
    sums        = SumChains(rows, more)     added up where the first of them lies, behind a row of zeros
    table       = RowsAt(sums, first)       the sum of each row of the table; read by a kernel, never stored
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import F32, I32, DType, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .base import Attr, Effort, Elementwise, Float32, In, Index, InferContext, Int64, Operator, Out, op
from .gathering import check_indices


@op(domain="parax")
class RowChains(Operator):
    """Chains of the equal ones among `indices`, i64[N], into a table of `rows` rows; negative ones count from its end.

    first: i32[rows, 1], for each row of the table 1 + the number of the first index that names it, or 0. more: i32[N],
    for the first index of a chain 1 + the number of the next one, or 0 at the end; for any other index ~ of that.
    """

    indices: In[Int64]
    first: Out
    more: Out
    rows: Attr[int]
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.looks_up
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) != 1 or self.rows < 1:
            ctx.fail("a vector of indices and a table with rows are needed", found=f"{ctx.types[0]}, {self.rows} rows")
        check_indices(ctx, 0, self.rows)
        return [TensorType(I32, (self.rows, 1)), TensorType(I32, ctx.shape(0))]


@op(domain="parax")
class SumChains(Operator):
    """f32[N + 1, W]: at 1 + n the sum, in order, of the chain that begins with row n of f32[N, W]; else zeros."""

    rows: In[Float32]
    more: In[Index]
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    fusion_root = False

    def work(self, shapes: work_rules.Shapes) -> work_rules.Work:
        """Every row is added once."""
        return work_rules.Work("elementwise", shapes.x_elements)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) != 2 or ctx.rank(1) != 1 or ctx.tensor(1).dtype != I32:
            ctx.fail("rows and the chains of RowChains are needed", found=f"{ctx.types[0]}, {ctx.types[1]}")
        n = ctx.equal(ctx.shape(0)[0], ctx.shape(1)[0], "every row must be in a chain")
        return [TensorType(F32, (n + 1, ctx.shape(0)[1]))]


@op(domain="parax")
class RowsAt(Elementwise):
    """y[r, w] = sums[first[r, 0], w]: a look-up within an element-wise kernel, which reads only what it needs.

    `first` is in range, as RowChains makes it. The kernel itself looks the elements up (`lower_elementwise`).
    """

    sums: In[Float32]
    first: In[Index]
    effort = Effort.MOVE
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN

    def output_dtype(self, ctx: InferContext) -> DType:
        return F32

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) != 2 or ctx.rank(1) != 2 or ctx.shape(1)[1] != 1:
            ctx.fail("sums and the first rows of RowChains are needed", found=f"{ctx.types[0]}, {ctx.types[1]}")
        return [TensorType(F32, (ctx.shape(1)[0], ctx.shape(0)[1]))]

    def compute(self, e: PyAny, sums: PyAny, first: PyAny) -> PyAny:
        """As an element's value it is what was looked up."""
        return sums
