"""What each operator of a model computes and moves, and what bounds it on a machine: `parax inspect --costs`.

Owns the list. How costs are counted is `costs`' knowledge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError
from ..costs.cost import Cost
from ..costs.node_cost import total_cost
from ..targets.machine import Machine
from .planner import Planner


@dataclass(frozen=True)
class OperatorCosts:
    """The operators of an optimised model in order, but for views, each by the name of the model's node.

    Attributes:
        machine: that `bound` refers to. rows: of a request.
    """

    machine: Machine
    rows: int
    operators: tuple[tuple[str, Cost], ...]

    @property
    def total(self) -> Cost:
        """Of all of them."""
        return total_cost(cost for _, cost in self.operators)

    def to_json(self) -> dict[str, Any]:
        """For --format json: flops and bytes of a request; f32 elements moved per multiply-add, null without any."""
        return {
            "machine": self.machine.name, "simulated": self.machine.simulated, "rows": self.rows,
            "operators": [
                {"name": name, "kind": cost.kind, "flops": cost.flops, "nbytes": cost.nbytes,
                 "weight_nbytes": cost.weight_nbytes, "bound": cost.bound(self.machine),
                 "intensity": cost.intensity if math.isfinite(cost.intensity) else None}
                for name, cost in self.operators
            ],
        }  # fmt: skip


def operator_costs(planner: Planner, rows: int | None) -> OperatorCosts:
    """The costs of the operators of a planner's graph.

    Args:
        planner: for the hint latency. rows: of a request (default 1).

    Raises:
        UsageError: rows for a fixed batch.
    """
    load = planner.load(rows)
    if rows is not None and load.rows != rows:
        raise UsageError("the model's batch is fixed", where="--batch", expected=load.rows, found=rows)
    sizes = planner.predictor.sizes(load.rows)
    costs = [(node.name or f"%{node.output.name}", planner.cost(node, sizes)) for node in planner.graph]
    return OperatorCosts(planner.machine, load.rows, tuple((name, c) for name, c in costs if c.kind != "view"))


__all__ = ["OperatorCosts", "operator_costs"]
