"""An operator: immutable attribute values under a declared signature; `@op` and the catalogue of all classes.

An operator class is named after the ONNX operator; its annotations are ONNX's inputs, outputs and attributes in
ONNX's order and spelling (inputs are positional, so their names are free). Nothing here knows graphs, files or how
kernels are made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any as PyAny
from typing import ClassVar, TypeVar

import numpy as np

from ....errors import InternalError, InvalidModel, ParaxError, UnsupportedOp
from ..types import Type
from .attributes import attribute_key, canonical
from .context import InferContext
from .interfaces import Interfaces
from .signature import Signature, read_signature

CATALOGUE: dict[tuple[str, str], type[Operator]] = {}
"""Every operator class by (domain, ONNX name). The domain "ai.onnx" is written ""."""


class Operator(Interfaces):
    """Attribute values of one operator; immutable, equal and hashable by class and values."""

    name: ClassVar[str]
    domain: ClassVar[str]
    since: ClassVar[int]
    signature: ClassVar[Signature]
    min_variadic: ClassVar[int] = 1
    deterministic: ClassVar[bool] = True
    """False for random operators: never folded, never merged."""

    def __init__(self, **attributes: PyAny) -> None:
        self._bind(attributes, None)

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, PyAny], node_name: str = "") -> Operator:
        """As the constructor; errors name the node."""
        self = cls.__new__(cls)
        self._bind(attributes, f'{cls.name} "{node_name}"' if node_name else None)
        return self

    def _bind(self, attributes: Mapping[str, PyAny], where: str | None) -> None:
        declared = self.signature.attributes
        where = where or self.name
        for name in attributes:
            if name not in declared:
                expected = ", ".join(declared) or "no attributes"
                raise InvalidModel(f"unknown attribute {name}", where=where, expected=expected)
        key: list[PyAny] = [self.domain, self.name]
        for name, spec in declared.items():
            if name not in attributes and spec.required:
                raise InvalidModel(f"required attribute {name} is missing", where=where, expected=spec.kind)
            try:
                value = canonical(spec, attributes.get(name, spec.default))
            except ParaxError as error:
                raise type(error)(
                    error.message, where=where, expected=error.expected, found=error.found, hint=error.hint
                ) from None
            object.__setattr__(self, name, value)
            key.append(attribute_key(spec.kind, value))
        object.__setattr__(self, "_key", tuple(key))
        object.__setattr__(self, "_hash", hash(self._key))

    _key: tuple[PyAny, ...]
    _hash: int

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self.name} operators are immutable")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Operator) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.explicit_attributes().items())})"

    def key(self) -> tuple[PyAny, ...]:
        """Hashable identity: domain, name and attribute values (arrays by bytes)."""
        return self._key

    def attributes(self) -> dict[str, PyAny]:
        """All attributes with their values, defaults included; None ones left out."""
        values = {name: getattr(self, name) for name in self.signature.attributes}
        return {name: value for name, value in values.items() if value is not None}

    def explicit_attributes(self) -> dict[str, PyAny]:
        """The attributes whose value is not the default."""
        out = {}
        for name, spec in self.signature.attributes.items():
            value = getattr(self, name)
            if spec.required or attribute_key(spec.kind, value) != attribute_key(
                spec.kind, canonical(spec, spec.default)
            ):
                out[name] = value
        return out

    def replace(self, **changes: PyAny) -> Operator:
        """A copy with some attributes changed."""
        return type(self).from_attributes({**self.attributes(), **changes})

    @abstractmethod
    def infer(self, ctx: InferContext) -> Sequence[Type]:
        """Types of the `ctx.n_outputs` outputs (more may be returned). Fails through `ctx.fail`."""
        raise NotImplementedError(f"{self.name}.infer")

    def known(self, ctx: InferContext) -> np.ndarray | list[np.ndarray | None] | None:
        """Integer content of output 0 (or a list, one entry per output) as object arrays of Dims; None if unknown."""
        return None


C = TypeVar("C", bound=type[Operator])


def op(*, since: int = 1, domain: str = "", name: str | None = None) -> Callable[[C], C]:
    """Registers an operator class. `since`: the first opset whose semantics the class has; older ones are upgraded."""

    def register(cls: C) -> C:
        cls.name, cls.domain, cls.since = name or cls.__name__, domain, since
        cls.signature = read_signature(cls, cls.min_variadic)
        key = (domain, cls.name)
        if key in CATALOGUE and CATALOGUE[key].__module__ != cls.__module__:
            raise InternalError("operator defined twice", where=f"{domain}::{cls.name}", found=cls.__module__)
        CATALOGUE[key] = cls
        return cls

    return register


def lookup(domain: str, name: str, where: str | None = None) -> type[Operator]:
    """The class of an operator. Raises UnsupportedOp if the catalogue has none."""
    domain = "" if domain == "ai.onnx" else domain
    found = CATALOGUE.get((domain, name))
    if found is None:
        shown = f"{domain}::{name}" if domain else name
        raise UnsupportedOp(f"operator {shown} is not supported", where=where)
    return found
