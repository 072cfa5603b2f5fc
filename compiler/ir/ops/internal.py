"""parax's own operators that exist for the backend's sake. ONNX has none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Dim, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .base import (
    Any,
    Attr,
    Composite,
    Effort,
    Elementwise,
    In,
    InferContext,
    Ints,
    Mixed,
    Operator,
    Variadic,
    VariadicOut,
    op,
)


@op(domain="parax")
class Copy(Elementwise):
    """A copy in memory of its own: for graph outputs that would share bytes with an input, a constant or each other."""

    x: In[Any]
    effort = Effort.MOVE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return x


@op(domain="parax")
class Result(Operator):
    """The end of a layer: output i is input i, and no node of a later layer starts before all inputs are there.

    The outputs are views (see `ir/views.py`). `layer` is the number of the layer that ends here, `stage` that of the
    pipeline stage that ends here with it, -1 if none does. Mofang, "result nodes".
    """

    xs: Variadic[Mixed]
    ys: VariadicOut
    layer: Attr[int]
    stage: Attr[int] = -1
    row_axis = row_rules.unknown  # whoever follows rows passes by the ends of layers
    layout_policy = layout_policies.PLAIN
    work = work_rules.none
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.n_inputs != ctx.n_outputs:
            ctx.fail("as many outputs as inputs are needed", expected=ctx.n_inputs, found=ctx.n_outputs)
        return [t for t in ctx.types if t is not None]

    def known(self, ctx: InferContext) -> list[np.ndarray | None]:
        return [ctx.known(i) for i in range(ctx.n_inputs)]


@op(domain="parax")
class Part(Composite):
    """x[starts:ends] on some axes where it lies: a view, whose type is a window of x (see `ir/views.py`)."""

    x: In[Any]
    axes: Attr[Ints]
    starts: Attr[Ints]
    ends: Attr[Ints]
    row_axis = row_rules.same_extent
    work = work_rules.none

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        return g.Slice(x, *(np.array(numbers, np.int64) for numbers in (self.starts, self.ends, self.axes)))

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        t, dims = ctx.tensor(0), list(ctx.shape(0))
        for axis, start, end in zip(self.axes, self.starts, self.ends, strict=True):
            size = dims[axis]
            if not isinstance(size, int) or not 0 <= start <= end <= size:
                ctx.fail("no part of that axis", expected=f"0 <= start <= end <= {size}", found=(start, end))
            dims[axis] = end - start
        return [TensorType(t.dtype, tuple(dims), t.layout, t.dims if t.within is None else t.within)]

    def offset(self, x: TensorType) -> Dim:
        """Elements from the first of x to the first of the part."""
        total: Dim = 0
        for axis, start in zip(self.axes, self.starts, strict=True):
            total = total + x.strides[axis] * start
        return total
