"""Pairs of an input and an output that a plan keeps as state: found by name, checked, and brought into one memory.

A state of a fixed shape lies as ONNX says. One that grows along an axis, as a cache of keys and values does, has that
axis outermost in memory, so that a longer one begins with the shorter one's bytes and what is new goes behind them:

    before: @g(%past: f32[B,8,P,64], %new: f32[B,8,S,64]) { %y = Concat(%past, %new) {axis=2}; return %y }
    after:  @g(%new: …, %past: f32[P,B,8,64]) {
              %1 = Transpose(%new) {perm=[2,0,1,3]}; %2 = Concat(%past, %1) {axis=0}; return %2 }
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ...errors import UsageError
from ..ir.graph import Graph, Value
from ..ir.ops.shape import Concat, Transpose
from ..ir.states import State
from ..ir.types import SymDim, TensorType, symbols_of


def declare_state(graph: Graph, wanted: Mapping[str, str]) -> None:
    """Make `graph.states` of names of inputs → names of outputs; a * in both stands for the same text.

    The inputs come last then, so that sizes are read off the others.

    Raises:
        UsageError: a name that the graph does not have, or twice; types that are not one memory; a size that nothing
            but the state tells.
    """
    pairs = list(_pairs(graph, wanted))
    for given, kept in pairs:
        _check_alone(graph, pairs, given, kept)
        x = graph.value(given)
        axis = _growing_axis(x, graph.outputs[graph.output_names.index(kept)], given, kept)
        _put_last(graph, x, axis)
        if axis is not None:
            _put_axis_first(graph, kept, axis)
        graph.states = (*graph.states, State(given, kept, axis))
    _check_sizes(graph)


def _pairs(graph: Graph, wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names meant, in the order of the graph's inputs."""
    inputs = [v.name for v in graph.inputs]
    for given, kept in wanted.items():
        where = f"state {given}={kept}"
        if given.count("*") != kept.count("*"):
            raise UsageError("a * on one side only", where=where, expected="as many * in both names")
        pattern = re.compile("(.*)".join(map(re.escape, given.split("*"))))
        found = [(name, match) for name in inputs if (match := pattern.fullmatch(name))]
        if not found:
            raise UsageError("no input has that name", where=where, expected=_listed(inputs), found=given)
        for name, match in found:
            first, *rest = kept.split("*")
            yield name, first + "".join(part + text for part, text in zip(match.groups(), rest, strict=True))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "none"


def _check_alone(graph: Graph, pairs: Sequence[tuple[str, str]], given: str, kept: str) -> None:
    where = f"state {given}={kept}"
    if kept not in graph.output_names:
        raise UsageError("no output has that name", where=where, expected=_listed(graph.output_names), found=kept)
    for i, name in enumerate((given, kept)):
        if sum(pair[i] == name for pair in pairs) > 1:
            raise UsageError("twice in states", where=where, found=name)
    if given in graph.defaults:
        raise UsageError("a state begins empty, and not with a default", where=where, hint="leave it out of --override")


def _growing_axis(x: Value, y: Value, given: str, kept: str) -> int | None:
    """The axis along which the output is longer, None where both have one shape.

    Raises:
        UsageError: another difference.
    """
    where, types = f"state {given}={kept}", (x.type, y.type)
    a, b = types
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.shape is None or b.shape is None:
        raise UsageError("a state must be a tensor of known rank", where=where, found=f"{a} and {b}")
    if a.dtype != b.dtype or a.rank != b.rank:
        problem = "element types" if a.dtype != b.dtype else "ranks"
        raise UsageError(f"the two sides of a state have different {problem}", where=where, expected=a, found=b)
    differing = [i for i, (p, q) in enumerate(zip(a.dims, b.dims, strict=True)) if p != q]
    if not differing:
        return None
    axis, length = differing[0], a.dims[differing[0]]
    if len(differing) > 1 or not isinstance(length, SymDim) or not str(length).isidentifier():
        raise UsageError("the two sides of a state differ", where=where, found=b,
                         expected=f"{a}, or longer along one axis that the input leaves open",
                         hint="--shape opens an axis, --dim gives two symbols one size")  # fmt: skip
    return axis


def _put_last(graph: Graph, x: Value, axis: int | None) -> None:
    """Move an input behind the others, with its growing axis first; readers get the model's own order."""
    name, t = x.name, x.tensor
    graph.rename(x, f"{name}.before")
    order = _order(t.rank, axis)
    made = graph.add_input(name, t.with_shape(tuple(t.dims[a] for a in order)))
    if axis is not None:
        back = tuple(order.index(a) for a in range(t.rank))
        made = graph.add_node(Transpose(perm=back), [made], before=graph.first).output
    graph.replace_all_uses_with(x, made)
    graph.erase_input(x)


def _put_axis_first(graph: Graph, kept: str, axis: int) -> None:
    """Let an output have the growing axis first. Where it is a Concat along that, it is one along the first."""
    number = graph.output_names.index(kept)
    y = graph.outputs[number]
    order = _order(y.tensor.rank, axis)
    made = y.producer
    if made is not None and isinstance(made.op, Concat) and made.op.axis % y.tensor.rank == axis:
        turned = [graph.add_node(Transpose(perm=order), [v], before=made).output for v in made.operands]
        result = graph.add_node(type(made.op)(axis=0), turned, before=made).output
        back = tuple(order.index(a) for a in range(y.tensor.rank))
        graph.replace_all_uses_with(y, graph.add_node(Transpose(perm=back), [result], before=made).output)
        graph.erase(made)
    else:
        result = graph.add_node(Transpose(perm=order), [y]).output
    outputs = list(graph.outputs)
    outputs[number] = result
    graph.set_outputs(outputs, graph.output_names)


def _order(rank: int, axis: int | None) -> tuple[int, ...]:
    return tuple(range(rank)) if axis is None else (axis, *(a for a in range(rank) if a != axis))


def _check_sizes(graph: Graph) -> None:
    """Whether requests tell every size of a state but the length that it has by itself."""
    given = {state.input: state for state in graph.states}
    told: set[str] = set()
    for v in graph.inputs:
        if v.name not in given and isinstance(v.type, TensorType) and v.type.shape is not None:
            told |= {str(d) for d in v.type.shape if isinstance(d, SymDim)}
    for v in graph.inputs:
        if v.name in given:
            own = v.tensor.dims[0 if given[v.name].axis is None else 1 :]
            lacking = sorted(symbols_of(own) - told)
            if lacking:
                raise UsageError("no other input tells a size of a state", where=f"state {v.name}", found=lacking[0],
                                 hint=f"--dim {lacking[0]}=N gives it one")  # fmt: skip


__all__ = ["declare_state"]
