"""Smaller versions of a model that may still fail: fewer outputs and nodes, values as inputs, smaller, plainer arrays.

Each is only a proposal: whether it is valid and still fails is for `search` to find out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graphs import drop_unused_functions, prune, uses_of

Feeds = dict[str, np.ndarray]
NEARLY = 16  # sizes up to so many are made shorter by one
C = TypeVar("C", bound="Case")


@dataclass(frozen=True)
class Case:
    """What is reduced: a model and its inputs, for each run. A subclass may add how it is run."""

    model: onnx.ModelProto
    feeds: tuple[Feeds, ...]

    def with_graph(self: C, graph: onnx.GraphProto) -> C:
        """The same with another graph, without what it does not use."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.CopyFrom(graph)
        model.graph.ClearField("value_info")  # shapes of values that may have others now
        names = prune(model.graph)
        drop_unused_functions(model)
        feeds = tuple({k: v for k, v in f.items() if k in names} for f in self.feeds)
        return replace(self, model=model, feeds=feeds)

    @property
    def size(self) -> tuple[int, ...]:
        """For comparing: nodes, outputs, elements."""
        graph = self.model.graph
        elements = sum(a.size for f in self.feeds for a in f.values())
        elements += sum(int(np.prod(list(t.dims), dtype=np.int64)) for t in graph.initializer)
        return len(graph.node), len(graph.output), elements


@dataclass(frozen=True)
class Recorded:
    """What another implementation computes on a case.

    Attributes:
        values: by name, of the main graph, in every run; what nobody computes is left out.
        symbols: name → its dimensions that have one of the inputs' names, None for the others.
    """

    values: Sequence[Mapping[str, np.ndarray]]
    symbols: Mapping[str, Sequence[str | None]] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether the value is known in every run."""
        return bool(name) and bool(self.values) and all(name in v for v in self.values)

    def info(self, name: str) -> onnx.ValueInfoProto:
        """The value declared as an input."""
        arrays = [v[name] for v in self.values]
        dims: list[int | str | None] = [a if a == b else None for a, b in zip(arrays[0].shape, arrays[-1].shape)]
        known = self.symbols.get(name, ())
        if len(known) == len(dims):
            dims = [symbol if symbol is not None else dim for symbol, dim in zip(known, dims)]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(arrays[0].dtype), dims)


def _graph(case: Case) -> onnx.GraphProto:
    copy = onnx.GraphProto()
    copy.CopyFrom(case.model.graph)
    return copy


def one_run(case: C) -> Iterator[C]:
    """One of the runs."""
    if len(case.feeds) > 1:
        for feeds in case.feeds:
            yield replace(case, feeds=(feeds,))


def fewer_outputs(case: C) -> Iterator[C]:
    """One output alone, then one less."""
    outputs = list(case.model.graph.output)
    if len(outputs) < 2:
        return
    for kept in [*([o] for o in outputs), *([p for p in outputs if p is not o] for o in outputs if len(outputs) > 2)]:
        graph = _graph(case)
        del graph.output[:]
        graph.output.extend(kept)
        yield case.with_graph(graph)


def values_as_inputs(case: C, recorded: Recorded) -> Iterator[C]:
    """A value as an input with the content that it has: what made it goes. Late values first."""
    outputs = {o.name for o in case.model.graph.output}
    for node in reversed(case.model.graph.node):
        for name in node.output:
            if name in outputs or not recorded.has(name):
                continue
            graph = _graph(case)
            for other in graph.node:
                for i, output in enumerate(other.output):
                    if output == name:
                        other.output[i] = f"{name}_before"
            graph.input.append(recorded.info(name))
            feeds = tuple({**f, name: v[name]} for f, v in zip(case.feeds, recorded.values))
            yield replace(case, feeds=feeds).with_graph(graph)


def fewer_nodes(case: C, recorded: Recorded) -> Iterator[C]:
    """A part of the nodes in their order, then all but a part: halves, quarters, … What they take of others becomes
    inputs, and what others take of them outputs. (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
    Input, 2002.)
    """
    count, pieces = len(case.model.graph.node), 2
    while count > 1 and pieces <= 2 * count:
        edges = sorted({round(i * count / pieces) for i in range(pieces + 1)})
        spans = list(zip(edges, edges[1:]))
        for first, last in spans:
            yield from _part(case, recorded, set(range(first, last)))
        for first, last in spans if pieces > 2 else ():
            yield from _part(case, recorded, set(range(count)) - set(range(first, last)))
        pieces *= 2


def _part(case: C, recorded: Recorded, chosen: set[int]) -> Iterator[C]:
    """The graph of these nodes alone, if what they take of others is recorded."""
    graph = _graph(case)
    nodes = list(graph.node)
    kept = [node for i, node in enumerate(nodes) if i in chosen]
    made = {name for node in nodes for name in node.output if name}
    ours = {name for node in kept for name in node.output if name}
    taken = {name for node in kept for name in uses_of(node)} & made - ours
    read = {name for i, node in enumerate(nodes) if i not in chosen for name in uses_of(node)}
    outputs = [o for o in graph.output if o.name in ours]
    declared = {o.name for o in outputs}
    left = [name for node in kept for name in node.output if name in read and name not in declared]
    if not all(recorded.has(name) for name in taken):
        return
    outputs += [_open(recorded.info(name)) if recorded.has(name) else onnx.ValueInfoProto(name=name) for name in left]
    if not outputs:
        return
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    declarations = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in outputs]
    graph.ClearField("node")
    graph.ClearField("output")
    graph.node.extend(copies)
    graph.output.extend(declarations)
    graph.input.extend(recorded.info(name) for name in sorted(taken))
    feeds = tuple({**f, **{n: v[n] for n in taken}} for f, v in zip(case.feeds, recorded.values))
    yield replace(case, feeds=feeds).with_graph(graph)


def _open(info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """A declaration of the rank only: a smaller graph may have other sizes."""
    for dim in info.type.tensor_type.shape.dim:
        dim.Clear()
    return info


def earlier_outputs(case: C, recorded: Recorded) -> Iterator[C]:
    """An operand of an output's node as the output instead."""
    for node in reversed(case.model.graph.node):
        for name in node.input:
            if recorded.has(name) and any(name in n.output for n in case.model.graph.node):
                graph = _graph(case)
                del graph.output[:]
                graph.output.append(_open(recorded.info(name)))
                yield case.with_graph(graph)


