"""What a MatMul or Gemm multiplies: operands as strides per axis of the result. Knows no kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.graph import Value
from ....ir.ops.contraction import Gemm
from ....ir.types import Dim, TensorType
from ...fusion import Fusion


@dataclass(frozen=True)
class Matrices:
    """A product y[.., m, n] = alpha · sum over k of a · b + addend, as strides per axis of y.

    Attributes:
        depth: size of k. a_strides, b_strides: elements per step of each logical axis of y (0 = broadcast).
        a_k, b_k: elements per step of k. row_axis, column_axis: y's axes of m and n, None for a vector operand.
        batch: logical axes of y that b varies with besides n.
    """

    a: Value
    b: Value
    c: Value | None
    depth: Dim
    a_strides: tuple[Dim, ...]
    b_strides: tuple[Dim, ...]
    a_k: Dim
    b_k: Dim
    row_axis: int | None
    column_axis: int | None
    alpha: float = 1.0
    beta: float = 1.0
    transposed_b: bool = False

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(i for i, s in enumerate(self.b_strides) if i != self.column_axis and s != 0)


def matrices_of(fusion: Fusion) -> Matrices:
    """Read the operands of a MatMul or Gemm root."""
    op = fusion.root.op
    a, b = fusion.root_inputs[0], fusion.root_inputs[1]
    assert a is not None and b is not None
    ta, tb = a.tensor, b.tensor
    if isinstance(op, Gemm):
        c = fusion.root_inputs[2] if len(fusion.root_inputs) > 2 else None
        (am, ak), (bk, bn) = ta.strides, tb.strides
        if op.transA:
            am, ak = ak, am
        if op.transB:
            bk, bn = bn, bk
        depth = ta.dims[0 if op.transA else 1]
        return Matrices(a, b, c, depth, (am, 0), (0, bn), ak, bk, 0, 1, op.alpha, op.beta, bool(op.transB))
    rank = fusion.result.tensor.rank
    n_vectors = (ta.rank == 1) + (tb.rank == 1)
    lead = rank - (2 - n_vectors)
    row = lead if ta.rank > 1 else None
    column = rank - 1 if tb.rank > 1 else None
    return Matrices(
        a,
        b,
        None,
        ta.dims[-1],
        _axis_strides(ta, rank, lead, row, -2),
        _axis_strides(tb, rank, lead, column, -1),
        ta.strides[-1],
        tb.strides[-2] if tb.rank > 1 else tb.strides[0],
        row,
        column,
    )


def _axis_strides(t: TensorType, rank: int, lead: int, own_axis: int | None, own: int) -> tuple[Dim, ...]:
    """Strides of an operand per axis of the result: its batch axes right-aligned in the first `lead`, and its own."""
    out: list[Dim] = [0] * rank
    n_batch = t.rank - 2
    for i in range(n_batch):
        if t.dims[i] != 1:
            out[lead - n_batch + i] = t.strides[i]
    if own_axis is not None:
        out[own_axis] = t.strides[own]
    return tuple(out)


def is_packed(m: Matrices) -> bool:
    """Whether B is known at compile time and shared by all rows."""
    return m.b.data is not None and m.b.producer is None and not m.batch


@dataclass
class Rows:
    """The rows of one product: sizes and strides, outermost first, merged where they are evenly spaced.

    Attributes:
        outer: axes of y iterated as independent products. axes: axes whose rows are tiled together, in memory order.
        a_runs: (size, a's stride) of the merged row axes. y_step: rows of the result between consecutive rows.
    """

    outer: tuple[int, ...]
    axes: tuple[int, ...]
    a_runs: list[tuple[Dim, Dim]]
    y_step: Dim
    y_strides: dict[int, Dim]


def plan_rows(y: TensorType, m: Matrices) -> Rows:
    """Choose the rows that share a panel of B and lie at one distance in the result."""
    order = y.axis_order[:-1]
    strides: dict[int, Dim] = {}
    step: Dim = 1
    for a in reversed(order):
        strides[a] = step
        step = step * y.dims[a]
    together: list[int] = []
    for a in reversed(order):
        if y.dims[a] == 1 or a in m.batch:
            continue
        if together and strides[a] != strides[together[0]] * y.dims[together[0]]:
            break
        together.insert(0, a)
    outer = tuple(a for a in order if a not in together and y.dims[a] != 1)
    runs: list[tuple[Dim, Dim]] = []
    for a in together:
        if runs and runs[-1][1] == m.a_strides[a] * y.dims[a]:
            runs[-1] = (runs[-1][0] * y.dims[a], m.a_strides[a])
        else:
            runs.append((y.dims[a], m.a_strides[a]))
    return Rows(outer, tuple(together), runs or [(1, 0)], strides[together[-1]] if together else 1, strides)
