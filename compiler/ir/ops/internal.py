"""parax's own operators that exist for the backend's sake. ONNX has none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Type
from .base import Any, Attr, Elementwise, In, InferContext, Mixed, Operator, Variadic, VariadicOut, op


@op(domain="parax")
class Copy(Elementwise):
    """A copy in memory of its own: for graph outputs that would share bytes with an input, a constant or each other."""

    x: In[Any]

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

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.n_inputs != ctx.n_outputs:
            ctx.fail("as many outputs as inputs are needed", expected=ctx.n_inputs, found=ctx.n_outputs)
        return [t for t in ctx.types if t is not None]

    def known(self, ctx: InferContext) -> list[np.ndarray | None]:
        return [ctx.known(i) for i in range(ctx.n_inputs)]