def bypassed(case: C, recorded: Recorded) -> Iterator[C]:
    """A node left out: its first result is an operand of the same type and shape."""
    for position, node in enumerate(case.model.graph.node):
        if not node.output or not recorded.has(node.output[0]):
            continue
        result = recorded.values[0][node.output[0]]
        for name in node.input:
            known = recorded.values[0].get(name)
            if known is not None and (known.dtype, known.shape) == (result.dtype, result.shape):
                graph = _graph(case)
                copy = helper.make_node("Identity", [name], [node.output[0]])
                if node.op_type == "Identity":
                    break
                graph.node[position].CopyFrom(copy)
                yield case.with_graph(graph)


def without_identities(case: C) -> Iterator[C]:
    """What an Identity makes replaced by what it takes."""
    outputs = {o.name for o in case.model.graph.output}
    for node in case.model.graph.node:
        if node.op_type == "Identity" and node.output[0] not in outputs:
            graph = _graph(case)
            for other in graph.node:
                for i, name in enumerate(other.input):
                    if name == node.output[0]:
                        other.input[i] = node.input[0]
            yield case.with_graph(graph)


def static_shapes(case: C) -> Iterator[C]:
    """Inputs of the sizes that they have in the one run."""
    if len(case.feeds) != 1:
        return
    graph = _graph(case)
    changed = False
    for info in graph.input:
        for dim, size in zip(info.type.tensor_type.shape.dim, case.feeds[0][info.name].shape):
            changed |= not dim.HasField("dim_value")
            dim.dim_value = size
    if changed:
        for info in graph.output:
            for dim in info.type.tensor_type.shape.dim:
                if not dim.HasField("dim_value"):
                    dim.Clear()
        yield case.with_graph(graph)


def smaller_sizes(case: C) -> Iterator[C]:
    """Every axis of one size made shorter, in all inputs and constants, and in numbers that name the size."""
    if len(case.feeds) != 1:
        return
    arrays = [*case.feeds[0].values(), *map(numpy_helper.to_array, case.model.graph.initializer)]
    sizes = sorted({n for a in arrays for n in a.shape if n > 1}, reverse=True)
    for size in sizes:
        nearly = {size - 1} if size <= NEARLY else {size * 3 // 4, size * 7 // 8}
        for less in sorted({1, 2, 3, size // 2, *nearly} - {0}):
            if less < size:
                yield _resized(case, size, less)


def _resized(case: C, size: int, less: int) -> C:
    graph = _graph(case)
    for info in [*graph.input, *graph.output]:
        for dim in info.type.tensor_type.shape.dim:
            if info in graph.output:
                dim.Clear()
            elif dim.HasField("dim_value") and dim.dim_value == size:
                dim.dim_value = less
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.int64 and array.ndim <= 1:
            array = np.where(array == size, less, array)
        tensor.CopyFrom(numpy_helper.from_array(_cut(array, size, less), tensor.name))
    feeds = ({k: _cut(v, size, less) for k, v in case.feeds[0].items()},)
    return replace(case, feeds=feeds).with_graph(graph)


def _cut(array: np.ndarray, size: int, less: int) -> np.ndarray:
    """The first entries along every axis of that size."""
    return np.ascontiguousarray(array[tuple(slice(less) if n == size else slice(None) for n in array.shape)]).reshape(
        [less if n == size else n for n in array.shape]
    )


def plainer_numbers(case: C) -> Iterator[C]:
    """An input or constant of ones, zeros, or whole numbers."""
    for name in case.feeds[0]:
        for make in PLAINER:
            changed = tuple({**f, name: make(f[name])} for f in case.feeds)
            if any(a[name].tobytes() != b[name].tobytes() for a, b in zip(changed, case.feeds)):
                yield replace(case, feeds=changed)
    for i, tensor in enumerate(case.model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        for make in PLAINER if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else ():
            if make(array).tobytes() != array.tobytes():
                graph = _graph(case)
                graph.initializer[i].CopyFrom(numpy_helper.from_array(make(array), tensor.name))
                yield case.with_graph(graph)


def _counted(array: np.ndarray) -> np.ndarray:
    """1, 2, 3, …: all different, and readable."""
    return (np.arange(array.size).reshape(array.shape) % 100 + 1).astype(array.dtype)


PLAINER = (np.zeros_like, np.ones_like, _counted)


def fewer_attributes(case: C) -> Iterator[C]:
    """A node with an attribute less."""
    for position, node in enumerate(case.model.graph.node):
        for i in range(len(node.attribute)):
            if node.attribute[i].type != onnx.AttributeProto.GRAPH:
                graph = _graph(case)
                del graph.node[position].attribute[i]
                yield case.with_graph(graph)
