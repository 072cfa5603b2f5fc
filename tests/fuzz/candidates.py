"""Smaller versions of a model that may still fail: fewer outputs and nodes, values as inputs, smaller, plainer arrays.

Each is only a proposal: whether it is valid and still fails is for `reduce` to find out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .configurations import Configuration
from .contents import is_float
from .graphs import prune, uses_of

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Failing:
    """What is reduced: a model, its inputs for each run, and the configurations."""

    model: onnx.ModelProto
    feeds: tuple[Feeds, ...]
    configurations: tuple[Configuration, ...]

    def with_graph(self, graph: onnx.GraphProto) -> Failing:
        """The same with another graph, without what it does not use."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.CopyFrom(graph)
        names = prune(model.graph)
        feeds = tuple({k: v for k, v in f.items() if k in names} for f in self.feeds)
        return replace(self, model=model, feeds=feeds)


def _graph(failing: Failing) -> onnx.GraphProto:
    copy = onnx.GraphProto()
    copy.CopyFrom(failing.model.graph)
    return copy


def fewer_runs(failing: Failing) -> Iterator[Failing]:
    """One configuration, one run, two arrangements."""
    if len(failing.configurations) > 1:
        for chosen in failing.configurations:
            yield replace(failing, configurations=(chosen,))
    if len(failing.feeds) > 1:
        for feeds in failing.feeds:
            yield replace(failing, feeds=(feeds,))
    (*_, chosen) = failing.configurations
    if len(failing.configurations) == 1 and len(chosen.arrangements) > 1:
        first, *others = chosen.arrangements
        yield replace(failing, configurations=(replace(chosen, arrangements=(first,)),))
        if len(others) > 1:
            for other in others:
                yield replace(failing, configurations=(replace(chosen, arrangements=(first, other)),))


def plainer_configurations(failing: Failing) -> Iterator[Failing]:
    """The usual target, hint and mode, a lower level."""
    if len(failing.configurations) != 1:
        return
    (chosen,) = failing.configurations
    for change in (
        {"mode": "auto"}, {"hint": "throughput"}, {"target": "native"}, {"fp": "default"}, {"level": 0}, {"level": 2},
    ):  # fmt: skip
        changed = replace(chosen, **change)
        if changed != chosen and not (chosen.level == 0 and change.get("level") == 2):
            yield replace(failing, configurations=(changed,))


def fewer_outputs(failing: Failing) -> Iterator[Failing]:
    """One output alone, then one less."""
    outputs = list(failing.model.graph.output)
    if len(outputs) < 2:
        return
    for kept in [*([o] for o in outputs), *([p for p in outputs if p is not o] for o in outputs if len(outputs) > 2)]:
        graph = _graph(failing)
        del graph.output[:]
        graph.output.extend(kept)
        yield failing.with_graph(graph)


def values_as_inputs(failing: Failing, traced: list[Feeds]) -> Iterator[Failing]:
    """A value as an input with the content that it has: what made it goes. Late values first."""
    outputs = {o.name for o in failing.model.graph.output}
    for node in reversed(failing.model.graph.node):
        for name in node.output:
            if name in outputs or not name or any(name not in t for t in traced):
                continue
            graph = _graph(failing)
            for other in graph.node:
                for i, output in enumerate(other.output):
                    if output == name:
                        other.output[i] = f"{name}_before"
            arrays = [t[name] for t in traced]
            dims = [a if a == b else None for a, b in zip(arrays[0].shape, arrays[-1].shape)]
            code = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
            graph.input.append(helper.make_tensor_value_info(name, code, dims))
            feeds = tuple({**f, name: a} for f, a in zip(failing.feeds, arrays))
            yield replace(failing, feeds=feeds).with_graph(graph)


def last_nodes(failing: Failing, traced: list[Feeds]) -> Iterator[Failing]:
    """Only the last nodes before the outputs: the last one, two, four, …; what they take becomes inputs."""
    nodes = list(failing.model.graph.node)
    count = 1
    while count < len(nodes):
        graph = _graph(failing)
        kept = graph.node[len(nodes) - count :]
        made = {o for n in kept for o in n.output}
        known = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        wanted = {u for n in kept for u in uses_of(n)} - made - known - {""}
        wanted |= {o.name for o in graph.output} - made - known
        count *= 2
        if any(w not in t for t in traced for w in wanted):
            continue
        for name in sorted(wanted):
            arrays = [t[name] for t in traced]
            dims = [a if a == b else None for a, b in zip(arrays[0].shape, arrays[-1].shape)]
            code = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
            graph.input.append(helper.make_tensor_value_info(name, code, dims))
        feeds = tuple({**f, **{w: t[w] for w in wanted}} for f, t in zip(failing.feeds, traced))
        del graph.node[: len(nodes) - len(kept)]
        yield replace(failing, feeds=feeds).with_graph(graph)


def earlier_outputs(failing: Failing, traced: list[Feeds]) -> Iterator[Failing]:
    """An operand of an output's node as the output instead."""
    for node in reversed(failing.model.graph.node):
        for name in node.input:
            if name and all(name in t for t in traced):
                graph = _graph(failing)
                del graph.output[:]
                code = helper.np_dtype_to_tensor_dtype(traced[0][name].dtype)
                graph.output.append(helper.make_tensor_value_info(name, code, [None] * traced[0][name].ndim))
                if any(name in n.output for n in graph.node):
                    yield failing.with_graph(graph)


