"""Scopes of names while importing: the graph, bodies of control flow, function calls, inlined branches.

A stack of frames instead of recursion: nesting and expansion cost memory, never the Python stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import AttributeProto, NodeProto

from ...errors import InvalidModel
from ..ir.graph import Graph, Value
from .parse import FunctionKey
from .structures import KnownOptional, KnownSequence, mapped


class Unsupported:
    """Stands for results of operators that parax lacks, so that the import can go on and find all of them."""


@dataclass(frozen=True)
class Written:
    """An operator as the model's author wrote it.

    Attributes:
        domain: "" is ONNX's own. version: of the operator's definition; None where the domain is not known.
        where: how errors name the node.
    """

    domain: str
    name: str
    version: int | None
    where: str

    def __str__(self) -> str:
        version = "" if self.version is None else f"-{self.version}"
        return f"{self.domain or 'ai.onnx'}::{self.name}{version}"


UNSUPPORTED = Unsupported()
Binding = Value | KnownSequence | KnownOptional | Unsupported | None
"""What a name means; None for an optional input that is not given."""


class Frame:
    """One scope being imported.

    Attributes:
        graph: the IR graph that nodes go to (an inlined branch shares its parent's).
        opsets: domain → version in force.
        parent: the scope whose names are visible; None for the main graph and functions.
        captures: for the body of a control-flow operator: outer value → the body's input for it; else None.
        bound: attributes of the function call, None outside of functions.
        calls: the functions being expanded, innermost last.
        depth: how many graphs this one is nested in.
        culprit: the node that the user wrote, while an ONNX-defined function is being expanded.
        on_misfit: for a branch of If: takes over where types within do not fit; the branch is given up.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Iterable[NodeProto],
        opsets: Mapping[str, int],
        finish: Callable[[Frame], None],
        *,
        parent: Frame | None = None,
        is_body: bool = False,
        bound: Mapping[str, AttributeProto] | None = None,
        calls: tuple[FunctionKey, ...] = (),
        depth: int = 0,
        culprit: Written | None = None,
    ) -> None:
        self.graph, self.opsets, self.finish, self.parent, self.bound = graph, opsets, finish, parent, bound
        self.nodes: Iterator[NodeProto] = iter(nodes)
        self.captures: dict[Value, Value] | None = {} if is_body else None
        self.calls, self.depth, self.culprit = calls, depth, culprit
        self.on_misfit: Callable[[InvalidModel], None] | None = None
        self._names: dict[str, Binding] = {}
        self._outer: dict[str, Binding] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def define(self, name: str, value: Binding, what: str) -> None:
        """Gives a name its meaning. Raises InvalidModel if this scope has already given it one."""
        if self.defines(name):
            raise InvalidModel(f"{name!r} is defined twice", where=what)
        self._names[name] = value

    def define_array(self, name: str, array: np.ndarray, what: str) -> None:
        """Defines a constant; it enters the graph when it is first used."""
        if self.defines(name):
            raise InvalidModel(f"{name!r} is defined twice", where=what)
        self._arrays[name] = array

    def defines(self, name: str) -> bool:
        """Whether this very scope defines the name."""
        return name in self._names or name in self._arrays

    def resolve(self, name: str, where: str) -> Binding:
        """The meaning of a name here or in the enclosing scopes. Raises InvalidModel if it has none."""
        passed: list[Frame] = []
        frame: Frame | None = self
        while frame is not None:
            if frame.defines(name) or name in frame._outer:
                break
            passed.append(frame)
            frame = frame.parent
        if frame is None:
            raise InvalidModel(f"{name[:200]!r} is used, but not defined before", where=where)
        value = frame._lookup(name)
        for inner in reversed(passed):
            if inner.captures is not None:
                value = inner.capture(value)
            inner._outer[name] = value
        return value

    def _lookup(self, name: str) -> Binding:
        if name in self._arrays:
            self._names[name] = self.graph.add_constant(self._arrays.pop(name), name)
        return self._names[name] if name in self._names else self._outer[name]

    def capture(self, outer: Binding) -> Binding:
        """What in this body stands for an outer value, or for those of an outer sequence."""
        if self.captures is None or not isinstance(outer, (Value, KnownSequence, KnownOptional)):
            return outer
        return mapped(outer, self._capture_value)

    def _capture_value(self, outer: Value) -> Value:
        """Constants are shared, all else becomes an input."""
        assert self.captures is not None
        if outer.data is not None:
            return self.graph.add_constant(outer.data, outer.name)
        if outer not in self.captures:
            self.captures[outer] = self.add_input(outer)
        return self.captures[outer]

    def add_input(self, like: Value) -> Value:
        """A new input of the graph with type, name and known content of an outer value."""
        name, suffix = like.name, 1
        taken = {value.name for value in self.graph.values()} if name else set()
        while name in taken:
            name, suffix = f"{like.name}_{suffix}", suffix + 1
        value = self.graph.add_input(name, like.type)
        value.known = like.known
        return value


def node_where(node: NodeProto) -> str:
    """How errors name a node."""
    if node.name:
        return f'{node.op_type} "{node.name[:200]}"'
    return f"{node.op_type} %{node.output[0][:200]}" if node.output else node.op_type
