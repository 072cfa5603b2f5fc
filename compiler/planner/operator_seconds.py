"""What the cost model says that the operators of a profile take, beside what was measured.

Owns the way back from a plan to its graph, and from a profile to the sizes and cores of a native call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..backend.costs import costs_at
from ..ir.call_rows import ANY
from ..ir.fp import Fp
from ..ir.text import parse_graph
from ..targets.machine import Machine
from .partition.works import graph_works, seconds_alone

if TYPE_CHECKING:
    from ...runtime.plan import Plan


def add_predictions(document: dict[str, Any], plan: Plan, machine: Machine) -> None:
    """Set `predicted` of a profile's operators: seconds of a request, as their `seconds` are counted.

    Args:
        document: the profile's JSON form. plan: whose graph it was. machine: that it ran on.
    """
    shown = document["shown"]
    if shown is None or not document["sizes"] or plan.graph is None:
        return
    calls = document["native_calls"] / max(1, document["requests"])
    beside = max(1, shown["instances"])
    shared = replace(machine, bandwidth_per_socket=machine.bandwidth_per_socket / beside)
    costs = _costs(plan, _sizes(document, plan, calls), machine, beside, max(1, shown["cores_each"]))
    n_cores = max(1, len(document["cores"]))
    for own in document["operators"]:
        cost = costs.get(own["value"])
        if cost is not None and own["cores"]:
            alone = seconds_alone(cost, shared, own["cores"])
            own["predicted"] = alone * own["cores"] * calls / n_cores


def _sizes(document: dict[str, Any], plan: Plan, calls: float) -> dict[str, int]:
    """The open dimensions' values in a native call of most requests."""
    most = max(document["sizes"], key=lambda own: own["requests"])
    sizes = {name: value for name, value in most.items() if name != "requests"}
    batch = plan.manifest.batch
    if batch is not None and batch.symbol in sizes:
        sizes[batch.symbol] = -(-sizes[batch.symbol] // max(1, round(calls)))
    return sizes


def _costs(
    plan: Plan, sizes: Mapping[str, int], machine: Machine, instances: int, cores_each: int
) -> dict[str, Any]:  # fmt: skip
    """First output of every node of the plan's own graph → its cost."""
    graph = parse_graph(plan.graph or "")
    fp = Fp(plan.manifest.provenance.get("fp", Fp.DEFAULT.value))
    works = graph_works(graph, sizes, costs_at(fp, machine, ANY), machine.caches(instances, cores_each))
    return {node.output.name: work.cost for node, work in zip(graph, works, strict=True)}
