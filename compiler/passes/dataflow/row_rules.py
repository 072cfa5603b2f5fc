"""What operators do to independent rows: given the row axis of the operands, the row axis of each result.

Owns one rule per operator, or kind of operators. Refusing is always allowed; letting rows mix never is.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.graph import Node
from ...ir.ops.base import Elementwise, Movement, Reduce, Relayout, Window
from ...ir.types import SymDim, prod


class Mixed(Exception):
    """Rows of the batch influence each other here, or no rule shows that they do not."""


Rule = Callable[[Node, "list[int | None]", int], "int | None"]


def rule_of(node: Node) -> Rule:
    """The rule of an operator, which gives the row axis of a result, or raises Mixed.

    Raises:
        Mixed: there is none.
    """
    if node.op.name in _RULES:
        return _RULES[node.op.name]
    if isinstance(node.op, Elementwise):
        return _broadcast
    if isinstance(node.op, Relayout):
        return lambda n, g, i: g[0]
    if isinstance(node.op, Movement) and node.op.is_view:
        return _reshape
    if isinstance(node.op, Reduce):
        return _reduce
    if isinstance(node.op, Window) or node.op.name in _PER_ITEM:
        return _per_item
    raise Mixed(f"{node.where}: no rule for this operator")


_PER_ITEM = frozenset({"Conv", "IntegralConv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "LRN",
                       "GroupNormalization", "DepthToSpace", "SpaceToDepth", "GridSample", "Col2Im",
                       "TreeEnsembleRegressor"})


def _broadcast(node: Node, given: list[int | None], _: int) -> int | None:
    rank = node.output.tensor.rank
    axes = {a + rank - v.tensor.rank for v, a in zip(node.inputs, given) if a is not None and v is not None}
    if len(axes) != 1:
        raise Mixed(f"{node.where}: rows lie on different axes")
    return axes.pop()


def _per_item(node: Node, given: list[int | None], output: int) -> int | None:
    if given[0] != 0 or any(a is not None for a in given[1:]):
        raise Mixed(f"{node.where}: rows are not on axis 0 of the first operand alone")
    if output > 0:  # MaxPool's indices count from the start of the whole batch
        raise Mixed(f"{node.where}: a second result that may count across rows")
    if getattr(node.op, "training_mode", 0):
        raise Mixed(f"{node.where}: statistics over the batch")
    return 0


def _resize(node: Node, given: list[int | None], output: int) -> int | None:
    if any(resized.axis == 0 for resized in node.op.resized_axes(node.context())):  # type: ignore[attr-defined]
        raise Mixed(f"{node.where}: makes rows out of neighbouring rows")
    return _per_item(node, given, output)


def _reshape(node: Node, given: list[int | None], _: int) -> int | None:
    """The axis of the result before which as many elements lie, if rows stay whole."""
    a, x, y = given[0], node.operands[0].tensor, node.output.tensor
    assert a is not None
    before = prod(x.dims[:a])
    for i in range(y.rank):
        if prod(y.dims[:i]) == before and isinstance(y.dims[i], SymDim) and (a == 0 or y.dims[i] == x.dims[a]):
            return i
    raise Mixed(f"{node.where}: the reshape mixes rows")


def _reduce(node: Node, given: list[int | None], _: int) -> int | None:
    a, x, y = given[0], node.operands[0].tensor, node.output.tensor
    if a is None or any(g is not None for g in given[1:]):
        raise Mixed(f"{node.where}: rows in the axes operand")
    axes = node.op.reduced_axes(node.context())  # type: ignore[attr-defined]
    if a in axes:
        raise Mixed(f"{node.where}: reduces over the rows")
    return a if y.rank == x.rank else a - sum(r < a for r in axes)


def _transpose(node: Node, given: list[int | None], _: int) -> int | None:
    assert given[0] is not None
    return list(node.op.order(node.operands[0].tensor.rank)).index(given[0])  # type: ignore[attr-defined]


def _matmul(node: Node, given: list[int | None], _: int) -> int | None:
    a, b = node.operands[0].tensor, node.operands[1].tensor
    rank = node.output.tensor.rank
    axes = set()
    for operand, row, contracted in ((a, given[0], a.rank - 1), (b, given[1], max(b.rank - 2, 0))):
        if row is None:
            continue
        if row == contracted or (operand is b and row == b.rank - 1):
            raise Mixed(f"{node.where}: contracts over the rows, or has them as columns")
        other = b if operand is a else a
        axes.add(row if other.rank == 1 else row + rank - operand.rank)
    if len(axes) != 1:
        raise Mixed(f"{node.where}: rows lie on different axes")
    return axes.pop()


def _gemm(node: Node, given: list[int | None], _: int) -> int | None:
    if given[0] != (1 if node.op.transA else 0) or given[1] is not None:  # type: ignore[attr-defined]
        raise Mixed(f"{node.where}: contracts over the rows")
    if len(given) > 2 and given[2] is not None and given[2] != node.operands[2].tensor.rank - 2:
        raise Mixed(f"{node.where}: rows of the addend lie elsewhere")
    return 0


def _along_axis(node: Node, given: list[int | None], _: int) -> int | None:
    """Operators that work along `axis` and leave the others alone."""
    rank = node.operands[0].tensor.rank
    axes = {a for a in given if a is not None}
    own = getattr(node.op, "axis", -1) % rank
    if len(axes) != 1 or own in axes:
        raise Mixed(f"{node.where}: works along the rows")
    shared_full = [v for v, a in zip(node.inputs, given) if a is None and v is not None and v.tensor.rank == rank]
    if node.op.name == "Concat" and shared_full:
        raise Mixed(f"{node.where}: joins rows with a shared operand")
    return axes.pop()


def _arg_reduce(node: Node, given: list[int | None], _: int) -> int | None:
    own, a = node.op.axis % node.operands[0].tensor.rank, given[0]  # type: ignore[attr-defined]
    if a is None or a == own:
        raise Mixed(f"{node.where}: reduces over the rows")
    return a if node.op.keepdims or a < own else a - 1  # type: ignore[attr-defined]


def _first_axes_norm(node: Node, given: list[int | None], _: int) -> int | None:
    """LayerNormalization: normalises over axes >= `axis`."""
    own = node.op.axis % node.operands[0].tensor.rank  # type: ignore[attr-defined]
    if given[0] is None or given[0] >= own or any(a is not None for a in given[1:]):
        raise Mixed(f"{node.where}: normalises over the rows")
    return given[0]


def _same_extent(node: Node, given: list[int | None], _: int) -> int | None:
    """Slice, Pad, Tile, Expand, …: fine while the row axis keeps its whole extent."""
    x, y, a = node.operands[0].tensor, node.output.tensor, given[0]
    shift = y.rank - x.rank
    if a is None or any(g is not None for g in given[1:]) or x.dims[a] != y.dims[a + shift]:
        raise Mixed(f"{node.where}: changes the rows")
    if node.op.name == "Slice" and not _forward(node):
        raise Mixed(f"{node.where}: may reverse the rows")
    if node.op.name == "Pad" and not _unpadded(node, a):
        raise Mixed(f"{node.where}: may shift the rows")
    return a + shift


def _forward(node: Node) -> bool:
    """Whether all steps of a Slice are known to be positive."""
    steps = node.inputs[4].known if len(node.inputs) > 4 and node.inputs[4] is not None else None
    if steps is None:
        return len(node.inputs) <= 4 or node.inputs[4] is None
    return all(isinstance(s, int) and s > 0 for s in steps.flat)


def _unpadded(node: Node, axis: int) -> bool:
    """Whether a Pad is known to leave `axis` alone."""
    pads = node.inputs[1].known if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if pads is None:
        return False
    rank, amounts = node.operands[0].tensor.rank, list(pads.flat)
    given = node.inputs[3] if len(node.inputs) > 3 else None
    axes = list(range(rank)) if given is None else None if given.known is None else [int(a) % rank for a in given.known]
    if axes is None or len(amounts) != 2 * len(axes):
        return False
    return axis not in axes or amounts[axes.index(axis)] == 0 == amounts[axes.index(axis) + len(axes)]


def _gather(node: Node, given: list[int | None], _: int) -> int | None:
    data, index = given[0], given[1]
    axis = node.op.axis % node.operands[0].tensor.rank  # type: ignore[attr-defined]
    if data is None and index is not None:
        return axis + index
    if index is None and data is not None and data != axis:
        return data if data < axis else data + node.operands[1].tensor.rank - 1
    raise Mixed(f"{node.where}: gathers across the rows")


def _attention(node: Node, given: list[int | None], _: int) -> int | None:
    """Rows count heads, or batches of them, in queries, keys, values and, where it has them, the mask."""
    rank, a = node.output.tensor.rank, given[0]
    if a is None or a >= rank - 2 or given[1] != a or given[2] != a:
        raise Mixed(f"{node.where}: rows attend to each other")
    if len(given) > 3 and given[3] is not None and given[3] + rank - node.operands[3].tensor.rank != a:
        raise Mixed(f"{node.where}: rows of the mask lie elsewhere")
    return a


def _recurrent(node: Node, given: list[int | None], output: int) -> int | None:
    """LSTM, GRU, RNN: X [S,N,I]; Y [S,D,N,H], states [D,N,H] (layout=0)."""
    row = {0: 1, 4: 0, 5: 1, 6: 1}
    if getattr(node.op, "layout", 0) or any(a is not None and row.get(i) != a for i, a in enumerate(given)):
        raise Mixed(f"{node.where}: rows are not on the batch axis")
    return 2 if output == 0 else 1


def _cumulative(node: Node, given: list[int | None], _: int) -> int | None:
    """CumSum along another axis, which has to be known."""
    along = node.op.summed_axis(node.context())  # type: ignore[attr-defined]
    if along is None or given[0] in (None, along) or given[1] is not None:
        raise Mixed(f"{node.where}: may sum over the rows")
    return given[0]


def _by_elements(node: Node, given: list[int | None], _: int) -> int | None:
    """GatherElements, ScatterElements: all operands have the rows on one axis, and positions lie on another."""
    own = node.op.axis % node.operands[0].tensor.rank  # type: ignore[attr-defined]
    a = given[0]
    if a is None or a == own or len(set(given)) > 1 or len({v.tensor.dims[a] for v in node.operands}) > 1:
        raise Mixed(f"{node.where}: positions reach across the rows")
    return a


def _gather_nd(node: Node, given: list[int | None], _: int) -> int | None:
    """Rows among the common axes of data and indices, or of indices into shared data."""
    data, index = given
    common = node.op.batch_dims  # type: ignore[attr-defined]
    among = index is not None and (data == index < common or (data is None and index >= common))
    if among and index != node.operands[1].tensor.rank - 1:
        return index
    raise Mixed(f"{node.where}: gathers across the rows")


def _one_hot(node: Node, given: list[int | None], _: int) -> int | None:
    a, own = given[0], node.op.axis % node.output.tensor.rank  # type: ignore[attr-defined]
    if a is None or any(g is not None for g in given[1:]):
        raise Mixed(f"{node.where}: rows lie elsewhere than in the indices")
    return a if a < own else a + 1


def _reverse_sequence(node: Node, given: list[int | None], _: int) -> int | None:
    """Rows are the sequences, or an axis that is neither theirs nor the steps'."""
    rank = node.operands[0].tensor.rank
    batch, time = (a % rank for a in (node.op.batch_axis, node.op.time_axis))  # type: ignore[attr-defined]
    if given[0] is None or given[0] == time or given[1] != (0 if given[0] == batch else None):
        raise Mixed(f"{node.where}: reverses the rows, or rows lack lengths of their own")
    return given[0]


