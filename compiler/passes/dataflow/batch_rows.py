"""Which axis of every value counts independent rows of the batch, so that a request may be cut into micro-batches.

A value with no row axis is the same for every row. What an operator does to rows it says itself (`Operator.row_axis`).
The analysis reads the graph only.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dim import says_at_most
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Fused
from ...ir.ops.internal import Result
from ...ir.ops.row_rules import Rows, RowsInteract
from ...ir.types import Dim, SymDim, TensorType, lower_bound, substitute
from ...ir.types import symbol as make_symbol

SHARED = None  # row axis of a value that all rows share


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
        except RowsInteract as refusal:
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
        if says_at_most(a, b) and lower_bound(substitute(b, one_more) - b, 0) >= 0:
            continue  # what is small enough for all rows is so for some of them
        if _mentions(substitute(a, one_more), symbol) or _mentions(substitute(b, one_more), symbol):
            raise RowsInteract(f"the symbol must equal something else: {where}")
    axis: dict[Value, int | None] = {}
    for v in graph.inputs:
        axis[v] = _input_axis(v, symbol)
    for node in graph:
        _step(node, axis, symbol)
    names = {v.name: a for v in graph.inputs if (a := axis[v]) is not None}
    for name, v in zip(graph.output_names, graph.outputs):
        a = axis.get(v, SHARED)
        if a is None or str(v.tensor.dims[a]) != symbol:
            raise RowsInteract(f"output {name} has no axis that counts rows")
        names[name] = a
    return BatchRows(symbol, names)


def _input_axis(v: Value, symbol: str) -> int | None:
    where = [i for i, d in enumerate(v.tensor.dims) if _mentions(d, symbol)]
    if not where:
        return SHARED
    if len(where) > 1 or str(v.tensor.dims[where[0]]) != symbol:
        raise RowsInteract(f"input {v.name} uses the symbol in more than one plain axis")
    return where[0]


def _step(node: Node, axis: dict[Value, int | None], symbol: str) -> None:
    if isinstance(node.op, Fused):
        assert node.body is not None
        for inner, outer in zip(node.body.inputs, node.inputs):
            axis[inner] = axis.get(outer, SHARED) if outer is not None else SHARED
            if outer is not None and inner.known is None and _says_count(outer, symbol):
                raise RowsInteract(f"{node.where}: the number of rows is used as data")
        for n in node.body:
            _step(n, axis, symbol)
        for outer, inner in zip(node.outputs, node.body.outputs):
            axis[outer] = axis[inner]
        return
    given = [axis.get(v, SHARED) if v is not None else SHARED for v in node.inputs]
    if isinstance(node.op, Result):
        axis.update(zip(node.outputs, given))
        return
    if all(out.known is not None for out in node.outputs):
        axis.update((out, SHARED) for out in node.outputs)  # shape arithmetic: harmless until a count is used as data
        return
    for i, v in enumerate(node.inputs):
        if v is not None and _says_count(v, symbol) and node.op.shape_operand != i:
            raise RowsInteract(f"{node.where}: the number of rows is used as data")
    for i, out in enumerate(node.outputs):
        if not isinstance(out.type, TensorType) or out.type.shape is None:
            raise RowsInteract(f"{node.where}: result of unknown shape")
        if all(a is None for a in given):
            axis[out] = _from_shared(node, out, symbol)
            continue
        result = node.op.row_axis(Rows(node.context(), given, out.type, i))
        counts = [a for a, d in enumerate(out.type.dims) if _mentions(d, symbol)]
        if counts != [result] or not _is_whole(out.type.dims[counts[0]], symbol):
            raise RowsInteract(f"{node.where}: rows leave axis {result}")
        axis[out] = result


def _from_shared(node: Node, out: Value, symbol: str) -> int | None:
    """Results of shared operands: the symbol may only say how often equal rows repeat."""
    where = [a for a, d in enumerate(out.tensor.dims) if _mentions(d, symbol)]
    if not where:
        return SHARED
    if len(where) > 1 or not node.op.repeats_elements or not _is_whole(out.tensor.dims[where[0]], symbol):
        raise RowsInteract(f"{node.where}: makes rows of its own")
    return where[0]
