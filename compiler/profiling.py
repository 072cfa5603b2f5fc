"""What a plan that is built to record says of its kernel calls: whose they are, and what they compute and move.

Owns the notes under "profile" in such a plan's provenance, which runtime/profiling reads:

    operators: of each its `value` (first output), `op`, `names` in the model, `flops`, `nbytes` and, where the plan
               lays its memory out, `live`: bytes of the arena in use while it runs; all three are dimensions
    calls: segment by segment, of each kernel call [number of its operator, name of its function]
    hosts: first output of a step that Python runs → number of its operator
    machine: what the plan was made for, where it was measured or guessed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..runtime.profiling.notes import PROFILE
from .backend.lower import Segment
from .ir.graph import Graph, Node, Value
from .ir.ops.base import Control
from .ir.types import STR, Dim, TensorType, dim_to_json
from .ir.views import Home, MemoryPlan, computes, homes
from .manifest_steps import all_blocks
from .passes.dataflow.split_steps import Block, HostStep, native_steps
from .targets.machine import Machine

MACHINE_FIELDS = ("name", "flops_per_core", "bandwidth_per_core", "bandwidth_per_socket", "l2_bandwidth_per_core")


def notes(
    block: Block, segments: Sequence[Segment], memory: Sequence[MemoryPlan], machine: Machine | None
) -> dict[str, Any]:  # fmt: skip
    """The notes as JSON values.

    Args:
        block: the plan's steps. segments, memory: of its native steps, in order.
        machine: that the plan is for.
    """
    operators: list[dict[str, Any]] = []
    calls = []
    for step, segment, plan in zip(native_steps(block.steps), segments, memory, strict=True):
        live = live_nbytes(step.graph, plan)
        number: dict[str, int] = {}
        listed = []
        for placed in segment.calls:
            if placed.value not in number:
                number[placed.value] = len(operators)
                node = step.graph.value(placed.value).producer
                assert node is not None
                operators.append({**_operator(node), "flops": 0, "nbytes": 0, "live": dim_to_json(live[node])})
            own = operators[number[placed.value]]
            own["flops"] = own["flops"] + placed.call.flops
            own["nbytes"] = own["nbytes"] + placed.call.nbytes
            listed.append([number[placed.value], placed.call.func.name])
        calls.append(listed)
    hosts = {}
    for host in _host_steps(block):
        hosts[_key(host)] = len(operators)
        operators.append({**_operator(host.node), "flops": 0, "nbytes": 0, "live": None})
    for own in operators:
        own |= {key: dim_to_json(own[key]) for key in ("flops", "nbytes")}
    described = {key: getattr(machine, key) for key in MACHINE_FIELDS} if machine is not None else None
    return {"operators": operators, "calls": calls, "hosts": hosts, "machine": described}


def _host_steps(block: Block) -> Iterator[HostStep]:
    return (step for inner in all_blocks(block) for step in inner.steps
            if isinstance(step, HostStep) and not (step.is_native and not step.is_led))


def _key(step: HostStep) -> str:
    return next((name for name in step.outputs if name is not None), "")


def _operator(node: Node) -> dict[str, Any]:
    """What people know the node by: a fused one is several of the model's."""
    parts = [node] if node.body is None or isinstance(node.op, Control) else list(node.body)
    names = dict.fromkeys(name for part in (node, *parts) for name in _names(part))
    return {"value": node.outputs[0].name, "op": "+".join(part.op.name for part in parts), "names": list(names)}


def _names(node: Node) -> list[str]:
    return [node.name] if node.name else []


def live_nbytes(graph: Graph, plan: MemoryPlan) -> dict[Node, Dim]:
    """Bytes of the arena that hold a value while each node runs, one node after the other."""
    home_of = homes(graph)

    def owner(v: Value) -> Value:
        return home_of.get(v, Home(v)).value

    steps = [node for node in graph if computes(node)]
    last = {owner(v): i for i, node in enumerate(steps) for v in node.operands}
    dying: dict[int, list[Value]] = {}
    held: dict[Dim, Value] = {}  # place in the arena → what it holds
    found: dict[Node, Dim] = {}
    for i, node in enumerate(steps):
        for v in dict.fromkeys(map(owner, node.outputs)):
            if v in plan.offsets and isinstance(v.type, TensorType):
                held[plan.offsets[v]] = v
                dying.setdefault(max(i, last.get(v, i)), []).append(v)
        found[node] = sum((v.tensor.nbytes for v in held.values() if v.tensor.dtype != STR), start=0)
        for v in dying.pop(i, ()):
            if held.get(plan.offsets[v]) is v:
                del held[plan.offsets[v]]
    return found


__all__ = ["PROFILE", "live_nbytes", "notes"]
