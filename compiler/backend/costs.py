"""The costs of nodes as native kernels serve them: the kernels' own counts, handed to the cost model.

Owns the table of kinds of work. Families that choose among algorithms keep their counts beside their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from ..costs.cost import Cost, CostRule, Sizes
from ..costs.node_cost import UNKNOWN, Choice, KernelCosts, RoundedProducts
from ..costs.node_cost import node_cost as cost_with
from ..ir.call_rows import ANY, CallRows
from ..ir.fp import Fp
from ..ir.graph import Node
from ..ir.ops.tree_walk import ROWS as TREE_ROWS
from ..ir.types import F32, DType
from ..targets.machine import Machine
from ..targets.target import Target
from .kernels.conv import cost as conv
from .kernels.matmul import cost as matmul
from .microkernels.table import has_instruction, products_of_f32s

ITEM_ELEMENTS = 4096  # of an element-wise work item, about


def _queries(node: Node, sizes: Sizes) -> int:
    return math.prod(sizes.shape(node.operands[0])[:-1])


def _hidden_vectors(node: Node, sizes: Sizes) -> int:
    return -(-sizes.shape(node.operands[2])[2] // matmul.LANES)


def _lines(node: Node, sizes: Sizes) -> int:
    """Along the innermost axis of the result in memory; pieces of the only one."""
    shape = sizes.shape(node.output)
    if len(shape) < 2:
        return sizes.numel(node.output) // ITEM_ELEMENTS
    inner = shape[node.output.tensor.axis_order[-1]]
    return math.prod(shape) // max(1, inner)


def _results(node: Node, sizes: Sizes) -> int:
    return max(1, sizes.numel(node.output) // 64)


def _of_first_operand(node: Node, sizes: Sizes) -> int:
    return sizes.numel(node.operands[0]) // ITEM_ELEMENTS


def _of_results(node: Node, sizes: Sizes) -> int:
    return sum(map(sizes.numel, node.outputs)) // ITEM_ELEMENTS


def _tree_items(node: Node, sizes: Sizes) -> int:
    parts, rows, _ = sizes.shape(node.output)
    return parts * -(-rows // TREE_ROWS)


def _one(node: Node, sizes: Sizes) -> int:
    return 1


NATIVE: dict[str, KernelCosts] = {
    "conv": conv.CONVOLUTION, "conv-transpose": conv.TRANSPOSED, "matmul": matmul.PRODUCT,
    "attention": KernelCosts(_queries), "recurrent": KernelCosts(_hidden_vectors),
    **dict.fromkeys(("pool", "elementwise"), KernelCosts(_lines)), "reduce": KernelCosts(_results),
    **dict.fromkeys(("norm", "softmax"), KernelCosts(_of_first_operand)),
    **dict.fromkeys(("movement", "lookup"), KernelCosts(_of_results)),
    **dict.fromkeys(("host", "view"), KernelCosts(_one)), "trees": KernelCosts(_tree_items),
}  # fmt: skip
"""Kind of work, as operators say it → what its kernels do."""
KINDS = tuple(dict.fromkeys((*conv.KINDS, *matmul.KINDS, *NATIVE)))
"""What a cost's kind may be."""


def node_cost(node: Node, symbols: Mapping[str, int], choice: Choice = UNKNOWN) -> Cost:
    """The cost of a node of an optimised graph, by the kernels of a choice.

    Args:
        symbols: sizes of the symbolic dimensions; those that are not given (sizes known only at run time) are TYPICAL.
    """
    return cost_with(node, symbols, NATIVE, choice)


def costs_at(
    fp: Fp, machine: Machine | None = None, calls: CallRows = ANY, rounded: RoundedProducts | None = None
) -> CostRule:
    """`node_cost` at a level of floating-point arithmetic, of the kernels that are chosen for a machine and calls."""
    return partial(node_cost, choice=Choice(fp, machine, calls, rounded))


def rounded_products(target: Target, to: DType) -> RoundedProducts | None:
    """What products cost a target whose operands are rounded to a type; None: it has no tiles for that."""
    if to == F32 or not has_instruction(target, to):
        return None
    return RoundedProducts(products_of_f32s(target, to), to.nbytes)
