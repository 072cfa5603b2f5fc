"""Gradients of embeddings as the rows that a batch looks up, and the numbers of these rows, instead of whole tables.

Owns which parameters have one: every use is a Gather along the first axis, and a batch looks up no more rows than the
table has. Any other use (as the weights of a layer, too) has a slope for every element: the gradient is a table then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Value
from ..ir.ops.gathering import Gather
from ..ir.types import I64, prod


@dataclass(frozen=True)
class Lookups:
    """The results of all look-ups in a table, and the indices of each."""

    results: tuple[Value, ...]
    indices: tuple[Value, ...]

    @property
    def count(self) -> int:
        """Rows that are looked up."""
        return sum(_count(v) or 0 for v in self.indices)


def lookups(graph: Graph, parameters: Collection[str], n_pieces: int) -> dict[str, Lookups]:
    """Those of the parameters whose gradient is kept as rows; `n_pieces` times the graph is run for a batch."""
    found = {}
    for name in parameters:
        table = graph.value(name)
        own, size = _lookups(table), table.tensor.dims[:1]
        if own is not None and own.count * n_pieces <= next(d for d in size if isinstance(d, int)):
            found[name] = own
    return found


def _lookups(table: Value) -> Lookups | None:
    """None if the table is used otherwise, or the number of rows is not known."""
    if table.tensor.rank < 2 or table.output_uses or not all(isinstance(d, int) for d in table.tensor.dims):
        return None
    nodes = list(dict.fromkeys(node for node, _ in table.uses))
    for node in nodes:
        if not isinstance(node.op, Gather) or node.op.axis % table.tensor.rank or node.operands[1] is table:
            return None
        if _count(node.operands[1]) is None:
            return None
    return Lookups(tuple(n.output for n in nodes), tuple(n.operands[1] for n in nodes)) if nodes else None


def _count(indices: Value) -> int | None:
    """How many indices there are."""
    count = prod(indices.tensor.dims)
    return count if isinstance(count, int) else None


def write_rows(
    g: GraphBuilder, table: Value, own: Lookups, gradients: Sequence[Value | None]
) -> dict[str, Value] | None:
    """The gradient of a table from those of the look-ups' results.

    Returns:
        `indices` i64[N] and `rows` f32[N, W], one after the other look-up; None where no result has a gradient.
    """
    width = prod(table.tensor.dims[1:])
    pairs = [(index, dy) for index, dy in zip(own.indices, gradients, strict=True) if dy is not None]
    if not pairs:
        return None
    indices = [g.Reshape(g.Cast(index, to=I64), np.array([-1])) for index, _ in pairs]
    rows = [g.Reshape(dy, np.array([_count(index), width])) for index, dy in pairs]
    return {name: parts[0] if len(parts) == 1 else g.Concat(*parts, axis=0)
            for name, parts in (("indices", indices), ("rows", rows))}  # fmt: skip


def split_groups(
    groups: Mapping[str, Mapping[str, tuple[int, ...]]], compact: Collection[str]
) -> dict[str, tuple[str, dict[str, tuple[int, ...]]]]:
    """Groups whose parameters have gradients of one kind: name → the group it was a part of, its parameters.

    A parameter with a compact gradient is a group of its own.
    """
    found: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {}
    for group, members in groups.items():
        dense = {name: shape for name, shape in members.items() if name not in compact}
        if dense:
            found[group] = group, dense
        for i, name in enumerate(name for name in members if name in compact):
            found[f"{group}.compact.{i}"] = group, {name: members[name]}
    return found
