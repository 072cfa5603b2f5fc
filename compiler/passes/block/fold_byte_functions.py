"""Functions of one byte that give a byte are looked up in a table of all 256 results.

Owns which element-wise operators between two quantised tensors are one function of a byte: a GELU of a quantised model
is a dozen of them, with roundings between. The table is computed as kernels would, by the kernel IR's interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Effort, Elementwise, Movement
from ...ir.ops.byte_tables import ENTRIES
from ...ir.ops.quantization import RoundTo
from ...ir.ops.shape import Transpose
from ...ir.types import BF16, F16, I8, U8, Shape, SymDim
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.interpreter import Pointer, interpret
from ...kernel_ir.loops import PtrType
from ..base import BlockPass
from ..rewrite import Rewriter

BYTES = (U8, I8)
MOST_NODES = 64


@dataclass(frozen=True)
class FoldByteFunctions(BlockPass):
    """Look up what element-wise operators, a costly function among them, make of one byte.

    before: %1 = Mul(Cast(%q), 0.1); %2 = Erf(%1); %y = parax::RoundTo(Div(%2, 0.05), %z)
    after:  %y = parax::ByteTable(%q, %table)

    Attributes:
        least_nelements: of a tensor that is worth a kernel of its own.
    """

    least_nelements: int = 4096

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in reversed(graph.nodes_in_order()):
            if node.graph is graph and isinstance(node.op, RoundTo) and node.output.tensor.dtype in BYTES:
                changed |= self._folded(node, rw)
        return changed

    def _folded(self, node: Node, rw: Rewriter) -> bool:
        count = node.output.tensor.numel
        if not isinstance(count, SymDim) and count < self.least_nelements:
            return rw.no_match("too few elements for a kernel of their own", node)
        found = _function_of_a_byte(node)
        if found is None:
            return rw.no_match("no costly function of one byte", node)
        nodes, q = found
        g = rw.before(node)
        y = g.ByteTable(q, _table(nodes, q))
        for view in nodes:
            y = g.add(view.op, [y, *view.inputs[1:]]) if _is_view(view) else y
        rw.replace(node, y)
        for dead in reversed(nodes):
            if dead is not node:
                rw.erase(dead)
        return True


def _function_of_a_byte(node: Node) -> tuple[list[Node], Value] | None:
    """The most operators before a rounding that compute it from one tensor of bytes alone, and that tensor."""
    graph = node.graph
    assert graph is not None
    order = {n: i for i, n in enumerate(graph)}
    inside: set[Node] = set()
    frontier = {node.output}
    found: tuple[list[Node], Value] | None = None
    while len(inside) < MOST_NODES:
        ready = [v.producer for v in frontier if v.producer is not None]
        if len(ready) < len(frontier):
            break  # an input of the graph
        last = max(ready, key=order.__getitem__)
        shape = next((n.operands[0].tensor.dims for n in inside if _is_view(n)), node.output.tensor.dims)
        if not _is_taken(last, node, inside, shape):
            break
        inside.add(last)
        frontier.discard(last.output)
        frontier.update(v for v in last.operands[: 1 if _is_view(last) else None] if not _is_number(v))
        alone = next(iter(frontier)) if len(frontier) == 1 else None
        costly = any(isinstance(n.op, Elementwise) and n.op.effort == Effort.FUNCTION for n in inside)
        if costly and alone is not None and alone.tensor.dtype in BYTES:
            found = sorted(inside, key=order.__getitem__), alone
    return found


def _is_taken(n: Node, root: Node, inside: set[Node], shape: Shape) -> bool:
    """Whether an operator is element-wise, or the first view, and nothing outside reads its result of that shape."""
    if not isinstance(n.op, Elementwise) and (not _is_view(n) or any(map(_is_view, inside))):
        return False
    if len(n.outputs) != 1 or n.output.tensor.dtype in (F16, BF16) or n.output.tensor.dims != shape:
        return False
    if n is not root and (n.output.output_uses or any(user not in inside for user in n.output.users)):
        return False
    return all(v is not None for v in n.inputs)


def _is_view(n: Node) -> bool:
    """Whether it gives its first operand's elements in their order, as another known shape."""
    moves = isinstance(n.op, Movement) and not isinstance(n.op, Transpose) and n.op.is_view and len(n.outputs) == 1
    return moves and n.operands[0].tensor.dims != n.output.tensor.dims and all(v.is_constant for v in n.operands[1:])


def _is_number(v: Value) -> bool:
    return v.data is not None and v.producer is None and v.data.size == 1


def _number(k: Builder, v: Value) -> KValue:
    assert v.data is not None
    return k.const(v.data.reshape(-1)[0].item(), v.tensor.dtype)


def _table(nodes: list[Node], q: Value) -> np.ndarray:
    """What the operators make of the bytes 0 to 255, taken for numbers of q's type."""
    result = nodes[-1].output
    k = Builder("byte_function", [("x", PtrType(q.tensor.dtype)), ("y", PtrType(result.tensor.dtype))])
    values = {q: k.load(k["x"], 0, ENTRIES)}
    for node in nodes:
        if not isinstance(node.op, Elementwise):
            values[node.output] = values[node.operands[0]]
            continue
        given = [values[v] if v in values else _number(k, v) for v in node.operands]
        with k.rounding():
            values[node.output] = node.op.compute(k, *given)
    k.store(k["y"], 0, k.splat(values[result], ENTRIES))
    bits, table = np.arange(ENTRIES, dtype=np.uint8), np.zeros(ENTRIES, np.uint8)
    interpret(k.func, [Pointer(bits), Pointer(table)])
    return table if result.tensor.dtype == U8 else table.view(np.int8)


__all__ = ["FoldByteFunctions"]
