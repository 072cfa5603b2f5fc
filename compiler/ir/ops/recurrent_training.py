"""Recurrent operators in training: the forms that keep what goes back through time, and the way back.

`parax::TrainingLSTM` is LSTM and gives, behind its results, the sums of the gates and the cell states of every step;
GRU and RNN have no cell states. `parax::LSTMGradient` goes through the steps from the last to the first: element-wise
work and one product, of the gates' gradients with R. What needs no order is left to products over all steps
(recurrent_products.py).

What is kept is f32[directions, T, N, units]: time t is that of X and Y, whichever direction runs; beyond the end of a
row's sequence its gradients are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny
from typing import ClassVar

from ..types import F32, Dim, TensorType, Type
from .backward import Backward
from .base import Attr, Float32, In, InferContext, Opt, OptOut, Out, Rows, Shapes, Work, op
from .interfaces import IndexRange
from .recurrent import GRU, LSTM, RNN, Lengths, Recurrent, RecurrentShape
from .recurrent_products import recurrent_gradients


class TrainingRecurrent(Recurrent):
    """A recurrent operator that keeps what its gradient reads."""

    @property
    def n_sums(self) -> int:
        """Sums of a unit and step that are kept."""
        return self.n_gates

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        results, s = super().infer(ctx), self.shape(ctx)
        widths = [self.n_sums, 1][: self.n_states]
        kept = [TensorType(F32, (s.directions, s.steps, s.batch, n * s.hidden)) for n in widths]
        return [*results, *kept]

    def row_axis(self, rows: Rows) -> int:
        axis = super().row_axis(rows)
        return 2 if rows.output > self.n_states else axis

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        return recurrent_gradients(back, self.shape(back.ctx).directions, self)


class RecurrentGradient(Recurrent):
    """Gradients of the gates' sums and of the first states, from those of Y and of the last states.

    gates: the sums, of a training form; y: its Y; lens, h0, c0, p, r: its operands; cells: its cell states; dy, dy_h,
    dy_c: what its results have received, 0 where omitted. Results:
    dgates: gradient of each sum x·W + b, in ONNX's order of the gates. before: h before each step, 0 beyond the end.
    dh0, dc0: of the first states. beside: what else products over all steps read; see the operators.
    """

    gates: In[Float32]
    y: In[Float32]
    r: In[Float32]
    lens: Opt[Lengths]
    h0: Opt[Float32]
    cells: Opt[Float32]
    c0: Opt[Float32]
    p: Opt[Float32]
    dy: Opt[Float32]
    dy_h: Opt[Float32]
    dy_c: Opt[Float32]

    def row_axis(self, rows: Rows) -> int:
        raise rows.interact("what goes back through time is not cut into rows")

    zeros_by_default = (4, 6, 7, 8, 9, 10)

    def shape(self, ctx: InferContext) -> RecurrentShape:
        """Sizes; those of the inputs are not known here, and 0."""
        directions = self._check_attributes(ctx)
        gates = ctx.shape(0)
        if len(gates) != 4 or not isinstance(ctx.shape(2)[-1], int):
            ctx.fail("gates must be [directions, T, N, units], and the units known", found=ctx.tensor(0))
        hidden = ctx.shape(2)[-1]
        assert isinstance(hidden, int)
        self._expect(ctx, 2, (directions, self.n_gates * hidden, hidden), "R")
        steps, batch = gates[1:3]
        y = (batch, steps, directions, hidden) if self.layout else (steps, directions, batch, hidden)
        state = (batch, directions, hidden) if self.layout else (directions, batch, hidden)
        for i, shape in ((1, y), (3, (batch,)), (4, state), (5, (directions, steps, batch, hidden)), (6, state),
                         (7, (directions, 3 * hidden)), (8, y), (9, state), (10, state)):  # fmt: skip
            self._expect(ctx, i, shape, self.signature.inputs[i].name)
        return RecurrentShape(steps, batch, 0, hidden, directions)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        s = self.shape(ctx)

        def each(units: Dim) -> TensorType:
            return TensorType(F32, (s.directions, s.steps, s.batch, units))

        state = (s.batch, s.directions, s.hidden) if self.layout else (s.directions, s.batch, s.hidden)
        states = [TensorType(F32, state)] * self.n_states
        return [each(self.n_gates * s.hidden), each(s.hidden), *states, each(s.hidden)]

    def work(self, shapes: Shapes) -> Work:
        directions, steps, rows, _ = shapes.operand(0)
        _, gates, hidden = shapes.operand(2)
        return Work("recurrent", 2 * steps * rows * directions * gates * hidden, meetings=steps * directions)

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        return IndexRange(3, 1, ctx.shape(0)[1])

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        back.refuse("a recurrent operator's gradient")


@op(domain="parax")
class TrainingRNN(TrainingRecurrent, RNN):
    """RNN with `gates`, its sums."""

    gates: OptOut


@op(domain="parax")
class RNNGradient(RecurrentGradient):
    """Of RNN."""

    n_gates: ClassVar[int] = 1
    default_activations: ClassVar[tuple[str, ...]] = ("Tanh",)

    dgates: Out
    before: OptOut
    dh0: OptOut


@op(domain="parax")
class TrainingGRU(TrainingRecurrent, GRU):
    """GRU with `gates`, the sums of z, r, n; with linear_before_reset those of z, r, h R + rb and x W + wb."""

    gates: OptOut

    @property
    def n_sums(self) -> int:
        return 4 if self.linear_before_reset else 3


@op(domain="parax")
class GRUGradient(RecurrentGradient):
    """Of GRU. `beside`: r h of each step, or with linear_before_reset the gradient of h R + rb."""

    n_gates: ClassVar[int] = 3
    default_activations: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh")

    dgates: Out
    before: OptOut
    dh0: OptOut
    beside: OptOut
    linear_before_reset: Attr[int] = 0


@op(domain="parax")
class TrainingLSTM(TrainingRecurrent, LSTM):
    """LSTM with `gates`, the sums of i, o, f, c without peepholes, and `cells`, the cell states behind each step."""

    gates: OptOut
    cells: OptOut


@op(domain="parax")
class LSTMGradient(RecurrentGradient):
    """Of LSTM. `beside`: the cell states before each step."""

    n_gates: ClassVar[int] = 4
    n_states: ClassVar[int] = 2
    default_activations: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")

    dgates: Out
    before: OptOut
    dh0: OptOut
    dc0: OptOut
    beside: OptOut
    input_forget: Attr[int] = 0