def _triangle(node: Node, given: list[int | None], _: int) -> int | None:
    a = given[0]
    if a is None or a >= node.operands[0].tensor.rank - 2 or any(g is not None for g in given[1:]):
        raise Mixed(f"{node.where}: the triangle depends on the row's number")
    return a


def _classifier(node: Node, given: list[int | None], _: int) -> int | None:
    """TreeEnsembleClassifier: labels and scores of each row of X."""
    if given != [0]:
        raise Mixed(f"{node.where}: rows are not on axis 0")
    return 0


_RULES: dict[str, Rule] = {
    "Transpose": _transpose, "MatMul": _matmul, "Gemm": _gemm, "Softmax": _along_axis, "LogSoftmax": _along_axis,
    "Concat": _along_axis, "Split": _along_axis, "ArgMax": _arg_reduce, "ArgMin": _arg_reduce, "TopK": _along_axis,
    "LayerNormalization": _first_axes_norm, "RMSNormalization": _first_axes_norm, "Gather": _gather,
    "Slice": _same_extent, "Part": _same_extent, "Pad": _same_extent, "Expand": _same_extent, "Tile": _same_extent,
    "DotProductAttention": _attention, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent,
    "CumSum": _cumulative, "GatherElements": _by_elements, "ScatterElements": _by_elements, "GatherND": _gather_nd,
    "Hardmax": _along_axis, "OneHot": _one_hot, "ReverseSequence": _reverse_sequence, "Trilu": _triangle,
    "TreeEnsembleClassifier": _classifier, "IntegralMatMul": _matmul, "Resize": _resize,
}
