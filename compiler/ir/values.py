"""Values and nodes: what a graph is made of. Know their graph only as the owner that keeps them consistent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InternalError, InvalidModel
from .ops.base import Operator
from .ops.context import KNOWN_LIMIT, InferContext
from .types import TensorType, Type

if TYPE_CHECKING:
    from .graph import Graph


class Value:
    """A tensor in a graph: an input, a constant (`data`) or output `index` of `producer`."""

    __slots__ = ("_known", "data", "graph", "index", "name", "output_uses", "producer", "type", "uses")

    def __init__(self, graph: Graph, name: str, type_: Type, producer: Node | None = None, index: int = 0) -> None:
        self.graph, self.name, self.type, self.producer, self.index = graph, name, type_, producer, index
        self.uses: dict[tuple[Node, int], None] = {}
        """Ordered set of (node, operand index)."""
        self.output_uses = 0
        """How often the graph's outputs name this value."""
        self.data: np.ndarray | None = None
        self._known: np.ndarray | None = None

    @property
    def known(self) -> np.ndarray | None:
        """Content where it is known at compile time: object array of ints and SymDims (bools, floats for constants)."""
        if self._known is None and self.data is not None and self.data.size <= KNOWN_LIMIT:
            self._known = known_content(self.data)
        return self._known

    @known.setter
    def known(self, content: np.ndarray | None) -> None:
        self._known = content

    @property
    def tensor(self) -> TensorType:
        """The type of a value that must be a tensor."""
        if not isinstance(self.type, TensorType):
            raise InvalidModel("a tensor is needed", where=str(self), found=self.type)
        return self.type

    @property
    def is_constant(self) -> bool:
        return self.data is not None

    @property
    def is_input(self) -> bool:
        return self.producer is None and self.data is None

    @property
    def is_used(self) -> bool:
        return bool(self.uses) or self.output_uses > 0

    @property
    def users(self) -> list[Node]:
        """The nodes that use this value, each once, in order of first use."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        return f"%{self.name}"


class Node:
    """One operation. Change operands with `set_input` so that uses stay right."""

    __slots__ = ("_inputs", "bodies", "graph", "name", "next", "op", "outputs", "prev")

    def __init__(self, graph: Graph, op: Operator, name: str) -> None:
        self.graph: Graph | None = graph
        self.op, self.name = op, name
        self._inputs: tuple[Value | None, ...] = ()
        self.outputs: list[Value] = []
        self.bodies: dict[str, Graph] = {}
        self.prev: Node | None = None
        self.next: Node | None = None

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """Operands; None where an optional one is omitted."""
        return self._inputs

    @property
    def operands(self) -> list[Value]:
        """The operands that are given."""
        return [v for v in self._inputs if v is not None]

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def body(self) -> Graph | None:
        """The body called `body` (fused blocks, Loop, Scan)."""
        return self.bodies.get("body")

    @property
    def where(self) -> str:
        """How errors name this node: `Conv "layer1.0.conv1"`."""
        return node_where(self.op, self.name, self.outputs[0].name if self.outputs else "")

    def set_input(self, index: int, value: Value | None) -> None:
        """Replaces one operand. Types are not inferred anew."""
        inputs = list(self._inputs)
        inputs[index] = value
        self.set_inputs(inputs)

    def set_inputs(self, values: Sequence[Value | None]) -> None:
        """Replaces all operands."""
        for i, old in enumerate(self._inputs):
            if old is not None:
                del old.uses[self, i]
        self._inputs = tuple(values)
        for i, value in enumerate(self._inputs):
            if value is not None:
                if value.graph is not self.graph:
                    raise InternalError(f"operand {value} belongs to another graph", where=self.where)
                value.uses[self, i] = None

    def context(self) -> InferContext:
        """What `op.infer`, `op.known` and `Movement.index_map` look at."""
        if self.graph is None:
            raise InternalError("the node was erased", where=self.where)
        return self.graph.context(self)

    def __repr__(self) -> str:
        return f"<{self.where}>"


def known_content(data: np.ndarray) -> np.ndarray | None:
    """The content of a constant as an object array of Python numbers, None for element types that have none."""
    if data.dtype.kind not in "iubf" or not data.dtype.isbuiltin:
        return None
    known = np.empty(data.shape, object)
    if data.size:  # an empty list of lists has lost the axes behind the empty one
        known[...] = data.tolist()
    return known


def node_where(op: Operator, name: str, output: str) -> str:
    """How errors name a node: by its ONNX name, else by its first output."""
    return f'{op.name} "{name}"' if name else f"{op.name} %{output}"
