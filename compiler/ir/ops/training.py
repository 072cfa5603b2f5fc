"""Operators of ai.onnx.preview.training: gradients, and optimisers that update one tensor after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any as PyAny
from typing import ClassVar

import numpy as np

from ..types import F64, Type
from . import layout_policies, row_rules, work_rules
from .base import Attr, Composite, Float, In, InferContext, Int64, Mixed, Operator, Strs, Variadic, VariadicOut, op
from .casting import cast_to

DOMAIN = "ai.onnx.preview.training"
MODES = ("standard", "nesterov")
SINGLE = np.array([], np.int64)  # the shape of a single number, which ONNX also lets be [1]


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


class Optimizer(Composite):
    """What the optimisers share: R, a rate; T, the steps before this one; then tensors, as many of each kind.

    The inputs are all weights, then all gradients, then every kind of state; results are weights and states. A step's
    numbers, such as its rate, are worked out in f64, as digits cancel in `1 - beta ** T`; tensors in their own type.

    Attributes:
        STATES: how many tensors an optimiser keeps for a weight.
    """

    STATES: ClassVar[int]
    r: In[Float]
    t: In[Int64]
    inputs: Variadic[Mixed]
    outputs: VariadicOut
    norm_coefficient: Attr[float] = 0.0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        for i, name in enumerate(("R", "T")):
            if any(d != 1 for d in ctx.shape(i)):
                ctx.fail(f"{name} must be a single number", found=ctx.types[i])
        given, kinds = ctx.n_inputs - 2, 2 + self.STATES
        if given < kinds or given % kinds:
            ctx.fail(f"for every weight {kinds} tensors are needed", found=given)
        n = given // kinds
        if ctx.n_outputs > n * (1 + self.STATES):
            ctx.fail("more results than weights and states", expected=n * (1 + self.STATES), found=ctx.n_outputs)
        for i in range(2, ctx.n_inputs):
            weight = 2 + (i - 2) % n
            of, own = ctx.tensor(weight), ctx.tensor(i)
            if not own.dtype.is_float or own.dtype != of.dtype or len(ctx.shape(i)) != len(ctx.shape(weight)):
                ctx.fail("a weight, its gradient and its states must be floats of one type and shape",
                         expected=of, found=own)  # fmt: skip
            for a, b in zip(ctx.shape(weight), ctx.shape(i)):
                ctx.equal(a, b, "a weight, its gradient and its states must be of one shape")
        return super().infer(ctx)

    def expand(self, g: PyAny, r: PyAny, t: PyAny, *inputs: PyAny) -> PyAny:
        r, t = (g.Reshape(cast_to(g, value, F64), SINGLE) for value in (r, t))
        n = len(inputs) // (2 + self.STATES)
        numbers = self.numbers(g, r, t)
        updated = []
        for i in range(n):
            x, gradient, *states = inputs[i::n]
            if self.norm_coefficient:
                gradient = g.Add(g.Mul(x, _like(g, x, self.norm_coefficient)), gradient)
            updated.append(self.update(g, [cast_to(g, v, x.tensor.dtype) for v in numbers], x, gradient, *states))
        return [results[kind] for kind in range(1 + self.STATES) for results in updated]

    @abstractmethod
    def numbers(self, g: PyAny, r: PyAny, t: PyAny) -> list[PyAny]:
        """The step's numbers, in f64, from its rate and the count of steps before it."""

    @abstractmethod
    def update(self, g: PyAny, numbers: list[PyAny], x: PyAny, gradient: PyAny, *states: PyAny) -> list[PyAny]:
        """The weight and its states after the step; the gradient has the norm's part."""


