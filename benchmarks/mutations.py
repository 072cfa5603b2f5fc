"""Ways to spoil a valid ONNX model: bytes, and fields that a person or an exporter may get wrong.

Each mutation takes a generator of random numbers and changes a ModelProto in place. Knows protobufs; nothing of parax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

Rng = np.random.Generator
Mutation = Callable[[ModelProto, Rng], None]

INTS = (0, 1, -1, 2, 3, 4, 5, 7, -2, -3, 8, 16, 63, 64, 65, 127, 255, 1000, 65536, 10**6, 2**31 - 1, 2**31, -(2**31),
        2**32, 2**40, 2**62, 2**63 - 1, -(2**63))  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "VALID", "SAME_UPPER", "reflect", "nearest", "tanh", "NOTSET", "é✓", "a" * 5000, "%s{0}",
         "bij,bjk->bik", "...i,...i->", "ii->i", ",->", "Tanh")  # fmt: skip
OPERATORS = ("Add", "Relu", "MatMul", "Conv", "Concat", "Reshape", "Transpose", "Gather", "Cast", "Softmax", "Split",
             "ReduceSum", "Expand", "Tile", "Slice", "Resize", "Where", "Pad", "TopK", "If", "Loop", "Einsum", "Range",
             "NonZero", "Constant", "ConstantOfShape", "Dropout", "Identity", "Shape", "Squeeze", "Gemm",
             "NoSuchOperator")  # fmt: skip


def pick(rng: Rng, items: object) -> object:
    """One of a sequence, with its own type."""
    return items[int(rng.integers(len(items)))]  # type: ignore[arg-type,index]


def number(rng: Rng) -> int:
    """A small whole number mostly, now and then one at a border."""
    return int(rng.integers(-2, 9)) if rng.random() < 0.5 else int(pick(rng, INTS))  # type: ignore[call-overload]


def graphs(model: ModelProto) -> list[GraphProto]:
    """The main graph and all inside of it."""
    found, pending = [], [model.graph]
    while pending:
        graph = pending.pop()
        found.append(graph)
        for node in graph.node:
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.HasField("g") else attribute.graphs
    return found


def some_graph(model: ModelProto, rng: Rng) -> GraphProto:
    """A random one."""
    return pick(rng, graphs(model))  # type: ignore[return-value]


def some_node(model: ModelProto, rng: Rng) -> NodeProto | None:
    """A random node of a random graph or function."""
    lists = [g.node for g in graphs(model)] + [f.node for f in model.functions]
    nodes = [n for nodes in lists for n in nodes]
    return pick(rng, nodes) if nodes else None  # type: ignore[return-value]


def names(model: ModelProto) -> list[str]:
    """Every name of a value, and some that none has."""
    found = {"", "nobody"}
    for graph in graphs(model):
        found |= {t.name for t in graph.initializer} | {v.name for v in (*graph.input, *graph.output)}
        found |= {name for node in graph.node for name in (*node.input, *node.output)}
    return sorted(found)


# Nodes


def change_attribute(model: ModelProto, rng: Rng) -> None:
    """A value of an attribute."""
    node = some_node(model, rng)
    if node is None or not node.attribute:
        return
    a: AttributeProto = pick(rng, node.attribute)  # type: ignore[assignment]
    kind = a.type
    if kind == AttributeProto.INT:
        a.i = number(rng)
    elif kind == AttributeProto.FLOAT:
        a.f = float(pick(rng, FLOATS))  # type: ignore[arg-type]
    elif kind == AttributeProto.STRING:
        a.s = str(pick(rng, TEXTS)).encode()
    elif kind == AttributeProto.INTS:
        change_list(a.ints, rng, number)
    elif kind == AttributeProto.FLOATS:
        change_list(a.floats, rng, lambda r: float(pick(r, FLOATS)))  # type: ignore[arg-type]
    elif kind == AttributeProto.STRINGS:
        change_list(a.strings, rng, lambda r: str(pick(r, TEXTS)).encode())
    elif kind == AttributeProto.TENSOR:
        change_tensor(a.t, rng)


def change_list(items: object, rng: Rng, make: Callable[[Rng], object]) -> None:
    """An element more, less, or another."""
    values = list(items)  # type: ignore[call-overload]
    way = int(rng.integers(5))
    if way == 0 or not values:
        values.insert(int(rng.integers(len(values) + 1)), make(rng))
    elif way == 1:
        values.pop(int(rng.integers(len(values))))
    elif way == 2:
        values = [] if rng.random() < 0.5 else values * 40
    else:
        values[int(rng.integers(len(values)))] = make(rng)
    del items[:]  # type: ignore[attr-defined]
    items.extend(values)  # type: ignore[attr-defined]


def drop_attribute(model: ModelProto, rng: Rng) -> None:
    """Also: one twice, or of another type."""
    node = some_node(model, rng)
    if node is None or not node.attribute:
        return
    i, way = int(rng.integers(len(node.attribute))), int(rng.integers(4))
    if way <= 1:
        del node.attribute[i]
    elif way == 2:
        node.attribute.add().CopyFrom(node.attribute[i])
    else:
        name = node.attribute[i].name
        value = pick(rng, (1, -1, 1.5, "text", [1, 2], [0.5], ["a"], np.float32(2)))
        node.attribute[i].CopyFrom(helper.make_attribute(name, value))


def add_attribute(model: ModelProto, rng: Rng) -> None:
    """One that the operator's schema has and the node has not, or nobody knows."""
    node = some_node(model, rng)
    if node is None:
        return
    known = list(onnx.defs.get_schema(node.op_type).attributes) if onnx.defs.has(node.op_type) else []
    name = str(pick(rng, [*known, "axis", "unknown"]))
    value = pick(rng, (number(rng), [number(rng), number(rng)], str(pick(rng, TEXTS)), 0.5))
    node.attribute.append(helper.make_attribute(name, value))


