"""The typed SSA graph: nodes in a linked list, values with tracked uses. Knows operators only through their base class.

Invariants: a value has one producer (or is an input or a constant); `value.uses` lists exactly the operands that name
it; names of values are unique in their graph. Nothing here recurses over the length of a graph, only into bodies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from ...errors import InternalError, InvalidModel
from .builder import GraphBuilder
from .dim import bounds_up_to
from .inference import check_operands, infer_with
from .ops.base import Composite, Control, Operator
from .ops.context import KNOWN_LIMIT, InferContext
from .states import State
from .types import DType, SymDim, TensorType, Type
from .values import Node, Value, node_where

__all__ = ["Graph", "GraphBuilder", "Node", "Value", "nested_graphs"]

SMALL_SIZE = 16
"""Arithmetic on sizes that overflows for symbols up to this is left to the run."""


class Graph:
    """Inputs, constants, nodes in order and outputs. Iterating gives the nodes; erasing them meanwhile is fine."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.scope = ""
        """Prefix of the symbols made for data-dependent sizes; set where a graph stands for a part of another."""
        self.constraints: dict[tuple[Any, Any], str] = {}
        """Pairs of dims that must be equal at run time -> where this is needed."""
        self.positive: set[str] = set()
        """Symbols of which something was decided that does not hold at 0: see `dim.noting_positive`."""
        self.defaults: dict[str, np.ndarray] = {}
        """Name of an input -> its content where a request does not give it."""
        self.fixed: tuple[str, ...] = ()
        """What the model calls inputs, but are constants here."""
        self.donated: dict[str, str] = {}
        """Name of an output -> of the input whose memory it may be given, to be overwritten."""
        self.states: tuple[State, ...] = ()
        """Pairs of an input and an output that are one memory, which the runtime keeps between calls."""
        self.lent: frozenset[str] = frozenset()
        """Names of outputs whose memory may hold other values until they are written."""
        self.spent = False
        """Whether lowering has taken the content of large constants away."""
        self.output_names: list[str] = []
        """What the outputs are called from outside, one per output; the values' own names may change."""
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._places: dict[Value, list[int]] | None = None
        self._values: dict[str, Value] = {}
        self._constants: dict[Value, None] = {}
        self._first: Node | None = None
        self._last: Node | None = None
        self._n_nodes = 0
        self._next_number = 1

    # Reading

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(self._outputs)

    @property
    def constants(self) -> tuple[Value, ...]:
        """Constant values, in order of creation."""
        return tuple(self._constants)

    @property
    def first(self) -> Node | None:
        return self._first

    @property
    def last(self) -> Node | None:
        return self._last

    def __len__(self) -> int:
        return self._n_nodes

    def __iter__(self) -> Iterator[Node]:
        node = self._first
        while node is not None:
            yield node
            node = node.next  # an erased node keeps its `next`, which leads back to a living one
            while node is not None and node.graph is not self:
                node = node.next

    def __reversed__(self) -> Iterator[Node]:
        node = self._last
        while node is not None:
            yield node
            node = node.prev
            while node is not None and node.graph is not self:
                node = node.prev

    def nodes_in_order(self) -> list[Node]:
        """The nodes as a list, safe against any change while it is walked."""
        return list(self)

    def value(self, name: str) -> Value:
        """The value called `name`. Raises KeyError if there is none."""
        return self._values[name]

    def has_value(self, name: str) -> bool:
        return name in self._values

    def values(self) -> list[Value]:
        """Every value: inputs, constants and results of nodes."""
        return list(self._values.values())

    # Building

    def add_input(self, name: str, type_: Type) -> Value:
        """Appends an input. The name must be free."""
        if name in self._values:
            raise InvalidModel(f"two values are called {name!r}", where=f"graph {self.name}")
        value = self._new_value(name, type_)
        self._inputs.append(value)
        return value

    def add_constant(self, array: Any, name: str | None = None) -> Value:
        """A value with fixed content; the array is shared, not copied, and must not be changed afterwards."""
        array = np.asarray(array).view()
        array.flags.writeable = False
        value = self._new_value(name, TensorType(DType.from_numpy(array.dtype), array.shape))
        value.data = array
        self._constants[value] = None
        return value

    def add_node(
        self,
        op: Operator,
        inputs: Sequence[Value | None],
        names: Sequence[str | None] | None = None,
        *,
        name: str = "",
        before: Node | None = None,
        after: Node | None = None,
        types: Sequence[Type] | None = None,
        n_outputs: int | None = None,
        bodies: Mapping[str, Graph] | None = None,
    ) -> Node:
        """Appends a node (or puts it before / after another one) and infers its types unless `types` are given.

        `names`: names of the outputs, None or "" for a number; taken names get a suffix. The number of outputs is
        that of `names`, else of `types`, else `n_outputs`, else the operator's required ones. `name`: the ONNX node's.
        Raises InvalidModel that names the node if operands, attributes or shapes break the operator's rules.
        """
        count = next((len(x) for x in (names, types) if x is not None), n_outputs)
        count = max(1, op.signature.min_outputs) if count is None else count
        output_names = self._free_names(names, count)
        where = node_where(op, name, output_names[0])
        inputs = _without_trailing_none(inputs)
        bodies = dict(bodies or {})
        check_operands(op, inputs, count, bodies, where)
        ctx = InferContext(where, inputs, count, bodies, _expand, self.scope + output_names[0])
        if types is None:
            types = infer_with(op, ctx)
        node = Node(self, op, name)
        node.bodies = bodies
        node.set_inputs(inputs)
        node.outputs = [
            self._new_value(n, t, node, i) for i, (n, t) in enumerate(zip(output_names, types, strict=True))
        ]
        self._set_known(node, ctx)
        for a, b, reason in ctx.constraints:
            self.add_constraint(a, b, reason)
        self._link(node, before, after)
        return node

    def context(self, node: Node) -> InferContext:
        """What the operator of `node` may look at."""
        scope = self.scope + node.outputs[0].name
        return InferContext(node.where, node.inputs, len(node.outputs), node.bodies, _expand, scope)

    def set_outputs(self, values: Sequence[Value], names: Sequence[str] | None = None) -> None:
        """Replaces all outputs; names default to the values' own."""
        for old in self._outputs:
            old.output_uses -= 1
        self._outputs, self._places = list(values), None
        for value in self._outputs:
            if value.graph is not self:
                raise InternalError(f"output {value} belongs to another graph", where=f"graph {self.name}")
            value.output_uses += 1
        self.output_names = list(names) if names is not None else [v.name for v in values]

    def _replace_output(self, old: Value, new: Value) -> None:
        """Graphs of thousands of outputs have thousands replaced: only those of `old` are looked at."""
        places = self._output_places()
        moved = places.pop(old)
        for i in moved:
            self._outputs[i] = new
        places.setdefault(new, []).extend(moved)
        new.output_uses += len(moved)
        old.output_uses = 0

    def _output_places(self) -> dict[Value, list[int]]:
        """Where each value stands among the outputs; made when it is first asked for."""
        if self._places is None:
            self._places = {}
            for i, value in enumerate(self._outputs):
                self._places.setdefault(value, []).append(i)
        return self._places

    def add_constraint(self, a: Any, b: Any, where: str) -> None:
        """Records that two dims must be equal at run time."""
        if (b, a) not in self.constraints:
            self.constraints.setdefault((a, b), where)

    # Changing

    def replace_all_uses_with(self, old: Value, new: Value) -> None:
        """Lets every use of `old`, graph outputs included, use `new`."""
        if old is new:
            return
        if new.graph is not self:
            raise InternalError(f"{new} belongs to another graph", where=f"graph {self.name}")
        for node, i in list(old.uses):
            node.set_input(i, new)
        if old.output_uses:
            self._replace_output(old, new)

    def erase(self, node: Node) -> None:
        """Removes a node. Raises InternalError if one of its outputs is used."""
        for value in node.outputs:
            if value.is_used:
                raise InternalError(f"cannot erase a node while {value} is used", where=node.where)
        node.set_inputs(())
        self._unlink(node)
        for value in node.outputs:
            del self._values[value.name]
        node.graph = None
        self._n_nodes -= 1

    def erase_constant(self, value: Value) -> None:
        """Removes a constant. Raises InternalError if it is used."""
        self._refuse_used(value)
        del self._constants[value]
        del self._values[value.name]

    def erase_input(self, value: Value) -> None:
        """Removes an input. Raises InternalError if it is used."""
        self._refuse_used(value)
        self._inputs.remove(value)
        del self._values[value.name]

    def move(self, node: Node, before: Node | None = None, after: Node | None = None) -> None:
        """Moves a node before or after another one (to the end if neither is given)."""
        if node is before or node is after:
            return
        self._unlink(node)
        self._n_nodes -= 1
        self._link(node, before, after)

    def rename(self, value: Value, name: str) -> None:
        """Renames a value; raises InternalError if the name is taken."""
        if value.name == name:
            return
        if name in self._values:
            raise InternalError(f"the name {name!r} is taken", where=f"graph {self.name}")
        del self._values[value.name]
        self._values[name] = value
        value.name = name

    def inline(
        self, source: Graph, arguments: Sequence[Value | None], before: Node | None = None, after: Node | None = None
    ) -> list[Value]:
        """Copies the nodes of `source` in here, its inputs replaced by `arguments`; returns its outputs' copies."""
        mapping: dict[Value, Value | None] = dict(zip(source.inputs, arguments, strict=True))
        self._copy(source, mapping, before, after)
        outputs = [mapping[v] for v in source.outputs]
        return [v for v in outputs if v is not None]

    def clone(self, mapping: dict[Value, Value | None] | None = None) -> Graph:
        """A copy with the same names; constants share their arrays. `mapping` is filled with old -> new values."""
        mapping = {} if mapping is None else mapping
        copy = Graph(self.name)
        copy.scope, copy.positive = self.scope, set(self.positive)
        copy.defaults, copy.fixed, copy.donated = dict(self.defaults), self.fixed, dict(self.donated)
        copy.lent, copy.states = self.lent, self.states
        for value in self._inputs:
            mapping[value] = new = copy.add_input(value.name, value.type)
            new.known = value._known
        copy._copy(self, mapping, None, None)
        outputs = [mapping[v] for v in self._outputs]
        copy.set_outputs([v for v in outputs if v is not None], self.output_names)
        return copy

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self._inputs)} inputs, {self._n_nodes} nodes, {len(self._outputs)} outputs>"

    # Inside

    def _new_value(self, name: str | None, type_: Type, producer: Node | None = None, index: int = 0) -> Value:
        name = self._free_name(name)
        value = self._values[name] = Value(self, name, type_, producer, index)
        return value

    def _free_names(self, names: Sequence[str | None] | None, count: int) -> list[str]:
        taken: list[str] = []
        for name in [*(names or ()), *[None] * (count - len(names or ()))]:
            taken.append(self._free_name(name, taken))
        return taken

    def _free_name(self, name: str | None, also_taken: Sequence[str] = ()) -> str:
        if not name:
            while str(self._next_number) in self._values or str(self._next_number) in also_taken:
                self._next_number += 1
            self._next_number += 1
            return str(self._next_number - 1)
        free, suffix = name, 0
        while free in self._values or free in also_taken:
            suffix += 1
            free = f"{name}_{suffix}"
        return free

    def _link(self, node: Node, before: Node | None, after: Node | None) -> None:
        prev = after if after is not None else before.prev if before is not None else self._last
        if after is not None:
            before = after.next
        node.prev, node.next = prev, before
        if prev is None:
            self._first = node
        else:
            prev.next = node
        if before is None:
            self._last = node
        else:
            before.prev = node
        self._n_nodes += 1

    def _unlink(self, node: Node) -> None:
        if node.graph is not self:
            raise InternalError("the node belongs to another graph", where=node.where)
        if node.prev is None:
            self._first = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self._last = node.prev
        else:
            node.next.prev = node.prev

    def _refuse_used(self, value: Value) -> None:
        if value.is_used:
            raise InternalError(f"cannot erase {value} while it is used", where=f"graph {self.name}")

    def _set_known(self, node: Node, ctx: InferContext) -> None:
        if type(node.op).known is Operator.known:
            return
        found = node.op.known(ctx)
        contents = found if isinstance(found, list) else [found]
        for value, content in zip(node.outputs, contents, strict=False):
            if content is None or content.size > KNOWN_LIMIT or not _fits(value.type, content):
                continue
            if isinstance(value.type, TensorType) and value.type.shape != content.shape:
                raise InternalError("known content has another shape than the tensor", where=node.where)
            value.known = content
            if isinstance(value.type, TensorType) and value.type.dtype.is_int:
                ctx.hold(content, value.type.dtype)

    def _copy(self, source: Graph, mapping: dict[Value, Value | None], before: Node | None, after: Node | None) -> None:
        for constant in source._constants:
            new = self.add_constant(constant.data, constant.name)
            new.type = constant.type
            mapping[constant] = new
        for node in source:
            copied = Node(self, node.op, node.name)
            copied.bodies = {name: body.clone() for name, body in node.bodies.items()}
            copied.set_inputs([None if v is None else mapping[v] for v in node.inputs])
            for value in node.outputs:
                name = None if value.name.isdigit() and value.name in self._values else value.name
                new = self._new_value(name, value.type, copied, value.index)
                new.known = value._known
                mapping[value] = new
                copied.outputs.append(new)
            self._link(copied, before, after)
            after = copied if after is not None else None
        for (a, b), where in source.constraints.items():
            self.add_constraint(a, b, where)


