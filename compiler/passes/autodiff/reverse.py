"""The sweep from what is differentiated back to what it depends on: every gradient of one number, or of a sum.

    received[y] = seed
    for node, last to first, that lies between xs and y:
        received[operand] += gradients_of(node)[operand]

Gradients are nodes behind the others. (Griewank and Walther, "Evaluating Derivatives", 2nd ed., ch. 3.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....errors import UnsupportedOp
from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.backward import Backward, filled
from ...ir.ops.base import Composite
from ...ir.ops.filling import Expand
from ...ir.ops.gathering import ScatterND
from ...ir.ops.interfaces import Interfaces
from ...ir.types import TensorType
from ..block.decompose_composites import expand
from ..rewrite import Rewriter
from .kinds import gradients_of


def gradients(
    graph: Graph, y: Value, xs: Sequence[Value], seed: Value | None = None, before: Node | None = None,
    held: Collection[Value] = (), again: bool = False,
) -> list[Value]:  # fmt: skip
    """dy / dx for each x, of x's shape; zeros where y does not depend on it. As `reached_gradients`."""
    g = GraphBuilder(graph, before=before, name="gradient")
    found = reached_gradients(graph, y, xs, seed, before, held, again)
    return [filled(g, x, 0.0) if dx is None else dx for x, dx in zip(xs, found, strict=True)]


def reached_gradients(
    graph: Graph, y: Value, xs: Sequence[Value], seed: Value | None = None, before: Node | None = None,
    held: Collection[Value] = (), again: bool = False,
) -> list[Value | None]:  # fmt: skip
    """dy / dx for each x, of x's shape; None where y does not depend on it or has slope 0 everywhere.

    Args:
        y: of a float type. xs: of float types; values of the graph, whoever makes them.
        seed: the gradient of y, of y's shape; ones without it: the gradients of the sum of y's elements.
        before: where the new nodes go, behind y; default the end.
        held: values that count as constants, though they may depend on xs.
        again: whether the gradients are differentiated themselves, so that they must be of operators that have some.

    Raises:
        UnsupportedOp: a node between has no gradient, or y or an x is no float; names every operator in the way.
    """
    for v in (y, *xs):
        if not isinstance(v.type, TensorType) or not v.tensor.dtype.is_float:
            raise UnsupportedOp("only floats have gradients", where=str(v), found=v.type)
    held = set(held) - set(xs)
    reached = _depending_on(graph, xs, held)
    leading = [n for n in _leading_to(y) if n in reached]
    new = _expand(graph, leading) | ({} if again else _in_training_form(graph, leading))
    y, xs, held = new.get(y, y), [new.get(x, x) for x in xs], {new.get(v, v) for v in held}
    reached = _depending_on(graph, xs, held)
    between = [n for n in _leading_to(y) if n in reached]
    g, old = GraphBuilder(graph, before=before, name="gradient"), {*graph, *graph.constants}
    received = {y: seed if seed is not None else filled(g, y, 1.0)}
    known = {v for n in reached for v in n.outputs if v not in held} | set(xs)
    refused: dict[str, Node] = {}
    for node in between:
        _pull_back(g, node, received, known, refused)
    if refused:
        raise UnsupportedOp(
            f"no gradient of {', '.join(sorted(refused))}", where=next(iter(refused.values())).where,
            hint="operators between the variables and what is differentiated need one",
        )  # fmt: skip
    results = [received.get(x) for x in xs]
    _drop_unused(graph, old, {dx for dx in results if dx is not None})
    return results


def _drop_unused(graph: Graph, old: set[Node | Value], results: set[Value]) -> None:
    """Take away what rules have written and not needed."""
    for node in reversed(graph):
        if node not in old and not any(v.is_used or v in results for v in node.outputs):
            graph.erase(node)
    for constant in graph.constants:
        if constant not in old and not constant.is_used and constant not in results:
            graph.erase_constant(constant)


