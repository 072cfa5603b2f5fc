"""RNN, GRU and LSTM: attributes, sizes and activation functions. What a step computes is the kernel's business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as PyAny
from typing import ClassVar

from ..types import F32, I32, Dim, TensorType, Type
from . import layout_policies
from .backward import Backward
from .base import CATALOGUE, Attr, Float, Floats, In, InferContext, Operator, Opt, OptOut, Rows, Shapes, Strs, Work, op
from .interfaces import IndexRange
from .recurrent_cells import gru_steps, gru_steps_reset_after, lstm_steps, lstm_steps_coupled, rnn_steps
from .recurrent_gradient import Cell, Sequences, recurrent_gradient
from .signature import TypeGroup

# ONNX's activation functions: default alpha and beta, None where the function has none
ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
    "softsign": (None, None),
    "softplus": (None, None),
}


class Lengths(TypeGroup):
    """sequence_lens."""

    dtypes = frozenset({I32})


@dataclass(frozen=True)
class Activation:
    """One activation function with its parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, e: PyAny, x: PyAny) -> PyAny:
        a, b = self.alpha, self.beta
        match self.name:
            case "relu":
                return e.max(x, 0.0)
            case "tanh":
                return e.tanh(x)
            case "sigmoid":
                return e.sigmoid(x)
            case "affine":
                return x * a + b
            case "leakyrelu":
                return e.select(x < 0.0, x * a, x)
            case "thresholdedrelu":
                return e.select(x > a, x, 0.0)
            case "scaledtanh":
                return e.tanh(x * b) * a
            case "hardsigmoid":
                return e.clip(x * a + b, 0.0, 1.0)
            case "elu":
                return e.select(x < 0.0, (e.exp(e.min(x, 0.0)) - 1.0) * a, x)
            case "softsign":
                return x / (e.abs(x) + 1.0)
            case _:  # softplus: log(1 + exp x) without overflow
                return e.max(x, 0.0) + e.log(e.exp(-e.abs(x)) + 1.0)


@dataclass(frozen=True)
class RecurrentShape:
    """Sizes of a recurrent operator."""

    steps: Dim
    batch: Dim
    inputs: Dim
    hidden: int
    directions: int


