"""Which axis of every value counts independent rows of the batch, so that a request may be cut into micro-batches.

Owns one rule per operator: given the row axis of the operands, the row axis of the result, or a refusal. A value with
no row axis is the same for every row. The analysis reads the graph only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused, Movement, Reduce, Relayout, Window
from ...ir.ops.internal import Result
from ...ir.types import Dim, SymDim, TensorType, prod, substitute
from ...ir.types import symbol as make_symbol

SHARED = None  # row axis of a value that all rows share
SHAPE_OPERANDS = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Tile": 1}  # say how large, not what


class Mixed(Exception):
    """Rows of the batch influence each other here, or no rule shows that they do not."""


@dataclass(frozen=True)
class BatchRows:
    """Result of the analysis.

    Attributes:
        symbol: the symbolic dimension that counts rows. axes: row axis per graph input and output name; an input
        without an entry is shared by all rows.
    """

    symbol: str
    axes: dict[str, int]


def batch_rows(graph: Graph, misses: list[str] | None = None) -> BatchRows | None:
    """The symbol along which the graph's rows are independent, None if there is none.

    Args:
        misses: receives the reason for each symbol that was refused.
    """
    for symbol in _candidates(graph):
        try:
            return _analyse(graph, symbol)
        except Mixed as refusal:
            if misses is not None:
                misses.append(f"{symbol}: {refusal}")
    return None


def _candidates(graph: Graph) -> list[str]:
    found: dict[str, None] = {}
    for v in graph.inputs:
        dims = v.type.dims[:2] if isinstance(v.type, TensorType) else ()
        for d in dims:
            if isinstance(d, SymDim) and str(d).isidentifier():
                found[str(d)] = None
    return list(found)


def _mentions(d: Dim, symbol: str) -> bool:
    return isinstance(d, SymDim) and symbol in d.symbols()


def _says_count(v: Value, symbol: str) -> bool:
    """Whether the content of `v` depends on how many rows there are."""
    return v.known is not None and any(_mentions(d, symbol) for d in v.known.flat)


def _is_whole(d: Dim, symbol: str) -> bool:
    """Whether an axis of this size holds the same whole number of places for every row."""
    return isinstance(d, SymDim) and d == make_symbol(symbol) * d.substitute({symbol: 1})


def _analyse(graph: Graph, symbol: str) -> BatchRows:
    one_more = {symbol: make_symbol(symbol) + 1}  # what matters for no rows at all is no matter of how rows are shared
    for (a, b), where in graph.constraints.items():
        if _mentions(substitute(a, one_more), symbol) or _mentions(substitute(b, one_more), symbol):
            raise Mixed(f"the symbol must equal something else: {where}")
    axis: dict[Value, int | None] = {}
    for v in graph.inputs:
        axis[v] = _input_axis(v, symbol)
    for node in graph:
        _step(node, axis, symbol)
    names = {v.name: a for v in graph.inputs if (a := axis[v]) is not None}
    for name, v in zip(graph.output_names, graph.outputs):
        a = axis.get(v, SHARED)
        if a is None or str(v.tensor.dims[a]) != symbol:
            raise Mixed(f"output {name} has no axis that counts rows")
        names[name] = a
    return BatchRows(symbol, names)


def _input_axis(v: Value, symbol: str) -> int | None:
    where = [i for i, d in enumerate(v.tensor.dims) if _mentions(d, symbol)]
    if not where:
        return SHARED
    if len(where) > 1 or str(v.tensor.dims[where[0]]) != symbol:
        raise Mixed(f"input {v.name} uses the symbol in more than one plain axis")
    return where[0]


def _step(node: Node, axis: dict[Value, int | None], symbol: str) -> None:
    if isinstance(node.op, Fused):
        assert node.body is not None
        for inner, outer in zip(node.body.inputs, node.inputs):
            axis[inner] = axis.get(outer, SHARED) if outer is not None else SHARED
        for n in node.body:
            _step(n, axis, symbol)
        for outer, inner in zip(node.outputs, node.body.outputs):
            axis[outer] = axis[inner]
        return
    given = [axis.get(v, SHARED) if v is not None else SHARED for v in node.inputs]
    if isinstance(node.op, Result):
        axis.update(zip(node.outputs, given))
        return
    counted = any(_says_count(out, symbol) for out in node.outputs)
    if counted and all(out.known is not None for out in node.outputs):
        axis.update((out, SHARED) for out in node.outputs)  # shape arithmetic: harmless until used as data
        return
    for i, v in enumerate(node.inputs):
        if v is not None and _says_count(v, symbol) and SHAPE_OPERANDS.get(node.op.name) != i:
            raise Mixed(f"{node.where}: the number of rows is used as data")
    for i, out in enumerate(node.outputs):
        if not isinstance(out.type, TensorType) or out.type.shape is None:
            raise Mixed(f"{node.where}: result of unknown shape")
        if all(a is None for a in given):
            axis[out] = _from_shared(node, out, symbol)
            continue
        rule = _RULES.get(node.op.name) or _rule_of_kind(node)
        result = rule(node, given, i)
        counts = [a for a, d in enumerate(out.type.dims) if _mentions(d, symbol)]
        if counts != [result] or not _is_whole(out.type.dims[counts[0]], symbol):
            raise Mixed(f"{node.where}: rows leave axis {result}")
        axis[out] = result


def _from_shared(node: Node, out: Value, symbol: str) -> int | None:
    """Results of shared operands: the symbol may only say how often equal rows repeat."""
    where = [a for a, d in enumerate(out.tensor.dims) if _mentions(d, symbol)]
    if not where:
        return SHARED
    repeats = node.op.name in ("Expand", "ConstantOfShape", "Tile")
    if len(where) > 1 or not repeats or not _is_whole(out.tensor.dims[where[0]], symbol):
        raise Mixed(f"{node.where}: makes rows of its own")
    return where[0]


Rule = Callable[[Node, "list[int | None]", int], "int | None"]


def _rule_of_kind(node: Node) -> Rule:
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


_PER_ITEM = frozenset({"Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "LRN",
                       "GroupNormalization", "Resize", "DepthToSpace", "SpaceToDepth", "GridSample"})


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


_RULES: dict[str, Rule] = {
    "Transpose": _transpose, "MatMul": _matmul, "Gemm": _gemm, "Softmax": _along_axis, "LogSoftmax": _along_axis,
    "Concat": _along_axis, "Split": _along_axis, "ArgMax": _arg_reduce, "ArgMin": _arg_reduce, "TopK": _along_axis,
    "LayerNormalization": _first_axes_norm, "RMSNormalization": _first_axes_norm, "Gather": _gather,
    "Slice": _same_extent, "Part": _same_extent, "Pad": _same_extent, "Expand": _same_extent, "Tile": _same_extent,
    "DotProductAttention": _attention, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent,
}
