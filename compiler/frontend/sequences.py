"""ONNX's operators of sequences and optionals, on those whose length is known: done while importing.

before: s = SplitToSequence(x, sizes); y = SequenceAt(s, 1)      after: _, y = Split(x, sizes)

What a sequence is made of are values of the graph; only taking tensors apart and joining them leaves nodes. What only a
request knows (an input of the graph, a sequence whose length the data decide) is left to `host_sequences`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto
from onnx.helper import make_node

from ...errors import InvalidModel, UnsupportedOp
from ..ir.graph import Value
from ..ir.types import DType, OptionalType, SymDim, TensorType
from .attributes import attribute_value
from .frames import Binding, Frame, Unsupported, Written, node_where
from .host_sequences import at_run_time, is_of_a_run, map_as_loop, optional_type
from .importing import Importing
from .inlined import inline_body, inline_nodes, is_usable, known_number
from .structures import Item, KnownOptional, KnownSequence, described, dtype_of, is_structure

Results = list[Item] | None
_FLOAT = 1
"""The element type of a SequenceEmpty that names none."""


def is_of_sequences(domain: str, name: str, inputs: Sequence[Binding] = ()) -> bool:
    """Whether the operator, or this use of it, is of sequences or optionals."""
    return domain == "" and (name in OPERATORS or (name == "Identity" and any(map(is_structure, inputs))))


def import_of_sequences(
    importer: Importing, frame: Frame, node: NodeProto, inputs: Sequence[Binding], protos: Mapping[str, AttributeProto]
) -> None:
    """Imports a node for which `is_of_sequences` holds; its outputs are defined now, or once nodes are written out."""
    use = _Use(importer, frame, node, inputs, protos)
    try:
        try:
            results = OPERATORS.get(node.op_type, _identity)(use)
        except UnsupportedOp:
            if node.op_type == "SequenceMap":
                raise
            results = at_run_time(frame.graph, node.op_type, use.items(), use.attributes, node.name, use.where)
    except UnsupportedOp as error:
        importer.refuse(frame, node, Written("", node.op_type, frame.opsets[""], use.where), error.message)
    except InvalidModel as error:
        importer.misfit(error)
    else:
        if results is not None:
            importer.define_outputs(frame, node, results)


class _Use:
    """One node: its operands and attributes, with the checks that its operators share."""

    def __init__(self, importer: Importing, frame: Frame, node: NodeProto, inputs: Sequence[Binding],
                 protos: Mapping[str, AttributeProto]) -> None:  # fmt: skip
        self.importer, self.frame, self.node, self.inputs = importer, frame, node, inputs
        self.where = node_where(node)
        self.attributes = {name: attribute_value(p, importer.tensors, self.where) for name, p in protos.items()}

    def fail(self, message: str, expected: object = None, found: object = None) -> InvalidModel:
        return InvalidModel(message, where=self.where, expected=expected, found=found)

    def get(self, index: int) -> Binding:
        return self.inputs[index] if index < len(self.inputs) else None

    def items(self) -> list[Item | None]:
        """The operands; nodes whose operands parax lacks do not come here."""
        return [item for item in self.inputs if not isinstance(item, Unsupported)]

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.attributes.get(name, default)
        if type(value) is not int:
            raise self.fail(f"attribute {name} has the wrong type", expected="an integer", found=value)
        return value

    def flag(self, name: str, default: int) -> bool:
        value = self.integer(name, default)
        if value not in (0, 1):
            raise self.fail(f"attribute {name} must be 0 or 1", found=value)
        return value == 1

    def tensor(self, index: int) -> Value:
        value = self.get(index)
        if is_of_a_run(value) and self.node.op_type == "SequenceConstruct":
            raise UnsupportedOp("its elements are known only at run time", where=self.where)
        if not isinstance(value, Value) or not isinstance(value.type, TensorType):
            raise self.fail(f"input {index} must be a tensor", found=described(value))
        return value

    def sequence(self, index: int = 0) -> KnownSequence:
        value = self.get(index)
        if isinstance(value, Value) and not isinstance(value.type, TensorType):
            raise UnsupportedOp("its sequence is known only at run time", where=self.where)
        if not isinstance(value, KnownSequence):
            raise self.fail(f"input {index} must be a sequence", found=described(value))
        return value

    def position(self, index: int, default: int, least: int, most: int) -> int | None:
        """Operand `index`, counted from the front; `default` if it is omitted, None if only a run knows it."""
        if self.get(index) is None:
            found: int | None = default
        else:
            dtype, dims = self.tensor(index).tensor.dtype, self.tensor(index).type.shape  # type: ignore[union-attr]
            if str(dtype) not in ("i32", "i64") or (dims is not None and any(d != 1 for d in dims)):
                raise self.fail("the position must be one integer", "i32 or i64", described(self.get(index)))
            found = known_number(self.get(index))
        if found is not None and not least <= found <= most:
            raise self.fail("the position is outside of the sequence", f"{least} to {most}", found)
        return found

    def inline(self, nodes: Sequence[NodeProto], given: Mapping[str, Value | np.ndarray], results: Sequence[str],
               of: Callable[[list[Value]], list[Item]] = list) -> None:  # fmt: skip
        """Writes nodes out; the outputs become what `of` makes of the results."""

        def finish(values: Sequence[Binding]) -> None:
            if is_usable(values):
                made = of([value for value in values if isinstance(value, Value)])
                self.importer.define_outputs(self.frame, self.node, made)
            else:
                self.importer.poison(self.frame, self.node)

        inline_nodes(self.importer, self.frame, self.node, nodes, given, results, finish)


def _construct(use: _Use) -> Results:
    elements = tuple(use.tensor(i) for i in range(len(use.inputs)))
    return [_checked(use, elements, dtype_of(elements[0]))]


def _empty(use: _Use) -> Results:
    return [KnownSequence((), DType.from_code(use.integer("dtype", _FLOAT)))]


def _insert(use: _Use) -> Results:
    """The position as Python counts it: what is at it, and all behind, moves on."""
    sequence, tensor = use.sequence(), use.tensor(1)
    size = len(sequence.elements)
    at = use.position(2, size, -size, size)
    if at is None:
        raise UnsupportedOp("its position is known only at run time", where=use.where)
    elements = list(sequence.elements)
    elements.insert(at, tensor)
    return [_checked(use, tuple(elements), sequence.dtype or dtype_of(tensor))]


def _erase(use: _Use) -> Results:
    sequence = use.sequence()
    size = len(sequence.elements)
    at = use.position(1, -1, -size, size - 1)
    if at is None:
        raise UnsupportedOp("its position is known only at run time", where=use.where)
    elements = list(sequence.elements)
    del elements[at]
    return [KnownSequence(tuple(elements), sequence.dtype)]


def _at(use: _Use) -> Results:
    """One element; of elements of one shape, a Gather among all where only a run knows the position."""
    sequence = use.sequence()
    size = len(sequence.elements)
    if use.get(1) is None:
        raise use.fail("the position is missing")
    at = use.position(1, 0, -size, size - 1)
    if at is not None:
        return [sequence.elements[at]]
    if not size:
        raise use.fail("the position is outside of the sequence", "an element", "none")
    shapes = {str(value.type) for value in sequence.elements}
    if len(shapes) > 1 or sequence.elements[0].tensor.shape is None:
        raise UnsupportedOp("its position is known only at run time, and elements have different shapes",
                            where=use.where)  # fmt: skip
    given: dict[str, Value | np.ndarray] = {f"x{i}": value for i, value in enumerate(sequence.elements)}
    given |= {"at": use.tensor(1), "front": np.zeros(1, np.int64), "none": np.zeros(0, np.int64)}
    nodes = [make_node("Unsqueeze", [f"x{i}", "front"], [f"u{i}"]) for i in range(size)]
    nodes += [make_node("Concat", [f"u{i}" for i in range(size)], ["all"], axis=0),
              make_node("Reshape", ["at", "none"], ["one"]),
              make_node("Gather", ["all", "one"], ["y"], axis=0)]  # fmt: skip
    use.inline(nodes, given, ["y"])
    return None


def _length(use: _Use) -> Results:
    return [use.frame.graph.add_constant(np.array(len(use.sequence().elements), np.int64))]


def _split(use: _Use) -> Results:
    """Pieces of given sizes; of one given size, the last one smaller; else of size 1, without their axis on request.

    ONNX has keepdims ignored where sizes are given; ONNX Runtime heeds it for pieces of one element each.
    """
    tensor, axis, keeps = use.tensor(0), use.integer("axis", 0), use.flag("keepdims", 1)
    if tensor.tensor.shape is None:
        raise UnsupportedOp("its input's rank is unknown", where=use.where)
    rank = tensor.tensor.rank
    if not -rank <= axis < rank:
        raise use.fail("axis out of range", f"{-rank} to {rank - 1}", axis)
    given: dict[str, Value | np.ndarray] = {"x": tensor}
    count = _pieces(use, tensor.tensor.dims[axis], given)
    if not count:
        return [KnownSequence((), tensor.tensor.dtype)]
    names = [f"p{i}" for i in range(count)]
    nodes = [make_node("Cast", ["sizes"], ["long"], to=7), make_node("Split", ["x", "long"], names, axis=axis)]
    if "sizes" not in given:
        nodes = [make_node("Split", ["x"], names, axis=axis, num_outputs=count)]
    if use.get(1) is None and not keeps:
        given["axes"] = np.array([axis], np.int64)
        nodes += [make_node("Squeeze", [name, "axes"], [f"s{name}"]) for name in names]
        names = [f"s{name}" for name in names]
    use.inline(nodes, given, names, lambda values: [KnownSequence(tuple(values), tensor.tensor.dtype)])
    return None


def _pieces(use: _Use, size: object, given: dict[str, Value | np.ndarray]) -> int:
    """The number of pieces; their sizes become `sizes` of `given`, unless they are those that so many pieces have."""
    split = None if use.get(1) is None else use.tensor(1)
    if split is not None and (str(split.tensor.dtype) not in ("i32", "i64") or split.tensor.shape is None
                              or split.tensor.rank > 1):  # fmt: skip
        raise use.fail("split must be one integer, or a list of them", "i32 or i64", split.type)
    if split is not None and split.tensor.rank == 1:
        count = split.tensor.dims[0]
        if not isinstance(count, int):
            raise UnsupportedOp("the number of pieces is known only at run time", where=use.where)
        if count == 0 and size != 0:
            raise use.fail("split must add up to the axis", size, 0)
        given["sizes"] = split
        return _counted(use, count)
    each = 1 if split is None else known_number(split)
    if each is None or isinstance(size, SymDim) or not isinstance(size, int):
        raise UnsupportedOp("the number of pieces is known only at run time", where=use.where)
    if each < 1:
        raise use.fail("split must be positive", found=each)
    count = _counted(use, -(-size // each))
    if count and -(-size // count) != each:
        given["sizes"] = np.array([each] * (count - 1) + [size - each * (count - 1)])
    return count


def _counted(use: _Use, count: int) -> int:
    use.importer.count_elements(count, use.where)
    return count


def _concat(use: _Use) -> Results:
    elements, axis, stacks = use.sequence().elements, use.integer("axis"), use.flag("new_axis", 0)
    if not elements:
        raise use.fail("an empty sequence cannot be joined")
    given: dict[str, Value | np.ndarray] = {f"x{i}": value for i, value in enumerate(elements)}
    names = [f"x{i}" for i in range(len(elements))]
    nodes = []
    if stacks:
        given["axes"] = np.array([axis], np.int64)
        nodes = [make_node("Unsqueeze", [name, "axes"], [f"u{name}"]) for name in names]
        names = [f"u{name}" for name in names]
    use.inline([*nodes, make_node("Concat", names, ["y"], axis=axis)], given, ["y"])
    return None


def _map(use: _Use) -> Results:
    """The body once for each element of the first sequence; tensors are the same for all."""
    body = use.attributes.get("body")
    if not isinstance(body, GraphProto):
        raise use.fail("attribute body has the wrong type", expected="a graph")
    if len(body.output) != len(use.node.output):
        raise use.fail("the body has the wrong number of outputs", len(use.node.output), len(body.output))
    if any(map(is_of_a_run, use.inputs)):
        _map_by_loop(use, body)
        return None
    sequence = use.sequence()
    count = len(sequence.elements)
    for value in use.inputs:
        if isinstance(value, KnownSequence) and len(value.elements) != count:
            raise use.fail("sequences of different lengths", count, len(value.elements))
        if not isinstance(value, (KnownSequence, Value)):
            raise use.fail("an input must be a tensor or a sequence", found=described(value))
    rows: list[list[Value]] = []

    def go_on() -> None:
        if len(rows) == count:
            use.importer.define_outputs(use.frame, use.node, _columns(use, body, rows))
            return
        own = [v.elements[len(rows)] if isinstance(v, KnownSequence) else v for v in use.inputs]
        inline_body(use.importer, use.frame, use.node, body, own, take)

    def take(results: Sequence[Binding]) -> None:
        if not is_usable(results):
            use.importer.poison(use.frame, use.node)
            return
        values = [value for value in results if isinstance(value, Value)]
        if len(values) != len(results):
            raise use.fail("a body's output must be a tensor", found=", ".join(map(described, results)))
        rows.append(values)
        go_on()

    go_on()
    return None


def _map_by_loop(use: _Use, body: GraphProto) -> None:
    """Where only a run knows how many elements there are."""
    if not isinstance(use.get(0), KnownSequence) and not is_of_a_run(use.get(0)):
        raise use.fail("input 0 must be a sequence", found=described(use.get(0)))
    if len(body.input) != len(use.inputs):
        raise use.fail("the body has the wrong number of inputs", len(use.inputs), len(body.input))
    are_sequences = [is_of_a_run(item) or isinstance(item, KnownSequence) for item in use.inputs]
    graph = map_as_loop(body, are_sequences, use.where)

    def finish(results: Sequence[Binding]) -> None:
        if is_usable(results):
            use.importer.define_outputs(use.frame, use.node, results)
        else:
            use.importer.poison(use.frame, use.node)

    inline_body(use.importer, use.frame, use.node, graph, use.inputs, finish)


def _columns(use: _Use, body: GraphProto, rows: Sequence[Sequence[Value]]) -> list[Item]:
    """A sequence for each output of the body; what its elements are is the body's to say where there are none."""
    sequences: list[Item] = []
    for i, output in enumerate(body.output):
        elements = tuple(row[i] for row in rows)
        declared = output.type.tensor_type.elem_type
        empty = DType.from_code(declared) if declared else None
        sequences.append(_checked(use, elements, dtype_of(elements[0]) if elements else empty))
    return sequences


