"""Dropout, and the random masks that it takes: they follow from a seed, a step and a place, and nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import BOOL, TensorType, Type, prod
from . import layout_policies, row_rules, work_rules
from .base import Any, Attr, Bool, Composite, Float, In, InferContext, Int64, Operator, Opt, OptOut, Out, Rows, op
from .casting import as_float, cast_to
from .filling import requested_shape

RATIO = 0.5  # ONNX's default
MASK_FLOPS = 3  # an element: a quarter of ten rounds, vectorised multiplications counted once


def check_one_number(ctx: InferContext, i: int, name: str) -> None:
    """Fails unless operand i has one element."""
    if prod(ctx.shape(i)) != 1:
        ctx.fail(f"{name} must be one number", found=ctx.types[i])


def check_position(ctx: InferContext, i: int) -> None:
    """Fails unless operand i, if given, says where a stream of random words goes on."""
    if ctx.has(i) and ctx.shape(i) != (2,):
        ctx.fail("position must be (step, first element)", found=ctx.types[i])


class RandomWords(Operator):
    """What is drawn from a counter-based generator, element by element of a tensor of a given shape."""

    row_axis = row_rules.unknown  # rows depend on their numbers
    shape_operand = 0
    layout_policy = layout_policies.PLAIN
    fusion_root = False
    deterministic = False

    def work(self, shapes: work_rules.Shapes) -> work_rules.Work:
        return work_rules.Work("elementwise", MASK_FLOPS * shapes.y_elements)


@op(domain="parax")
class RandomMask(RandomWords):
    """False with probability `ratio`, which is rounded down to a multiple of 2⁻³²; all False from 1 on.

    Element e of the whole tensor, in ONNX's order, is word e / 16 mod 4 of the block e / 64 · 16 + e mod 16 of
    Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011), whose key is `seed`
    and whose counter is (block, step). `position`: (step, e of the first element); (0, 0) if omitted.
    """

    shape: In[Int64]
    ratio: In[Float]
    seed: In[Int64]
    position: Opt[Int64]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        for i, name in ((1, "ratio"), (2, "seed")):
            check_one_number(ctx, i, name)
        check_position(ctx, 3)
        return [TensorType(BOOL, requested_shape(ctx, 0, "shape"))]


@op(since=13)
class Dropout(Composite):
    """In training mode data / (1 - ratio), or 0 with probability `ratio`, and the mask of what is kept; else the data.

    Every run draws the same mask, that of the seed or, without a seed, of the node's name: only training by steps has a
    counter (`compiler/training/modes.py`). A training_mode that only the run knows chooses between both.
    """

    data: In[Any]
    ratio: Opt[Float]
    training_mode: Opt[Bool]
    output: Out
    mask: OptOut
    seed: Attr[int | None] = None
    layout_policy = layout_policies.FollowFirst()
    deterministic = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.has(2):
            check_one_number(ctx, 2, "training_mode")
            if ctx.data(2) is None or np.any(ctx.data(2)):
                self._check(ctx)
        return super().infer(ctx)

    def _check(self, ctx: InferContext) -> None:
        if not ctx.tensor(0).dtype.is_float:
            ctx.fail("only floats are dropped", found=ctx.tensor(0))
        if ctx.has(1) and prod(ctx.shape(1)) != 1:
            ctx.fail("ratio must be one number", found=ctx.types[1])
        ratio = ctx.data(1) if ctx.has(1) else None
        if ratio is not None and not 0 <= float(ratio.reshape(-1)[0]) <= 1:
            ctx.fail("ratio must be a probability", expected="0 to 1", found=float(ratio.reshape(-1)[0]))

    def expand(self, g: PyAny, data: PyAny, ratio: PyAny = None, training_mode: PyAny = None) -> list[PyAny]:
        seed = zlib.crc32(g.name.encode()) if self.seed is None else self.seed
        if not may_train(training_mode):
            kept = g.Identity(data)
            return [kept] if data.tensor.shape is None else [kept, g.Expand(g.const(True, BOOL), g.Shape(data))]
        some, mask = dropped(g, data, ratio, seed)
        if training_mode.data is not None:
            return [some, mask]
        mode = g.Reshape(training_mode, np.zeros(0, np.int64))
        return [g.Where(mode, some, data), g.Or(mask, g.Not(mode))]

    def row_axis(self, rows: Rows) -> int:
        """Only while nothing is dropped: masks depend on the rows' numbers."""
        if rows.ctx.has(2) and (rows.ctx.data(2) is None or np.any(rows.ctx.data(2))):
            raise rows.interact("what is dropped depends on the row's number")
        return rows.first("rows lie elsewhere than in the data")


def may_train(training_mode: PyAny) -> bool:
    """Whether elements may be dropped: that operand is a constant that says so, or only the run knows it."""
    return training_mode is not None and (training_mode.data is None or bool(np.any(training_mode.data)))


def dropped(g: PyAny, x: PyAny, ratio: PyAny, seed: int, position: PyAny = None) -> list[PyAny]:
    """x with elements dropped, the others divided by 1 - ratio; and the mask of those. `ratio`: None: ONNX's default.

    What is dropped is 0 even of a NaN; its gradient is 0.
    """
    wide = as_float(g, x)
    dtype = wide.type.dtype
    ratio = g.const(RATIO, dtype) if ratio is None else cast_to(g, g.Reshape(ratio, np.zeros(0, np.int64)), dtype)
    key = g.const(np.asarray(seed % 2**64, np.uint64).astype(np.int64))
    mask = g.RandomMask(g.Shape(x), ratio, key, position)
    one, zero = g.const(1.0, dtype), g.const(0.0, dtype)
    scaled = g.Mul(wide, g.Reciprocal(g.Sub(one, ratio)))
    return [cast_to(g, g.Where(mask, scaled, zero), x.type.dtype), mask]