class Recurrent(Operator):
    """What the three have in common; subclasses give the gates and the step."""

    n_gates: ClassVar[int]
    default_activations: ClassVar[tuple[str, ...]]
    n_states: ClassVar[int] = 1
    """States carried from step to step: h, for the LSTM also c."""

    activation_alpha: Attr[Floats] = None  # type: ignore[assignment]
    activation_beta: Attr[Floats] = None  # type: ignore[assignment]
    activations: Attr[Strs] = None  # type: ignore[assignment]
    clip: Attr[float] = None  # type: ignore[assignment]
    direction: Attr[str] = "forward"
    hidden_size: Attr[int] = None  # type: ignore[assignment]
    layout: Attr[int] = 0
    layout_policy = layout_policies.KeepsInner()
    fusion_root = False

    def functions(self) -> list[tuple[Activation, ...]]:
        """The activation functions of each direction. Raises InvalidModel through `check`."""
        directions = 2 if self.direction == "bidirectional" else 1
        names = self.activations or self.default_activations * directions
        alphas, betas = list(self.activation_alpha or ()), list(self.activation_beta or ())
        found = []
        for name in names:
            alpha, beta = ACTIVATIONS[name.lower()]
            # the lists hold values for the functions that have the parameter, in order
            alpha = alphas.pop(0) if alpha is not None and alphas else alpha
            beta = betas.pop(0) if beta is not None and betas else beta
            found.append(Activation(name.lower(), alpha or 0.0, beta or 0.0))
        per = len(self.default_activations)
        return [tuple(found[d * per : (d + 1) * per]) for d in range(directions)]

    def _check_attributes(self, ctx: InferContext) -> int:
        if self.direction not in ("forward", "reverse", "bidirectional"):
            ctx.fail("unknown direction", expected="forward, reverse or bidirectional", found=self.direction)
        directions = 2 if self.direction == "bidirectional" else 1
        if self.layout not in (0, 1):
            ctx.fail("unknown layout", expected="0 or 1", found=self.layout)
        expected = len(self.default_activations) * directions
        if self.activations and len(self.activations) != expected:
            ctx.fail("wrong number of activations", expected=expected, found=list(self.activations))
        for name in self.activations or ():
            if name.lower() not in ACTIVATIONS:
                ctx.fail("unknown activation", expected=", ".join(ACTIVATIONS), found=name)
        if self.clip is not None and not self.clip > 0:
            ctx.fail("clip must be positive", expected="> 0", found=self.clip)
        return directions

    def shape(self, ctx: InferContext) -> RecurrentShape:
        """Sizes, checked against every operand."""
        directions = self._check_attributes(ctx)
        x, _, r = (self._of_rank_3(ctx, i, name) for i, name in ((0, "X"), (1, "W"), (2, "R")))
        steps, batch, inputs = (x[1], x[0], x[2]) if self.layout else x
        hidden = self.hidden_size if self.hidden_size is not None else r[2]
        if not isinstance(hidden, int) or hidden < 1:
            ctx.fail("hidden_size must be positive and known", found=hidden)
        self._expect(ctx, 1, (directions, self.n_gates * hidden, inputs), "W")
        self._expect(ctx, 2, (directions, self.n_gates * hidden, hidden), "R")
        self._expect(ctx, 3, (directions, 2 * self.n_gates * hidden), "B")
        self._expect(ctx, 4, (batch,), "sequence_lens")
        state = (batch, directions, hidden) if self.layout else (directions, batch, hidden)
        self._expect(ctx, 5, state, "initial_h")
        if self.n_states == 2:
            self._expect(ctx, 6, state, "initial_c")
            self._expect(ctx, 7, (directions, 3 * hidden), "P")
        return RecurrentShape(steps, batch, inputs, hidden, directions)

    def _of_rank_3(self, ctx: InferContext, i: int, name: str) -> tuple[Dim, ...]:
        shape = ctx.shape(i)
        if len(shape) != 3:
            ctx.fail(f"{name} must have rank 3", found=ctx.tensor(i))
        return shape

    def _expect(self, ctx: InferContext, i: int, shape: tuple[Dim, ...], name: str) -> None:
        if not ctx.has(i):
            return
        found = ctx.shape(i)
        if len(found) != len(shape):
            ctx.fail(f"{name} has the wrong rank", expected=list(shape), found=ctx.tensor(i))
        for a, b in zip(shape, found, strict=True):
            ctx.equal(a, b, f"{name} must have shape {[str(d) for d in shape]}")

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        s = self.shape(ctx)
        dtype = ctx.tensor(0).dtype
        if dtype.bits == 64:
            ctx.unsupported("recurrent operators in f64", dtype, hint="use float32")
        if self.layout:
            y: tuple[Dim, ...] = (s.batch, s.steps, s.directions, s.hidden)
            state: tuple[Dim, ...] = (s.batch, s.directions, s.hidden)
        else:
            y, state = (s.steps, s.directions, s.batch, s.hidden), (s.directions, s.batch, s.hidden)
        return [TensorType(dtype, y), *[TensorType(dtype, state)] * self.n_states]

    def clipped(self, e: PyAny, x: PyAny) -> PyAny:
        """The input of a gate's activation function, bounded if `clip` is given."""
        return x if self.clip is None else e.clip(x, -self.clip, self.clip)

    def row_axis(self, rows: Rows) -> int:
        """X [S,N,I]; Y [S,D,N,H], states [D,N,H] (layout=0)."""
        row = {0: 1, 4: 0, 5: 1, 6: 1}
        if self.layout or any(a is not None and row.get(i) != a for i, a in enumerate(rows.given)):
            raise rows.interact("rows are not on the batch axis")
        return 2 if rows.output == 0 else 1

    def work(self, shapes: Shapes) -> Work:
        """R is read, and cores meet, at every time step; W's product is taken for all steps at once."""
        x, (directions, gates, hidden) = shapes.operand(0), shapes.operand(2)
        steps = max(1, x[self.layout])
        return Work("recurrent", 2 * x[0] * x[1] * directions * gates * (x[2] + hidden), times_read={2: steps},
                    meetings=steps * directions)  # fmt: skip

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        """sequence_lens count steps."""
        return IndexRange(4, 1, ctx.shape(0)[self.layout])

    def training_form(self, ctx: InferContext) -> Operator | None:
        """See recurrent_training.py: for f32."""
        form = CATALOGUE.get(("parax", f"Training{self.name}"))
        is_known = form is not None and ctx.tensor(0).dtype == F32
        return form(**self.explicit_attributes()) if form is not None and is_known else None

    def _steps_back(self) -> Cell:
        """The cell's steps from the last to the first."""
        raise NotImplementedError

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """See recurrent_gradient.py. Raises UnsupportedOp: the number of steps is open."""
        shape = self.shape(back.ctx)
        if not isinstance(shape.steps, int):
            back.refuse("a recurrent operator of an open number of steps", shape.steps)
        reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[self.direction]
        sizes = Sequences(shape.steps, shape.hidden, self.n_gates, self.functions(), reverse, self.clip,
                          self.layout == 1)  # fmt: skip
        return recurrent_gradient(back, sizes, self._steps_back())


@op(since=7)
class RNN(Recurrent):
    """h = f(x W + h R + b)."""

    n_gates: ClassVar[int] = 1
    default_activations: ClassVar[tuple[str, ...]] = ("Tanh",)

    x: In[Float]
    w: In[Float]
    r: In[Float]
    b: Opt[Float]
    sequence_lens: Opt[Lengths]
    initial_h: Opt[Float]
    y: OptOut
    y_h: OptOut
    zeros_by_default = (3, 5)

    def _steps_back(self) -> Cell:
        return rnn_steps


@op(since=7)
class GRU(Recurrent):
    """z = f(..), r = f(..), n = g(..); h = (1 - z) n + z h. Gates in the order z, r, n.

    n = g(x W + (r h) R + b), or with linear_before_reset n = g(x W + r (h R + rb) + wb).
    """

    n_gates: ClassVar[int] = 3
    default_activations: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh")

    x: In[Float]
    w: In[Float]
    r: In[Float]
    b: Opt[Float]
    sequence_lens: Opt[Lengths]
    initial_h: Opt[Float]
    y: OptOut
    y_h: OptOut
    linear_before_reset: Attr[int] = 0
    zeros_by_default = (3, 5)

    def _steps_back(self) -> Cell:
        return gru_steps_reset_after if self.linear_before_reset else gru_steps


@op(since=7)
class LSTM(Recurrent):
    """i = f(..), f = f(..), c = f c + i g(..), o = f(..), h = o h(c). Gates in the order i, o, f, c."""

    n_gates: ClassVar[int] = 4
    n_states: ClassVar[int] = 2
    default_activations: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")

    x: In[Float]
    w: In[Float]
    r: In[Float]
    b: Opt[Float]
    sequence_lens: Opt[Lengths]
    initial_h: Opt[Float]
    initial_c: Opt[Float]
    p: Opt[Float]
    y: OptOut
    y_h: OptOut
    y_c: OptOut
    input_forget: Attr[int] = 0
    zeros_by_default = (3, 5, 6, 7)

    def _steps_back(self) -> Cell:
        return lstm_steps_coupled if self.input_forget else lstm_steps
