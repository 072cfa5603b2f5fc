"""BitCast: the same bytes under another element type."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import BOOL, STR, DType, Type
from . import layout_policies, row_rules, work_rules
from .backward import Backward
from .base import Any, Attr, In, InferContext, Operator, op


@op(since=26)
class BitCast(Operator):
    """The bits of every element as a number of the element type `to`, of as many bits. Has no gradient.

    Bytes other than 0 and 1 are no bool; to bool only bool itself is cast.
    """

    input: In[Any]
    to: Attr[DType]
    row_axis = row_rules.same_extent
    layout_policy = layout_policies.AnyOrder()
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        given = ctx.tensor(0)
        ctx.shape(0)
        if STR in (given.dtype, self.to):
            ctx.fail("strings have no bits to cast", found=f"{given.dtype} to {self.to}")
        if given.dtype.bits != self.to.bits:
            ctx.fail("element types of different widths", expected=f"{given.dtype.bits} bits", found=self.to)
        if self.to == BOOL and given.dtype != BOOL:
            ctx.unsupported("bits of another type as bool", found=given, hint="cast, or compare with 0")
        return [given.with_dtype(self.to)]

    def gradient(self, back: Backward) -> Sequence[None]:
        """A jump at every number: none."""
        return [None]
