"""Operators of ai.onnx.preview.training: gradients, and optimisers that update one tensor after the other."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Type
from . import layout_policies, row_rules, work_rules
from .base import Attr, InferContext, Mixed, Operator, Strs, Variadic, VariadicOut, op

DOMAIN = "ai.onnx.preview.training"


@op(since=1, domain=DOMAIN)
class Gradient(Operator):
    """Partial derivatives of the sum of `y` with respect to `xs`, where `zs` are held fixed.

    `xs`, `zs` and `y` are names of tensors of the graph; the inputs, xs first, are what these tensors are taken to be.
    Written out as operators by `passes/dataflow/autodiff.py`.
    """

    inputs: Variadic[Mixed]
    outputs: VariadicOut
    xs: Attr[Strs]
    y: Attr[str]
    zs: Attr[Strs] = ()
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.undecided
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.n_inputs != len(self.xs) + len(self.zs):
            ctx.fail("an input is needed for every name", expected=[*self.xs, *self.zs], found=ctx.n_inputs)
        if not self.xs or ctx.n_outputs != len(self.xs):
            ctx.fail("an output is needed for every variable", expected=list(self.xs), found=ctx.n_outputs)
        for i, name in enumerate(self.xs):
            if not ctx.tensor(i).dtype.is_float:
                ctx.fail(f"only floats have gradients, and {name} is none", found=ctx.types[i])
        return [ctx.tensor(i) for i in range(len(self.xs))]
