"""What every operator says of itself, so that passes, cost model and planner need not know any by name.

Each kind or operator declares every one of `DECLARED`; nothing has a default that a new operator could inherit in
silence (the catalogue's tests demand them). What most operators are not has a default that is always safe.
"""

from __future__ import annotations

from typing import ClassVar

from .layout_policies import LayoutPolicy
from .row_rules import RowRule

DECLARED = ("row_axis", "layout_policy")


class Interfaces:
    """Declared by kinds of operators and by operators.

    Attributes:
        row_axis: rule for independent rows of a batch (`row_rules`); called as a method.
        layout_policy: which memory orders it likes and gives (`layout_policies`).
        shape_operand: the operand that says how large the result is, and not what is in it.
        repeats_elements: whether the result only repeats elements, as often as `shape_operand` says.
    """

    row_axis: ClassVar[RowRule]
    layout_policy: ClassVar[LayoutPolicy]
    shape_operand: ClassVar[int | None] = None
    repeats_elements: ClassVar[bool] = False