def _pull_back(
    g: GraphBuilder, node: Node, received: dict[Value, Value], known: set[Value], refused: dict[str, Node]
) -> None:
    """What a node's results have received, on to its operands."""
    given = [received.get(v) for v in node.outputs]
    wanted = frozenset(i for i, v in enumerate(node.inputs) if v is not None and v in known and _has_slope(v))
    if all(v is None for v in given) or not wanted:
        return
    g.name = f"{node.name}.gradient" if node.name else "gradient"
    found = gradients_of(node, Backward(g, node.inputs, node.outputs, given, wanted, node.context()))
    if found is None:  # on to the operands all the same, so that the error names everything that is in the way
        refused.setdefault(node.op.name, node)
        found = [None if v is None or i not in wanted else filled(g, v, 0.0) for i, v in enumerate(node.inputs)]
    for i, (operand, gradient) in enumerate(zip(node.inputs, found)):
        if i in wanted and operand is not None and gradient is not None:
            before = received.get(operand)
            received[operand] = gradient if before is None else _sum(g, before, gradient)


def _sum(g: GraphBuilder, before: Value, gradient: Value) -> Value:
    """The sum. What is scattered onto zeros (an embedding's gradient) is scattered onto the others: of a table that is
    the weights of a layer, too, nobody fills, reads and adds a second one.
    """
    node = gradient.producer
    if node is not None and isinstance(node.op, ScatterND) and node.op.reduction == "add":
        zeros, indices, rows = node.operands
        content = zeros.producer.operands[0] if zeros.producer is not None else zeros
        made = zeros.producer is None or isinstance(zeros.producer.op, Expand)
        if made and content.data is not None and not content.data.any() and zeros.type == before.type:
            return g.ScatterND(before, indices, rows, reduction="add")
    return g.Add(before, gradient)


def _has_slope(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.tensor.dtype.is_float


def _depending_on(graph: Graph, xs: Sequence[Value], held: Collection[Value]) -> set[Node]:
    """The nodes that xs flow into, directly or through others, but not through what is held."""
    flows, nodes = set(xs), set()
    for node in graph:
        if any(v in flows for v in node.operands):
            nodes.add(node)
            flows.update(v for v in node.outputs if v not in held)
    return nodes


def _leading_to(y: Value) -> list[Node]:
    """The nodes that y needs, last to first."""
    needed, nodes = {y}, []
    node = y.producer
    while node is not None:
        if any(v in needed for v in node.outputs):
            nodes.append(node)
            needed.update(node.operands)
        node = node.prev
    return nodes


def _expand(graph: Graph, nodes: Sequence[Node]) -> dict[Value, Value]:
    """Put what composite operators stand for in their places, unless they declare a gradient; old values → new."""
    pending = [n for n in nodes if _is_expanded(n)]
    replaced: dict[Value, Value] = {}
    rw = Rewriter(graph)
    while pending:
        node = pending.pop()
        outputs = list(node.outputs)
        values, made = expand(rw, node)
        replaced.update(zip(outputs, values))
        pending += filter(_is_expanded, made)
    return {old: _last(replaced, old) for old in replaced}


def _in_training_form(graph: Graph, nodes: Sequence[Node]) -> dict[Value, Value]:
    """Let the nodes that are still there keep what their gradients read; old values → new."""
    replaced: dict[Value, Value] = {}
    for node in nodes:
        if node.graph is not graph or (form := node.op.training_form(node.context())) is None:
            continue
        outputs = list(node.outputs)
        new = graph.add_node(form, node.inputs, before=node, name=node.name, n_outputs=form.signature.max_outputs)
        Rewriter(graph).replace(node, new.outputs)
        replaced.update(zip(outputs, new.outputs))
    return replaced


def _last(replaced: dict[Value, Value], v: Value) -> Value:
    while v in replaced:
        v = replaced[v]
    return v


def _is_expanded(node: Node) -> bool:
    return isinstance(node.op, Composite) and type(node.op).gradient is Interfaces.gradient
