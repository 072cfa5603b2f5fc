"""What passes know of other rooms and of the machine, handed in by who runs them.

A pass has a field for each of these facts that it asks for, of the fact's name: `given` fills them in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ..ir.call_rows import ANY, CallRows
from ..ir.graph import Node
from ..ir.ops.base import Operator
from .base import Pass
from .block.byte_products import never
from .block.round_products import always as worth_it
from .dataflow.write_in_place import Takes, always
from .node.constant_folding import Evaluate


@dataclass(frozen=True)
class Surroundings:
    """Facts from outside of the graph.

    Attributes:
        has_kernel: whether the backend serves an operator directly.
        takes: whether a node's kernel reads its operand, or writes its output, where that is a window.
        evaluate: computes one node on constants; None: nothing is folded.
        multiplies_bytes: whether the targets have instructions for a product of whole numbers by constant ones if its
            other operand is bytes.
        adds_quads: whether they all add four products of bytes in one instruction.
        cache_nbytes: of the last-level cache, a core's share.
        rounds_halves: whether each operator's result is rounded to f16 where the model says so.
        rounds_computed, gains_by_halves: see `RoundProducts`.
        calls: the bounds of open dimensions.
    """

    has_kernel: Callable[[Operator], bool] = lambda op: False
    takes: Takes = always
    evaluate: Evaluate | None = None
    multiplies_bytes: Callable[[Node], bool] = never
    adds_quads: bool = False
    cache_nbytes: float = 0.0
    rounds_halves: bool = False
    rounds_computed: bool = False
    gains_by_halves: Callable[[Node], bool] = worth_it
    calls: CallRows = ANY

    def given(self, kind: type[Pass]) -> dict[str, Any]:
        """Arguments of a pass: the facts that it has fields for."""
        mine = {f.name for f in fields(self)}
        return {f.name: getattr(self, f.name) for f in fields(kind) if f.name in mine}

    def make(self, kind: type[Pass], **options: Any) -> Pass:
        """A pass with these options, and the facts where they say nothing else."""
        return kind(**{**self.given(kind), **options})


__all__ = ["Surroundings"]
