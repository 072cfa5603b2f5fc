"""The attribute values of one operator under its signature: checked, immutable, comparable.

Owns what rules about operators (rows, memory orders, work) are asked with; it must not know these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any as PyAny
from typing import ClassVar, TypeVar

from ....errors import InvalidModel, ParaxError
from .attributes import attribute_key, canonical
from .signature import Signature

V = TypeVar("V", bound="AttributeValues")


class AttributeValues:
    """Attribute values of one operator; immutable, equal and hashable by class and values."""

    name: ClassVar[str]
    domain: ClassVar[str]
    signature: ClassVar[Signature]

    def __init__(self, **attributes: PyAny) -> None:
        self._bind(attributes, None)

    @classmethod
    def from_attributes(cls: type[V], attributes: Mapping[str, PyAny], node_name: str = "") -> V:
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
        return self is other or (isinstance(other, AttributeValues) and self._key == other._key)

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

    def replace(self: V, **changes: PyAny) -> V:
        """A copy with some attributes changed."""
        return type(self).from_attributes({**self.attributes(), **changes})


__all__ = ["AttributeValues"]
