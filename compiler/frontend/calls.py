"""One operator call while it is being imported: operands are IR values, attributes Python values.

Upgrades change calls; the importer turns the result into a node. Knows nothing of protobuf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...errors import InvalidModel, UnsupportedOp
from ..ir.graph import Value
from ..ir.types import Shape


@dataclass
class Call:
    """An operator with its operands.

    Attributes:
        version: the operator set that introduced the form in which `attributes` and `inputs` are.
        opset: the operator set that the model imports.
        attributes: values by name, defaults of that version filled in; `defaulted` names those filled in.
        n_outputs: how many outputs the model names.
        present: for every output whether its name is not empty.
    """

    domain: str
    op: str
    opset: int
    version: int
    inputs: list[Value | None]
    n_outputs: int
    attributes: dict[str, Any]
    name: str
    defaulted: set[str] = field(default_factory=set)
    present: tuple[bool, ...] = ()

    @property
    def where(self) -> str:
        """How errors name the node."""
        return f'{self.op} "{self.name}"' if self.name else self.op

    @property
    def label(self) -> str:
        """How lists of unsupported operators name it."""
        return f"{self.domain or 'ai.onnx'}::{self.op}-{self.version}"

    def pop(self, name: str, default: Any = None) -> Any:
        """Takes an attribute out of the call."""
        self.defaulted.discard(name)
        return self.attributes.pop(name, default)

    def input(self, index: int) -> Value | None:
        """Operand `index`, None if omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def need(self, index: int) -> Value:
        """Operand `index`, which must be given. Raises InvalidModel."""
        value = self.input(index)
        if value is None:
            self.fail(f"input {index} is missing")
        return value

    def set_input(self, index: int, value: Value | None) -> None:
        """Sets operand `index`, omitting those before it that are not given."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = value

    def shape(self, index: int) -> Shape:
        """Shape of operand `index`. Raises InvalidModel if its rank is unknown."""
        return self.need(index).tensor.dims

    def become(self, op: str, version: int, **attributes: Any) -> None:
        """Turns the call into one of another operator; its attributes are replaced."""
        self.op, self.version, self.attributes, self.defaulted = op, version, dict(attributes), set()

    def fail(self, message: str, expected: object = None, found: object = None) -> NoReturn:
        """Raises InvalidModel that names the node."""
        raise InvalidModel(message, where=self.where, expected=expected, found=found)

    def unsupported(self, message: str) -> NoReturn:
        """Raises UnsupportedOp that names the node."""
        raise UnsupportedOp(message, where=self.where)
