"""Sequences and optionals whose length is known while importing: names that stand for several values, or for none.

The graph holds tensors alone. A sequence is a list of its elements' values while the model is read, so that what puts
elements into one and takes them out again leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from onnx import GraphProto

from ..ir.graph import Value
from ..ir.types import DType, TensorType, Type


@dataclass(frozen=True)
class KnownSequence:
    """A sequence of tensors.

    Attributes:
        elements: the tensors, in order.
        dtype: what all of them hold; None for an empty one that does not say.
    """

    elements: tuple[Value, ...]
    dtype: DType | None

    def __str__(self) -> str:
        return f"a sequence of {len(self.elements)}"


@dataclass(frozen=True)
class KnownOptional:
    """An optional of which is known whether it has an element.

    Attributes:
        type: of what it is, where it has none and the model says so.
    """

    element: Value | KnownSequence | None
    type: Type | None = None

    def __str__(self) -> str:
        return f"an optional of {'nothing' if self.element is None else described(self.element)}"


Structure = KnownSequence | KnownOptional
Item = Value | Structure


def is_structure(item: object) -> TypeGuard[Structure]:
    """Whether a name stands for a sequence or an optional."""
    return isinstance(item, (KnownSequence, KnownOptional))


def values_of(item: Item | None) -> list[Value]:
    """The tensors in an item, in order."""
    if isinstance(item, KnownOptional):
        return values_of(item.element)
    if isinstance(item, KnownSequence):
        return list(item.elements)
    return [] if item is None else [item]


def mapped(item: Item, change: Callable[[Value], Value]) -> Item:
    """The item with every tensor replaced."""
    if isinstance(item, KnownOptional):
        return item if item.element is None else KnownOptional(_element(mapped(item.element, change)))
    if isinstance(item, KnownSequence):
        return KnownSequence(tuple(change(value) for value in item.elements), item.dtype)
    return change(item)


def rebuilt(patterns: Iterable[Item], values: Iterator[Value]) -> list[Item]:
    """Items built like `patterns` of as many of `values` as those have tensors."""
    return [mapped(pattern, lambda _: next(values)) for pattern in patterns]


def arrangement(item: Item | None) -> str:
    """How many tensors an item has and where: equal for items that can take each other's place."""
    if isinstance(item, KnownOptional):
        return f"optional of {arrangement(item.element)}"
    if isinstance(item, KnownSequence):
        return f"sequence of {len(item.elements)}"
    return "nothing" if item is None else "tensor"


def described(item: object) -> str:
    """How errors name what was found where something else belongs."""
    if isinstance(item, Value):
        return str(item.type)
    return "nothing" if item is None else str(item)


def dtype_of(value: Value) -> DType | None:
    """What a tensor holds; None for what is none."""
    return value.type.dtype if isinstance(value.type, TensorType) else None


def _element(item: Item) -> Value | KnownSequence:
    assert not isinstance(item, KnownOptional)
    return item


def output_names(proto: GraphProto, items: Sequence[Item]) -> list[str]:
    """Names for a body's outputs; those of a sequence are numbered."""
    names: list[str] = []
    taken = {output.name for output in proto.output}
    for item, output in zip(items, proto.output):
        names += numbered(output.name, len(values_of(item)), taken) if is_structure(item) else [output.name]
    return names


def numbered(name: str, count: int, taken: set[str]) -> Iterator[str]:
    """Names for a sequence's tensors; they become `taken`."""
    for i in range(count):
        own = f"{name}.{i}"
        while own in taken:
            own += "_"
        taken.add(own)
        yield own
