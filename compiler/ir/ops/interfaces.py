"""What every operator says of itself, so that passes, cost model and planner need not know any by name.

Each kind or operator declares every one of `DECLARED`; nothing has a default that a new operator could inherit in
silence (the catalogue's tests demand them). What most operators have nothing to say of has a default that is always
safe. Gradients of element-wise operators, reductions and movements follow from what these compute or move; other
operators declare theirs. Quantised arithmetic gets its place here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..types import Dim
from .backward import Backward
from .context import InferContext
from .layout_policies import LayoutPolicy
from .row_rules import RowRule
from .work_rules import WorkRule

DECLARED = ("row_axis", "layout_policy", "work", "fusion_root")


@dataclass(frozen=True)
class IndexRange:
    """Operand `operand` holds indices, from `low` to `high`."""

    operand: int
    low: Dim
    high: Dim


class Interfaces:
    """Declared by kinds of operators and by operators.

    Attributes:
        row_axis: rule for independent rows of a batch (`row_rules`); called as a method.
        layout_policy: which memory orders it likes and gives (`layout_policies`).
        work: rule for what it computes and which kind of work that is (`work_rules`); called as a method.
        fusion_root: whether its kernels apply element-wise operators to the result that they are about to write.
        shape_operand: the operand that says how large the result is, and not what is in it.
        repeats_elements: whether the result only repeats elements, as often as `shape_operand` says.
        zeros_by_default: optional operands that, omitted, are zeros.
        keeps_order: whether each element of its one result is one of its one operand, which their order alone chooses,
            so that an increasing function of each may as well be taken of the result.
        picks_elements: whether each element of its one result is one of its first operand, where the others say, so
            that any function of each may as well be taken of the result.
    """

    row_axis: ClassVar[RowRule]
    layout_policy: ClassVar[LayoutPolicy]
    work: ClassVar[WorkRule]
    fusion_root: ClassVar[bool]
    shape_operand: ClassVar[int | None] = None
    repeats_elements: ClassVar[bool] = False
    zeros_by_default: ClassVar[tuple[int, ...]] = ()
    keeps_order: ClassVar[bool] = False
    picks_elements: ClassVar[bool] = False

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        """Which operand is an index into another one's axis, None if none is; ranks are known."""
        return None

    def training_form(self, ctx: InferContext) -> Any:
        """The operator that is computed where a gradient is asked for: of the same operands and results, and behind
        these what its gradient reads. None: the operator itself.
        """
        return None

    def first_alone(self) -> Any:
        """The operator that computes the first of several results alone, of the same operands; None: there is none."""
        return None

    def gradient(self, back: Backward) -> Sequence[Any] | None:
        """Gradients of the operands, in order (None where one has none or none is wanted); None: not declared.

        Not asked of integers' results. Raises UnsupportedOp for what has a gradient that is not known here.
        """
        return None