def bypassed(failing: Failing, traced: list[Feeds]) -> Iterator[Failing]:
    """A node left out: its first result is an operand of the same type and shape."""
    for position, node in enumerate(failing.model.graph.node):
        if not node.output or node.output[0] not in traced[0]:
            continue
        result = traced[0][node.output[0]]
        for name in node.input:
            known = traced[0].get(name)
            if known is not None and (known.dtype, known.shape) == (result.dtype, result.shape):
                graph = _graph(failing)
                copy = helper.make_node("Identity", [name], [node.output[0]])
                if node.op_type == "Identity":
                    break
                graph.node[position].CopyFrom(copy)
                yield failing.with_graph(graph)


def without_identities(failing: Failing) -> Iterator[Failing]:
    """What an Identity makes replaced by what it takes."""
    outputs = {o.name for o in failing.model.graph.output}
    for node in failing.model.graph.node:
        if node.op_type == "Identity" and node.output[0] not in outputs:
            graph = _graph(failing)
            for other in graph.node:
                for i, name in enumerate(other.input):
                    if name == node.output[0]:
                        other.input[i] = node.input[0]
            yield failing.with_graph(graph)


def static_shapes(failing: Failing) -> Iterator[Failing]:
    """Inputs of the sizes that they have in the one run."""
    if len(failing.feeds) != 1:
        return
    graph = _graph(failing)
    changed = False
    for info in graph.input:
        for dim, size in zip(info.type.tensor_type.shape.dim, failing.feeds[0][info.name].shape):
            changed |= not dim.HasField("dim_value")
            dim.dim_value = size
    if changed:
        for info in graph.output:
            for dim in info.type.tensor_type.shape.dim:
                if not dim.HasField("dim_value"):
                    dim.Clear()
        yield failing.with_graph(graph)


def smaller_sizes(failing: Failing) -> Iterator[Failing]:
    """Every axis of one size made shorter, in all inputs and constants, and in numbers that name the size."""
    if len(failing.feeds) != 1:
        return
    arrays = [*failing.feeds[0].values(), *map(numpy_helper.to_array, failing.model.graph.initializer)]
    sizes = sorted({n for a in arrays for n in a.shape if n > 1}, reverse=True)
    for size in sizes:
        for less in sorted({1, 2, 3, size // 2, size - 1} - {0, size}):
            if less < size:
                yield _resized(failing, size, less)


def _resized(failing: Failing, size: int, less: int) -> Failing:
    graph = _graph(failing)
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
    feeds = ({k: _cut(v, size, less) for k, v in failing.feeds[0].items()},)
    return replace(failing, feeds=feeds).with_graph(graph)


def _cut(array: np.ndarray, size: int, less: int) -> np.ndarray:
    """The first entries along every axis of that size."""
    return np.ascontiguousarray(array[tuple(slice(less) if n == size else slice(None) for n in array.shape)]).reshape(
        [less if n == size else n for n in array.shape]
    )


def plainer_numbers(failing: Failing) -> Iterator[Failing]:
    """An input or constant of ones, zeros, or whole numbers."""
    for name in failing.feeds[0]:
        for make in PLAINER:
            changed = tuple({**f, name: make(f[name])} for f in failing.feeds)
            if any(a[name].tobytes() != b[name].tobytes() for a, b in zip(changed, failing.feeds)):
                yield replace(failing, feeds=changed)
    for i, tensor in enumerate(failing.model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        for make in PLAINER if is_float(array.dtype) else ():
            if make(array).tobytes() != array.tobytes():
                graph = _graph(failing)
                graph.initializer[i].CopyFrom(numpy_helper.from_array(make(array), tensor.name))
                yield failing.with_graph(graph)


def _counted(array: np.ndarray) -> np.ndarray:
    """1, 2, 3, …: all different, and readable."""
    return (np.arange(array.size).reshape(array.shape) % 100 + 1).astype(array.dtype)


PLAINER = (np.zeros_like, np.ones_like, _counted)


def fewer_attributes(failing: Failing) -> Iterator[Failing]:
    """A node with an attribute less."""
    for position, node in enumerate(failing.model.graph.node):
        for i in range(len(node.attribute)):
            if node.attribute[i].type != onnx.AttributeProto.GRAPH:
                graph = _graph(failing)
                del graph.node[position].attribute[i]
                yield failing.with_graph(graph)


def size_of(failing: Failing) -> tuple[int, ...]:
    """For comparing: nodes, outputs, elements, configurations."""
    graph = failing.model.graph
    elements = sum(a.size for f in failing.feeds for a in f.values())
    elements += sum(int(np.prod(list(t.dims), dtype=np.int64)) for t in graph.initializer)
    arrangements: Mapping[str, int] = {"n": sum(len(c.arrangements) for c in failing.configurations)}
    return len(graph.node), len(graph.output), elements, arrangements["n"]
