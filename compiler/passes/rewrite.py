"""The only way a pass changes a graph: insertions, replacements and removals that keep it consistent.

Owns the record of refused matches. Knows the IR; knows no pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InternalError
from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Node, Value
from ..ir.types import TensorType


class Rewriter:
    """Changes one graph and remembers why matches were refused."""

    MAX_MISSES = 200

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.misses: list[str] = []

    def no_match(self, reason: str, at: Node | Value | None = None) -> bool:
        """Record why a rewrite was refused; returns False so that `return rw.no_match(...)` reads well."""
        if len(self.misses) < self.MAX_MISSES:
            place = at.where if isinstance(at, Node) else str(at) if at is not None else ""
            self.misses.append(f"{place}: {reason}" if place else reason)
        return False

    def before(self, node: Node, name: str | None = None) -> GraphBuilder:
        """A builder that inserts nodes in front of `node`, which they are named after."""
        return GraphBuilder(self.graph, before=node, name=node.name if name is None else name)

    def replace(self, node: Node, values: Value | Sequence[Value]) -> None:
        """Let `values` take the place of the node's outputs, in order, and remove the node.

        Raises:
            InternalError: a value has another element type, rank or known size than what it replaces.
        """
        new = [values] if isinstance(values, Value) else list(values)
        for old, value in zip(node.outputs, new):
            if not _is_alike(old, value):
                raise InternalError("a rewrite changes a result's type", where=node.where, expected=old.type,
                                    found=value.type)  # fmt: skip
            if value.name.isdigit() and not old.name.isdigit() and value.producer is not None:
                name = old.name  # the result keeps the name a reader knows
                self.graph.rename(old, f"{name}.replaced")
                self.graph.rename(value, name)
            self.graph.replace_all_uses_with(old, value)
        self.graph.erase(node)

    def replace_op(self, node: Node, op: Any, inputs: Sequence[Value | None]) -> Node:
        """Put a node with another operator or other inputs in the node's place; returns the new node."""
        new = self.graph.add_node(op, inputs, before=node, name=node.name, n_outputs=len(node.outputs))
        self.replace(node, new.outputs)
        return new

    def erase(self, node: Node) -> None:
        """Remove a node whose outputs nobody uses."""
        self.graph.erase(node)


def _is_alike(old: Value, value: Value) -> bool:
    """Whether readers of one may read the other: symbolic sizes may be said in several ways, and shapes be unknown."""
    a, b = old.type, value.type
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return True
    if a.shape is None or b.shape is None:
        return a.dtype == b.dtype
    sizes = zip(a.shape, b.shape)
    differ = any(isinstance(m, int) and isinstance(n, int) and m != n for m, n in sizes)
    return a.dtype == b.dtype and len(a.shape) == len(b.shape) and not differ