def _optional(use: _Use) -> Results:
    item = use.get(0)
    if item is None:
        type_ = optional_type(use.attributes, use.importer.limits)
        if type_ is None:
            raise use.fail("an optional of nothing needs the attribute type")
        return [KnownOptional(None, type_)]
    if not isinstance(item, (Value, KnownSequence)):
        raise use.fail("input 0 must be a tensor or a sequence", found=described(item))
    return [KnownOptional(item)]


def _has_element(use: _Use) -> Results:
    item = _known_optional(use)
    return [use.frame.graph.add_constant(np.array(item is not None))]


def _get_element(use: _Use) -> Results:
    item = _known_optional(use)
    if item is None:
        raise use.fail("the optional has no element")
    return [item]


def _known_optional(use: _Use) -> Value | KnownSequence | None:
    """What is in operand 0; since operator set 18, tensors and sequences may take an optional's place."""
    item = use.get(0)
    if isinstance(item, Value) and isinstance(item.type, OptionalType):
        raise UnsupportedOp("its optional is known only at run time", where=use.where)
    if isinstance(item, KnownOptional):
        return item.element
    return item if isinstance(item, (Value, KnownSequence)) else None


def _identity(use: _Use) -> Results:
    (item,) = use.inputs
    assert isinstance(item, (KnownSequence, KnownOptional))
    return [item]


def _checked(use: _Use, elements: tuple[Value, ...], dtype: DType | None) -> KnownSequence:
    other: Any = next((value for value in elements if dtype_of(value) != dtype), None)
    if other is not None:
        raise use.fail("a sequence's tensors must be of one element type", dtype, other.type)
    return KnownSequence(elements, dtype)


OPERATORS: dict[str, Callable[[_Use], Results]] = {
    "SequenceConstruct": _construct, "SequenceEmpty": _empty, "SequenceInsert": _insert, "SequenceErase": _erase,
    "SequenceAt": _at, "SequenceLength": _length, "SplitToSequence": _split, "ConcatFromSequence": _concat,
    "SequenceMap": _map, "Optional": _optional, "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}  # fmt: skip
"""ONNX's name → what it does while importing."""
