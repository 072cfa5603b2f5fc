"""Which integer inputs are row numbers of a constant table, and how many rows it has.

Random inputs for a model with embeddings must stay inside them. Reads the ONNX graph only, by a short walk forward
from each input; an input whose use is not understood has no bound.
"""

from __future__ import annotations

from collections import defaultdict

from onnx import NodeProto, TensorProto

from .limits import Limits
from .parse import Source, read_model

_INTEGERS = {TensorProto.INT32, TensorProto.INT64}
_SAME_VALUES = {
    "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip


def index_bounds(source: Source) -> dict[str, int]:
    """Input name → the length of the shortest constant axis that the input indexes (through Gather)."""
    model = read_model(source, Limits()).model
    tables = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    users: dict[str, list[NodeProto]] = defaultdict(list)
    for node in model.graph.node:
        for name in dict.fromkeys(node.input):
            users[name].append(node)
    bounds = {}
    for value in model.graph.input:
        if value.name not in tables and value.type.tensor_type.elem_type in _INTEGERS:
            lengths = _lengths(value.name, users, tables)
            if lengths:
                bounds[value.name] = min(lengths)
    return bounds


def _lengths(start: str, users: dict[str, list[NodeProto]], tables: dict[str, tuple[int, ...]]) -> list[int]:
    lengths, seen, front = [], {start}, [start]
    while front:
        name = front.pop()
        for node in users[name]:
            if node.op_type == "Gather" and len(node.input) == 2 and node.input[1] == name and node.input[0] in tables:
                shape = tables[node.input[0]]
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                if -len(shape) <= axis < len(shape):
                    lengths.append(shape[axis])
            elif node.op_type in _SAME_VALUES and node.input[0] == name:
                fresh = [output for output in node.output if output not in seen]
                seen.update(fresh)
                front.extend(fresh)
    return lengths
