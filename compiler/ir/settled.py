"""Symbols of a graph that turn out to be numbers or other sizes: they are replaced wherever they stand.

Owns where sizes stand: types, known contents and constraints, in bodies, too. Operators' attributes name only symbols
of what their own results have; those are not for this.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .dim import Dim, SymDim, substitute, symbols_of
from .graph import Graph, nested_graphs
from .types import TensorType
from .values import Value


def settle_symbols(graph: Graph, sizes: Mapping[str, Dim]) -> None:
    """Puts `sizes` in the place of symbols, in the graph and all of its bodies.

    Constraints that hold then are dropped; the caller answers for that they do.
    """
    if not sizes:
        return
    for nested in nested_graphs(graph):
        for value in nested.values():
            _settle(value, sizes)
        pairs = [((substitute(a, sizes), substitute(b, sizes)), where) for (a, b), where in nested.constraints.items()]
        nested.constraints.clear()
        for (a, b), where in pairs:
            if a != b:
                nested.add_constraint(a, b, where)


def _settle(value: Value, sizes: Mapping[str, Dim]) -> None:
    t = value.type
    if isinstance(t, TensorType) and t.shape is not None and symbols_of(t.shape) & sizes.keys():
        value.type = t.substitute(sizes)
    if value.data is not None or value.known is None:
        return
    content = value.known
    if any(isinstance(item, SymDim) and item.symbols() & sizes.keys() for item in content.flat):
        settled = np.empty(content.shape, object)
        for at, item in np.ndenumerate(content):
            settled[at] = substitute(item, sizes)
        value.known = settled


__all__ = ["settle_symbols"]