def _fits(t: Type, content: np.ndarray) -> bool:
    """Whether numbers keep within their type: `known` neither wraps around nor rounds as run-time arithmetic does.

    Of symbols only the largest sizes may break it, and the run refuses those (`InferContext.hold`).
    """
    if not isinstance(t, TensorType):
        return True
    if t.dtype.is_int and not all(t.dtype.holds(item) for item in content.flat if isinstance(item, int)):
        return False
    return all(_holds_small(t.dtype, item) for item in content.flat if isinstance(item, SymDim))


def _holds_small(dtype: DType, dim: SymDim) -> bool:
    """Whether the type holds `dim` where symbols are small, as far as can be told: a model that counts on more than
    that wants it to wrap around or to round."""
    low, high = bounds_up_to(dim, SMALL_SIZE)
    least, most = dtype.whole_range
    return (low >= least or low == -inf) and (high <= most or high == inf)


def nested_graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and the bodies of its control-flow operators, to any depth, outer ones first."""
    pending = deque([graph])
    while pending:
        current = pending.popleft()
        yield current
        pending.extend(body for node in current if isinstance(node.op, Control) for body in node.bodies.values())


def _expand(op: Composite, ctx: InferContext) -> list[Value]:
    """Expands a composite operator in a scratch graph and hands its constraints to the node."""
    scratch = Graph("expansion")
    scratch.scope = ctx.scope + "."
    arguments: list[Value | None] = []
    for i, type_ in enumerate(ctx.types):
        data = ctx.data(i)
        if type_ is None:
            arguments.append(None)
        elif data is not None:
            arguments.append(scratch.add_constant(data, f"c{i}"))
        else:
            value = scratch.add_input(f"x{i}", type_)
            value.known = ctx.known(i)
            arguments.append(value)
    result = op.expand(GraphBuilder(scratch, name=ctx.where), *arguments)
    ctx.constraints += [(a, b, where) for (a, b), where in scratch.constraints.items()]
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _without_trailing_none(inputs: Iterable[Value | None]) -> list[Value | None]:
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept
