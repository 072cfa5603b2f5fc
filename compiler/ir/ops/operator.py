"""An operator: immutable attribute values under a declared signature; `@op` and the catalogue of all classes.

An operator class is named after the ONNX operator; its annotations are ONNX's inputs, outputs and attributes in
ONNX's order and spelling (inputs are positional, so their names are free). Nothing here knows graphs, files or how
kernels are made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import numpy as np

from ....errors import InternalError, UnsupportedOp
from ..types import Type
from .attribute_values import AttributeValues
from .context import InferContext
from .interfaces import Interfaces
from .signature import UnreadSignature

CATALOGUE: dict[tuple[str, str], type[Operator]] = {}
"""Every operator class by (domain, ONNX name). The domain "ai.onnx" is written ""."""


class Operator(AttributeValues, Interfaces):
    """One operator: its attribute values, and what its class says of it."""

    since: ClassVar[int]
    min_variadic: ClassVar[int] = 1
    deterministic: ClassVar[bool] = True
    """False for random operators: never folded, never merged."""

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
        cls.signature = UnreadSignature()  # type: ignore[assignment]
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