@op(since=1, domain=DOMAIN)
class Adagrad(Optimizer):
    """x − R / (1 + T · decay_factor) · g / (√h' + epsilon), h' = h + g²; g has norm_coefficient · x added."""

    STATES = 1
    decay_factor: Attr[float] = 0.0
    epsilon: Attr[float] = 1e-6

    def numbers(self, g: PyAny, r: PyAny, t: PyAny) -> list[PyAny]:
        return [g.Div(r, g.Add(g.Mul(t, _like(g, t, self.decay_factor)), _like(g, t, 1.0)))]

    def update(self, g: PyAny, numbers: list[PyAny], x: PyAny, gradient: PyAny, *states: PyAny) -> list[PyAny]:
        (h,) = states
        h = g.Add(h, g.Mul(gradient, gradient))
        root = g.Add(g.Sqrt(h), _like(g, x, self.epsilon))
        return [g.Sub(x, g.Div(g.Mul(numbers[0], gradient), root)), h]


@op(since=1, domain=DOMAIN)
class Adam(Optimizer):
    """(1 − norm_coefficient_post) · (x − R' · v' / (√h' + epsilon)), v' and h' means of g and g².

    R' = R · √(1 − betaᵀ) / (1 − alphaᵀ), and R where T is 0; v' = alpha · v + (1 − alpha) · g,
    h' = beta · h + (1 − beta) · g²; g has norm_coefficient · x added.
    """

    STATES = 2
    alpha: Attr[float] = 0.9
    beta: Attr[float] = 0.999
    epsilon: Attr[float] = 1e-6
    norm_coefficient_post: Attr[float] = 0.0

    def numbers(self, g: PyAny, r: PyAny, t: PyAny) -> list[PyAny]:
        one = _like(g, t, 1.0)
        steps = g.Max(t, one)  # where T is 0 nothing is divided by 0: the gradient of R would be 0 · NaN
        of_g, of_squares = (g.Sub(one, g.Pow(_like(g, t, decay), steps)) for decay in (self.alpha, self.beta))
        corrected = g.Div(g.Mul(r, g.Sqrt(of_squares)), of_g)
        return [g.Where(g.Greater(t, _like(g, t, 0.0)), corrected, r)]

    def update(self, g: PyAny, numbers: list[PyAny], x: PyAny, gradient: PyAny, *states: PyAny) -> list[PyAny]:
        v = _mean(g, states[0], gradient, self.alpha)
        h = _mean(g, states[1], g.Mul(gradient, gradient), self.beta)
        root = g.Add(g.Sqrt(h), _like(g, x, self.epsilon))
        x = g.Sub(x, g.Mul(numbers[0], g.Div(v, root)))
        if self.norm_coefficient_post:
            x = g.Mul(x, _like(g, x, 1.0 - self.norm_coefficient_post))
        return [x, v, h]


@op(since=1, domain=DOMAIN)
class Momentum(Optimizer):
    """x − R · v', or by Nesterov x − R · (g + alpha · v'); v' = alpha · v + beta · g, where beta is 1 if T is 0.

    g has norm_coefficient · x added.
    """

    STATES = 1
    alpha: Attr[float]
    beta: Attr[float]
    mode: Attr[str]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.mode not in MODES:
            ctx.fail("unknown mode", expected=", ".join(MODES), found=self.mode[:60])
        return super().infer(ctx)

    def numbers(self, g: PyAny, r: PyAny, t: PyAny) -> list[PyAny]:
        return [r, g.Where(g.Greater(t, _like(g, t, 0.0)), _like(g, t, self.beta), _like(g, t, 1.0))]

    def update(self, g: PyAny, numbers: list[PyAny], x: PyAny, gradient: PyAny, *states: PyAny) -> list[PyAny]:
        rate, beta = numbers
        alpha = _like(g, x, self.alpha)
        v = g.Add(g.Mul(states[0], alpha), g.Mul(beta, gradient))
        step = v if self.mode == "standard" else g.Add(gradient, g.Mul(alpha, v))
        return [g.Sub(x, g.Mul(rate, step)), v]


def _mean(g: PyAny, old: PyAny, new: PyAny, decay: float) -> PyAny:
    """The decaying mean: decay · old + (1 − decay) · new."""
    return g.Add(g.Mul(old, _like(g, old, decay)), g.Mul(new, _like(g, old, 1.0 - decay)))


def _like(g: PyAny, v: PyAny, number: float) -> PyAny:
    """A number of the element type of `v`."""
    return g.const(np.asarray(number), v.tensor.dtype)