def change_inputs(model: ModelProto, rng: Rng) -> None:
    """Swapped, dropped, doubled, omitted, or other values."""
    node = some_node(model, rng)
    if node is None:
        return
    items = list(node.input)
    way = int(rng.integers(6))
    if way == 0:
        rng.shuffle(items)
    elif way == 1 and items:
        items.pop(int(rng.integers(len(items))))
    elif way == 2:
        items *= 2
    elif way == 3:
        items.append(str(pick(rng, names(model))))
    elif items:
        items[int(rng.integers(len(items)))] = str(pick(rng, names(model)))
    del node.input[:]
    node.input.extend(items)


def change_outputs(model: ModelProto, rng: Rng) -> None:
    """Renamed, omitted, doubled, or more of them."""
    node = some_node(model, rng)
    if node is None:
        return
    items = list(node.output)
    way = int(rng.integers(4))
    if way == 0 and items:
        items[int(rng.integers(len(items)))] = str(pick(rng, names(model)))
    elif way == 1 and items:
        items.pop()
    elif way == 2:
        items += ["", "another"]
    else:
        items += [f"{name}_more" for name in items]
    del node.output[:]
    node.output.extend(items)


def change_operator(model: ModelProto, rng: Rng) -> None:
    """Another operator or domain."""
    node = some_node(model, rng)
    if node is None:
        return
    if rng.random() < 0.85:
        node.op_type = str(pick(rng, OPERATORS))
    else:
        node.domain = str(pick(rng, ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "own", "é")))


def move_nodes(model: ModelProto, rng: Rng) -> None:
    """Dropped, doubled, or in another order."""
    graph = some_graph(model, rng)
    nodes = [NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    if not nodes:
        return
    i, way = int(rng.integers(len(nodes))), int(rng.integers(3))
    if way == 0:
        nodes.pop(i)
    elif way == 1:
        nodes.insert(int(rng.integers(len(nodes))), nodes[i])
    else:
        rng.shuffle(nodes)  # type: ignore[arg-type]
    del graph.node[:]
    graph.node.extend(nodes)


# Values


def change_type(model: ModelProto, rng: Rng) -> None:
    """The element type or shape of an input or output."""
    graph = some_graph(model, rng)
    values = [*graph.input, *graph.output]
    if not values:
        return
    value: ValueInfoProto = pick(rng, values)  # type: ignore[assignment]
    tensor = value.type.tensor_type
    way = int(rng.integers(8))
    if way == 0:
        tensor.elem_type = int(rng.integers(0, 26))
    elif way == 1:
        tensor.ClearField("shape")
    elif way == 2:
        value.ClearField("type")
    elif way == 3:
        value.type.CopyFrom(TypeProto(sequence_type=TypeProto.Sequence(elem_type=value.type)))
    elif way == 4 and tensor.shape.dim:
        del tensor.shape.dim[int(rng.integers(len(tensor.shape.dim)))]
    elif way == 5:
        tensor.shape.dim.add(dim_value=abs(number(rng)))
    elif tensor.shape.dim:
        dim = pick(rng, tensor.shape.dim)
        if rng.random() < 0.7:
            dim.dim_value = number(rng)  # type: ignore[attr-defined]
        else:
            dim.dim_param = str(pick(rng, ("N", "M", "", "2*N", "é", "N+1", "1", "None")))  # type: ignore[attr-defined]


def change_tensor(tensor: TensorProto, rng: Rng) -> None:
    """Dimensions, type or content; the content is kept consistent where only it changes."""
    way = int(rng.integers(6))
    if way == 0:
        change_list(tensor.dims, rng, number)
    elif way == 1:
        tensor.data_type = int(rng.integers(0, 26))
    elif way == 2 and tensor.raw_data:
        data = bytearray(tensor.raw_data)
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
        tensor.raw_data = bytes(data)
    elif way == 3:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(len(tensor.raw_data) + 1))]
    else:
        set_content(tensor, rng)


