"""What those who write out nodes and bodies need of the importer, so that they can be understood without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onnx import GraphProto, NodeProto

from ...errors import InvalidModel
from .frames import Binding, Frame, Written
from .limits import Limits
from .tensors import TensorReader


class Importing(Protocol):
    """An import that goes on; `importer.Importer` says what its functions do.

    Attributes:
        stack: the frames; the last one is imported next.
    """

    limits: Limits
    tensors: TensorReader
    stack: list[Frame]

    def count_call(self, where: str) -> None: ...

    def count_elements(self, count: int, where: str) -> None: ...

    def add_initializers(self, frame: Frame, proto: GraphProto) -> None: ...

    def define_outputs(self, frame: Frame, node: NodeProto, results: Sequence[Binding]) -> None: ...

    def poison(self, frame: Frame, node: NodeProto) -> None: ...

    def refuse(self, frame: Frame, node: NodeProto, written: Written, reason: str = "") -> None: ...

    def misfit(self, error: InvalidModel) -> None: ...
