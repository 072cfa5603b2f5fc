"""NonMaxSuppression: a kernel chooses among the boxes of every class, the host puts the chosen ones in a row.

How many there are only the data say, but not more than the boxes of a class, or than the model's limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import F32, F64, I32, I64, Dim, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .base import Attr, Composite, Float, Host, In, Index, InferContext, Int64, Operator, Opt, Out, TypeGroup, op
from .dropout import check_one_number

_LIMITS = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")


class BoxFloat(TypeGroup):
    """What corners and scores are computed with and compared in."""

    dtypes = frozenset({F32, F64})


@op(since=11)
class NonMaxSuppression(Composite, Host):
    """i64[n, 3]: (batch, class, box) of the boxes left after dropping those that overlap a better one too much.

    Greedy, best first within a class, of equal scores the lower index, NaN last. Scores up to the threshold are left
    out; without one none are. Boxes are compared as ONNX Runtime does: the quotient of the common area and the union,
    in the boxes' type, must be above `iou_threshold`.
    """

    boxes: In[Float]
    scores: In[Float]
    max_output_boxes_per_class: Opt[Int64]
    iou_threshold: Opt[Float]
    score_threshold: Opt[Float]
    center_point_box: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        boxes, scores = ctx.shape(0), ctx.shape(1)
        if len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4:
            expected, found = "[batch, boxes, 4] and [batch, classes, boxes]", f"{ctx.types[0]} and {ctx.types[1]}"
            ctx.fail("wrong shapes of boxes or scores", expected=expected, found=found)
        ctx.equal(boxes[0], scores[0], "boxes and scores of different batches")
        ctx.equal(boxes[1], scores[2], "boxes and scores of different numbers of boxes")
        if self.center_point_box not in (0, 1):
            ctx.fail("center_point_box must be 0 or 1", found=self.center_point_box)
        for i, name in enumerate(_LIMITS, 2):
            if ctx.has(i):
                check_one_number(ctx, i, name)
        return [TensorType(I64, (ctx.fresh("NonMaxSuppression"), 3))]

    def known(self, ctx: InferContext) -> None:
        """Nothing."""

    def expand(self, g: PyAny, *inputs: PyAny) -> PyAny:
        size = g.before.output.tensor.dims[0]  # of the node that is replaced, whose users know it
        boxes, scores, most, iou, least = [*inputs, None, None, None][:5]
        wide = F64 if F64 in (boxes.type.dtype, scores.type.dtype) else F32
        floats = [None if x is None else g.Cast(x, to=wide) for x in (boxes, scores, iou, least)]
        picks, counts = g.SuppressBoxes(*floats[:2], most, *floats[2:], center_point_box=self.center_point_box)
        return g.ChosenBoxes(picks, counts, size=str(size))


@op(domain="parax")
class SuppressBoxes(Operator):
    """The boxes that NonMaxSuppression keeps: i32[batch, classes, most], -1 behind them; how many, i64."""

    boxes: In[BoxFloat]
    scores: In[BoxFloat]
    most: Opt[Int64]
    iou: Opt[BoxFloat]
    least: Opt[BoxFloat]
    picks: Out
    counts: Out
    center_point_box: Attr[int] = 0
    row_axis = row_rules.unknown  # whoever puts the classes' boxes together joins the rows
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        batch, classes, length = ctx.shape(1)
        known = ctx.known(2) if ctx.has(2) else None
        number = None if known is None else known.ravel()[0]
        most: Dim = length
        if isinstance(number, int):
            limit = max(1, number)
            most = min(limit, length) if isinstance(length, int) else limit if limit < 1 << 16 else length
        return [TensorType(I32, (batch, classes, most)), TensorType(I64, (batch, classes))]


@op(domain="parax")
class ChosenBoxes(Host):
    """i64[n, 3]: (batch, class, box) of what SuppressBoxes has kept, one after the other. size: the symbol of n."""

    picks: In[Index]
    counts: In[Int64]
    size: Attr[str]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(I64, (ctx.fresh_as(self.size), 3))]