def set_content(tensor: TensorProto, rng: Rng) -> None:
    """Numbers at borders in a valid tensor, or none at all."""
    try:
        array = onnx.numpy_helper.to_array(tensor).copy()
    except Exception:  # a tensor that was spoilt before
        return
    if array.dtype.kind not in "iuf":
        return
    if rng.random() < 0.2:
        array = array[:0] if array.ndim else array.reshape(1)
    elif array.size:
        at = int(rng.integers(array.size))
        with np.errstate(all="ignore"):
            value = np.float64(pick(rng, FLOATS)) if array.dtype.kind == "f" else np.int64(number(rng))  # type: ignore[arg-type]
            array.reshape(-1)[at] = value.astype(array.dtype)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def change_initializer(model: ModelProto, rng: Rng) -> None:
    """Its content, type or dimensions, or none or two of it."""
    graph = some_graph(model, rng)
    if not graph.initializer:
        return
    i, way = int(rng.integers(len(graph.initializer))), int(rng.integers(6))
    if way == 0:
        del graph.initializer[i]
    elif way == 1:
        graph.initializer.add().CopyFrom(graph.initializer[i])
    else:
        change_tensor(graph.initializer[i], rng)


def freeze_input(model: ModelProto, rng: Rng) -> None:
    """An input becomes a constant, so that more is folded."""
    graph = model.graph
    if not graph.input:
        return
    i = int(rng.integers(len(graph.input)))
    tensor = graph.input[i].type.tensor_type
    if tensor.elem_type not in (1, 6, 7, 9, 10, 11):
        return
    shape = [d.dim_value if 0 < d.dim_value < 64 else int(rng.integers(0, 5)) for d in tensor.shape.dim]
    if np.prod(shape, dtype=np.float64) > 1e6:
        return
    array = rng.integers(-2, 6, shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    graph.initializer.append(onnx.numpy_helper.from_array(array, graph.input[i].name))
    if rng.random() < 0.8:
        del graph.input[i]


def change_interface(model: ModelProto, rng: Rng) -> None:
    """Outputs and inputs of a graph: dropped, doubled, renamed, swapped for one another."""
    graph = some_graph(model, rng)
    which = graph.output if rng.random() < 0.7 else graph.input
    if not which:
        return
    i, way = int(rng.integers(len(which))), int(rng.integers(4))
    if way == 0:
        del which[i]
    elif way == 1:
        which.add().CopyFrom(which[i])
    elif way == 2:
        which[i].name = str(pick(rng, names(model)))
    else:
        graph.output.add().name = str(pick(rng, names(model)))


def rename_value(model: ModelProto, rng: Rng) -> None:
    """One value everywhere, to a name that is hard on code generators."""
    old = str(pick(rng, names(model)))
    new = str(pick(rng, ("0", "a b", 'q"uote', "per%cent", "new\nline", "é✓", "x" * 3000, "@f", "../up", "malloc")))
    for graph in graphs(model):
        for entry in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            entry.name = new if entry.name == old else entry.name
        for node in graph.node:
            for items in (node.input, node.output):
                changed = [new if name == old else name for name in items]
                del items[:]
                items.extend(changed)


def change_versions(model: ModelProto, rng: Rng) -> None:
    """Operator sets and the format's version."""
    if model.opset_import and rng.random() < 0.85:
        entry = pick(rng, model.opset_import)
        entry.version = int(rng.integers(1, 25)) if rng.random() < 0.9 else number(rng)  # type: ignore[attr-defined]
    else:
        model.ir_version = number(rng)


MUTATIONS: tuple[Mutation, ...] = (
    change_attribute, change_attribute, change_attribute, drop_attribute, add_attribute, change_inputs, change_inputs,
    change_outputs, change_operator, move_nodes, change_type, change_type, change_type, change_initializer,
    change_initializer, freeze_input, freeze_input, change_interface, rename_value, change_versions,
)  # fmt: skip


def mutations(rng: Rng) -> Iterator[Mutation]:
    """Which to apply: mostly one or two, seldom many."""
    for _ in range(1 + min(8, int(rng.geometric(0.55)) - 1)):
        yield pick(rng, MUTATIONS)  # type: ignore[misc]


def mutant(model: ModelProto, rng: Rng) -> bytes:
    """A spoilt copy of a model, as a file's bytes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for mutate in mutations(rng):
        try:
            mutate(copy, rng)
        except (ValueError, TypeError, onnx.defs.SchemaError):  # protobuf refuses to hold this one
            continue
    data = copy.SerializeToString()
    if rng.random() < 0.1:
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        data = bytes(damaged)
    return data
