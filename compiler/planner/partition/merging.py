"""Which sibling convolutions to merge on a machine: the horizontal merge asked of the cost model.

Owns the decision; the rewrite is `block/merge_convolutions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...backend.costs import node_cost
from ...costs.cost import Cost, CostRule
from ...ir.graph import Graph, Node
from ...passes.block.merge_convolutions import MergeConvolutions
from ...passes.rewrite import Rewriter
from ...targets.machine import Machine
from .branches import Branches, TaskTimes
from .dag import Dag
from .works import Work, seconds_alone


def merge_where_it_pays(
    graph: Graph, machine: Machine, n_cores: int, symbols: Mapping[str, int], rule: CostRule = node_cost
) -> bool:
    """Merge sibling convolutions whose merged form is predicted to be faster than they are side by side or in sequence.

    Merged convolutions may round differently.

    Args:
        n_cores: of the instance. symbols: sizes of symbolic dimensions to decide for. rule: what a node costs.
    """
    cache = machine.l3_nbytes + n_cores * machine.l2_nbytes

    def cost(node: Node) -> Cost:
        found = rule(node, symbols)
        near = found.read_nbytes + found.written_nbytes
        return replace(found, near_nbytes=near) if near <= cache else found

    def pays(before: Sequence[Node], after: Sequence[Node]) -> bool:
        works = [Work(node.output.name, cost(node)) for node in before]
        siblings = Branches(Dag([[]] * len(before)), TaskTimes(works, machine), n_cores)
        merged = sum(seconds_alone(cost(node), machine, n_cores) for node in after)
        return merged < siblings.seconds(siblings.dag.everything)

    return MergeConvolutions(pays).run(graph, Rewriter(graph))


__all__ = ["merge_where_it_pays"]
