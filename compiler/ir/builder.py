"""Builds nodes by operator name: `g.Conv(x, w, pads=[1, 1, 1, 1])`. Knows the catalogue, not what operators mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InternalError
from .ops.base import CATALOGUE, Operator, lookup
from .types import DType, TensorType

if TYPE_CHECKING:
    from .graph import Graph, Node, Value


class GraphBuilder:
    """Adds nodes to `graph` at one place: the end, or before / after a node. Every node gets the ONNX name `name`."""

    def __init__(self, graph: Graph, *, before: Node | None = None, after: Node | None = None, name: str = "") -> None:
        self.graph, self.before, self.after, self.name = graph, before, after, name

    def __getattr__(self, op_name: str) -> Callable[..., Any]:
        """`g.OpName(*inputs, **attributes)`: the catalogue's operator of that name (parax's own domain first)."""
        if op_name.startswith("_"):
            raise AttributeError(op_name)
        cls = CATALOGUE.get(("parax", op_name)) or lookup("", op_name)

        def build(*inputs: Any, n_outputs: int | None = None, **attributes: Any) -> Any:
            return self.add(cls.from_attributes(attributes, self.name), inputs, n_outputs=n_outputs)

        return build

    def add(self, op: Operator, inputs: Sequence[Any], *, n_outputs: int | None = None, **more: Any) -> Any:
        """Adds a node with the operator instance `op`; returns its output, or the list of outputs if several.

        Inputs are Values, None, arrays and lists (made constants), or Python numbers, which become scalar constants
        of the element type of another input with the same type variable. `more` goes to `Graph.add_node`.
        """
        more.setdefault("name", self.name)
        operands = [self._operand(op, i, x, inputs) for i, x in enumerate(inputs)]
        node = self.graph.add_node(op, operands, before=self.before, after=self.after, n_outputs=n_outputs, **more)
        if self.after is not None:
            self.after = node
        return node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)

    def const(self, array: Any, dtype: DType | None = None, name: str | None = None) -> Value:
        """A constant. Without `dtype`, Python ints become i64 and floats f32; arrays keep their type."""
        if dtype is not None:
            array = np.asarray(array, dtype.numpy)
        elif not isinstance(array, (np.ndarray, np.generic)):
            array = np.asarray(array)
            array = array.astype({"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype))
            array = array.astype(np.int64) if array.size == 0 else array
        return self.graph.add_constant(array, name)

    def _operand(self, op: Operator, index: int, x: Any, inputs: Sequence[Any]) -> Value | None:
        if x is None or hasattr(x, "producer"):
            return x
        if isinstance(x, (bool, int, float)):
            return self.const(x, self._dtype_like(op, index, inputs))
        return self.const(x)

    def _dtype_like(self, op: Operator, index: int, inputs: Sequence[Any]) -> DType:
        group = op.signature.input_spec(index).group
        for i, other in enumerate(inputs):
            if op.signature.input_spec(i).group is group and isinstance(getattr(other, "type", None), TensorType):
                return other.type.dtype
        raise InternalError(f"no element type for the number at input {index}", where=op.name, hint="pass an array")
