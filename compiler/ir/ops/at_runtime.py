"""Operators of which only the run knows the operands that decide the result's shape: the runtime executes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import I64, Dim, TensorType, Type, prod
from .base import Attr, Host, InferContext, Mixed, Variadic, VariadicOut, op
from .fourier import check_frames, check_samples


@op(domain="parax")
class AtRuntime(Host):
    """The ONNX operator `kind` on all its operands; `settings`: its attributes as a JSON object.

    Sizes that only the run knows become symbols; ranks must be known.
    """

    xs: Variadic[Mixed]
    ys: VariadicOut
    kind: Attr[str]
    settings: Attr[str] = "{}"

    def setting(self, name: str, default: PyAny) -> PyAny:
        """An attribute of the ONNX operator."""
        return json.loads(self.settings).get(name, default)

    def sliced_axis(self, ctx: InferContext) -> int | None:
        """The axis of a Slice that takes neighbours along one axis alone; None for whatever else."""
        if self.kind != "Slice" or (ctx.has(4) and not _are(ctx.known(4), 1)):
            return None
        axes = ctx.known(3) if ctx.has(3) else np.zeros(1, object)
        if axes is None or axes.size != 1 or prod(ctx.shape(1)) != 1:
            return None
        axis = axes.item()
        return ctx.axis(axis, ctx.rank(0)) if isinstance(axis, int) else None

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.kind == "Range":
            return [self._result(ctx, [None])]
        if self.kind == "Split":
            ctx.equal(ctx.n_outputs, prod(ctx.shape(1)), "Split needs a size for each output")
            axis = ctx.axis(self.setting("axis", 0), ctx.rank(0))
            return [self._result(ctx, _open(ctx, [axis]), i) for i in range(ctx.n_outputs)]
        if self.kind == "TopK":
            shape = _open(ctx, [ctx.axis(self.setting("axis", -1), ctx.rank(0))])
            values = self._result(ctx, shape)
            return [values, TensorType(I64, values.dims)]
        if self.kind == "OneHot":
            axis = ctx.axis(self.setting("axis", -1), ctx.rank(0) + 1)
            shape = [*ctx.shape(0)[:axis], None, *ctx.shape(0)[axis:]]
            return [TensorType(ctx.tensor(2).dtype, self._result(ctx, shape).dims)]
        return [self._result(ctx, self._one_shape(ctx))]

    def _one_shape(self, ctx: InferContext) -> list[Dim | None]:
        rank = ctx.rank(0)
        if self.kind == "MaxUnpool":
            ctx.equal(rank, prod(ctx.shape(2)), "output_shape must have the rank of x")
            return [None] * rank
        if self.kind == "DFT":
            return self._spectrum(ctx)
        if self.kind == "STFT":
            check_frames(ctx, self.setting("onesided", 1))
            return [ctx.shape(0)[0], None, None, 2]
        if self.kind == "Slice":
            for i in range(2, ctx.n_inputs):
                if ctx.has(i):
                    ctx.equal(prod(ctx.shape(1)), prod(ctx.shape(i)), "starts, ends, axes and steps must be as many")
        if self.kind in ("Slice", "Pad"):
            axes = ctx.known(3)
            known = axes is not None and all(isinstance(a, int) for a in axes.flat)
            return _open(ctx, ctx.axes(axes.ravel().tolist(), rank) if axes is not None and known else range(rank))
        if self.kind == "Resize":
            return _open(ctx, ctx.axes(self.setting("axes", None) or range(rank), rank))
        counts = {"Tile": rank, "Expand": max(rank, _length(ctx)), "Reshape": _length(ctx),
                  "Squeeze": rank - _length(ctx), "Unsqueeze": rank + _length(ctx),
                  "Col2Im": 2 + _length(ctx)}  # fmt: skip
        if self.kind not in counts:
            ctx.unsupported(f"{self.kind} with operands that only the run knows")
        if counts[self.kind] < 0:
            ctx.fail("more axes than the tensor has", found=ctx.types[0])
        return [None] * counts[self.kind]

    def _spectrum(self, ctx: InferContext) -> list[Dim | None]:
        """Of a DFT: the axis that is transformed keeps its length where nothing says another one."""
        inverse, onesided = self.setting("inverse", 0), self.setting("onesided", 0)
        check_samples(ctx, inverse, onesided)
        axis, rank = ctx.known(2), ctx.rank(0)
        axes: Sequence[int] = range(rank - 1) if onesided or ctx.has(1) else ()
        if axes and not ctx.has(2):
            axes = [rank - 2]
        elif axes and axis is not None and axis.size == 1 and isinstance(axis.reshape(-1)[0], int):
            axes = [ctx.axis(axis.reshape(-1)[0], rank)]
        return [*_open(ctx, axes)[:-1], 1 if inverse and onesided else 2]

    def _result(self, ctx: InferContext, shape: Sequence[Dim | None], output: int = 0) -> TensorType:
        """The type in which each None is a symbol of its own."""
        dims = tuple(ctx.fresh(f"{self.kind}_{output}_{i}") if d is None else d for i, d in enumerate(shape))
        return TensorType(ctx.tensor(0).dtype, dims)


def _open(ctx: InferContext, axes: Sequence[int]) -> list[Dim | None]:
    return [None if a in axes else d for a, d in enumerate(ctx.shape(0))]


def _are(content: np.ndarray | None, number: int) -> bool:
    return content is not None and all(isinstance(c, int) and c == number for c in content.flat)


def _length(ctx: InferContext) -> int:
    """How many numbers operand 1 holds."""
    if not ctx.has(1):
        return 0
    shape = ctx.shape(1)
    if not shape:
        return 1
    if not isinstance(shape[0], int):
        ctx.unsupported("the rank of the result must be known at compile time", ctx.types[1])
    return shape[0]
