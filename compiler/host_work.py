"""Which operators of a model the runtime executes in Python, outside of native code, and how much of the work that is.

Owns the counting. The work is arithmetic, whatever the machine: results of an operator on the host count one operation
for each element, and of control flow the body counts once, its native stretches as native.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UnsupportedOp, UnsupportedUse
from ..runtime.control import CONTROL_OPS
from ..runtime.host_ops import HOST_OPS
from .backend.costs import node_cost
from .costs.cost import Sizes
from .manifest_steps import all_blocks
from .passes.dataflow.split_steps import Block, HostStep

OUTSIDE = "outside native code"  # under which a plan's provenance says so


@dataclass(frozen=True)
class HostWork:
    """What runs outside of native code.

    Attributes:
        operators: operator → how many of its nodes. n_native: nodes that native code runs.
        share: of the model's operations, 0..1, open dimensions taken to be of a typical size.
    """

    operators: Mapping[str, int]
    n_native: int
    share: float

    def to_json(self) -> dict[str, Any]:
        """For documents."""
        return asdict(self)

    def __str__(self) -> str:
        listed = ", ".join(f"{name} × {count}" for name, count in self.operators.items())
        n = sum(self.operators.values())
        return f"{n} of {n + self.n_native} operators ({listed}), {self.share:.1%} of the arithmetic"


def host_work(block: Block) -> HostWork:
    """What of a model's steps, those of bodies included, the runtime executes itself."""
    names: Counter[str] = Counter()
    n_native, host, native = 0, 0.0, 0.0
    for step in (step for inner in all_blocks(block) for step in inner.steps):
        if isinstance(step, HostStep) and step.is_native:
            n_native += 1
        elif isinstance(step, HostStep):
            names[step.node.op.name] += 1
            host += sum(map(Sizes({}).numel, step.node.outputs))
        else:
            costs = [node_cost(node, {}) for node in step.graph]
            n_native += sum(cost.kind != "view" for cost in costs)
            native += sum(cost.flops for cost in costs)
    return HostWork(dict(names.most_common()), n_native, host / (host + native) if host else 0.0)


def refused_on_host(block: Block) -> list[UnsupportedOp]:
    """An error for each host step, those of bodies included, that the runtime has no function for."""
    refused = []
    for step in (step for inner in all_blocks(block) for step in inner.steps):
        if isinstance(step, HostStep):
            op = step.node.op
            if (op.domain, op.name) not in HOST_OPS and op.name not in CONTROL_OPS:
                types = ", ".join(str(v.type) for v in step.node.operands)
                use = UnsupportedUse(op.name, None, step.node.where, f"not supported for {types}")
                error = UnsupportedOp("not supported for these types", where=use.node, found=types, uses=[use])
                refused.append(error)
    return refused
