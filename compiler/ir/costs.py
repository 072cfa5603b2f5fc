"""What a node costs, in arithmetic and bytes, for given sizes; and whether arithmetic, memory or calls bound it.

Owns the sums, fused nodes included (root + tail; views cost nothing), and into how many pieces each kind of work is
cut. What an operator computes it says itself (`Operator.work`); how near to the machine's limits a kind of work comes
is the machine description's.

Intensity is that of the ParaX paper (section 3), elements moved per multiply-add: for a convolution
I = 1/(Co·Dk²) + 1/(Ci·Dk²) + 1/(B·Df²).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from ..targets.machine import Machine
from .call_rows import ANY, CallRows
from .cost import Cost, CostRule, Sizes
from .fp import Fp
from .graph import Node
from .kernel_costs import LANES, as_the_kernel, groups_share_vectors, product_columns
from .ops.base import Control, Elementwise
from .ops.contraction import Conv
from .ops.filling import Size
from .ops.internal import Result
from .ops.recurrent import Recurrent
from .ops.shape import Shape
from .ops.work_rules import Shapes, Work
from .views import computes
from .winograd import TILE_ROWS, USUAL, Pace, pace_of

KINDS = ("conv", "conv1x1", "winograd", "grouped", "few-channels", "depthwise", "conv-transpose", "matmul",
         "batched-matmul", "attention", "recurrent", "pool", "reduce", "norm", "softmax", "elementwise", "movement",
         "lookup", "host", "view")  # fmt: skip
FEW_CHANNELS = 8  # input channels of a group below which a tap is too short a run for the register tile
ITEM_ELEMENTS = 4096  # of an element-wise work item, about
PANEL = 64  # columns of a panel

NOTHING = Cost(0.0, 0.0, 0.0, 0.0, 1, "view")


def costs_at(fp: Fp, machine: Machine | None = None, calls: CallRows = ANY) -> CostRule:
    """`node_cost` at a level of floating-point arithmetic, of the kernels that are chosen for a machine and calls."""
    return partial(node_cost, fp=fp, pace=pace_of(machine, LANES), calls=calls)


def node_cost(
    node: Node, symbols: Mapping[str, int], fp: Fp = Fp.DEFAULT, pace: Pace = USUAL, calls: CallRows = ANY
) -> Cost:
    """The cost of a node of an optimised graph.

    Args:
        symbols: sizes of the symbolic dimensions; those that are not given (sizes known only at run time) are TYPICAL.
        fp: which algorithms its kernel may use. pace: of the machine, calls: those that the kernel was chosen for.
    """
    if not computes(node) or isinstance(node.op, Result):
        return NOTHING
    sizes = Sizes(symbols)
    if isinstance(node.op, (Shape, Size)):  # reads nothing, but is no view: it writes, and its users must wait for it
        return Cost(0.0, 0.0, float(sizes.nbytes(node.output)), 0.0, 1, "movement")
    tail: list[Node] = []
    root = node
    if node.body is not None and not isinstance(node.op, Control):
        root, *tail = node.body
    work = _work(root, sizes)
    read, weights = _traffic(node, root, work.selects, sizes)
    flops, items, kind = _count(root, work, sizes)
    after = sum(_work(n, sizes).flops for n in tail if isinstance(n.op, Elementwise))
    inner = [_count(n, _work(n, sizes), sizes) for n in tail if not isinstance(n.op, Elementwise)]
    if inner:  # several contractions in one kernel: it is of the heaviest's kind
        heaviest = max([(flops, items, kind), *inner], key=lambda counted: counted[0])
        flops, (_, items, kind) = flops + sum(counted[0] for counted in inner), heaviest
        written = sum(sizes.nbytes(v) for v in node.outputs)
        return Cost(float(flops + after), float(read), float(written), float(weights), max(1, int(items)), kind)
    written = sum(sizes.nbytes(v) for v in node.outputs)
    cost = Cost(float(flops + after), float(read), float(written), float(weights), max(1, int(items)), kind)
    if isinstance(root.op, Recurrent):
        return replace(cost, meetings=_steps(root, sizes) * sizes.shape(root.operands[2])[0])
    return as_the_kernel(cost, root, sizes, after, fp, pace, calls)


def _count(node: Node, work: Work, sizes: Sizes) -> Counted:
    """What the operator says that it computes, and into how many pieces kernels of its kind cut it."""
    kind = KERNEL_KINDS[work.kind](node, sizes) if work.kind in KERNEL_KINDS else work.kind
    inside = sum(node_cost(n, sizes.symbols).flops for body in node.bodies.values() for n in body)  # once each
    return work.flops + inside, ITEMS[kind](node, sizes), kind


def _work(node: Node, sizes: Sizes) -> Work:
    operands = [None if v is None else sizes.shape(v) for v in node.inputs]
    return node.op.work(Shapes(operands, [sizes.shape(v) for v in node.outputs]))


def _traffic(node: Node, root: Node, selects: bool, sizes: Sizes) -> tuple[float, float]:
    """Bytes of activations and of constants that the node reads; `root` is its first operation."""
    whole = sum(sizes.nbytes(v) for v in node.outputs)
    read, weights, steps = 0.0, 0.0, _steps(root, sizes)
    for i, v in enumerate(dict.fromkeys(node.operands)):
        nbytes = sizes.nbytes(v)
        if i == 0 and selects:
            nbytes = min(nbytes, whole)  # only the rows that are asked for
        if v.data is not None:
            weights += nbytes * (steps if i == 2 else 1)  # R
        else:
            read += nbytes
    return read, weights


def _steps(root: Node, sizes: Sizes) -> int:
    """How often a recurrent layer reads R: at every time step (W's product is taken for all of them at once)."""
    if not isinstance(root.op, Recurrent):
        return 1
    return max(1, sizes.shape(root.operands[0])[root.op.layout])


Counted = tuple[float, float, str]
"""Flops, parallel items, kind."""


def product_items(outer: int, rows: int, columns: int) -> int:
    """Pieces into which kernels may cut `outer` products, so that cores finish together: register tiles × panels."""
    return outer * -(-rows // (2 * TILE_ROWS)) * -(-columns // PANEL)


# -- kinds: which family of kernels serves a node, where the operator leaves that open
def _conv_kind(node: Node, sizes: Sizes) -> str:
    op, w = node.op, sizes.shape(node.operands[1])
    assert isinstance(op, Conv)
    inputs, outputs, kernel = w[1], w[0] // op.group, w[2:]  # channels are a group's
    if op.group > 1:
        return "depthwise" if inputs == 1 and outputs == 1 else "grouped"
    if inputs < FEW_CHANNELS:
        return "few-channels"
    if math.prod(kernel) == 1:
        return "conv1x1"
    plane = len(kernel) == 2 and set(op.dilations or (1,)) == {1}
    return "winograd" if plane and inputs % LANES == 0 and outputs % LANES == 0 else "conv"


def _matmul_kind(node: Node, sizes: Sizes) -> str:
    return "matmul" if math.prod(sizes.shape(node.operands[1])[:-2]) == 1 else "batched-matmul"


KERNEL_KINDS: dict[str, Callable[[Node, Sizes], str]] = {"conv": _conv_kind, "matmul": _matmul_kind}


# -- items: pieces that cores can share
def _conv(node: Node, sizes: Sizes) -> int:
    op, w, y = node.op, sizes.shape(node.operands[1]), sizes.shape(node.output)
    assert isinstance(op, Conv)
    return product_items(op.group, y[0] * math.prod(y[2:]), w[0] // op.group)


def _image_rows(node: Node, sizes: Sizes) -> int:
    y = sizes.shape(node.output)
    return y[0] * math.prod(y[2:]) // max(1, y[-1])


def _grouped(node: Node, sizes: Sizes) -> int:
    assert isinstance(node.op, Conv)
    shared = groups_share_vectors(node.op, sizes.shape(node.operands[1]))
    return _image_rows(node, sizes) if shared else _conv(node, sizes)


def _conv_transpose(node: Node, sizes: Sizes) -> int:
    x, w = sizes.shape(node.operands[0]), sizes.shape(node.operands[1])
    return product_items(1, x[0] * math.prod(x[2:]), math.prod(w[1:]))


def _matmul(node: Node, sizes: Sizes) -> int:
    outer, columns = math.prod(sizes.shape(node.operands[1])[:-2]), product_columns(node, sizes)
    return product_items(outer, max(1, sizes.numel(node.output) // max(1, columns * outer)), columns)


def _attention(node: Node, sizes: Sizes) -> int:
    return math.prod(sizes.shape(node.operands[0])[:-2])


def _recurrent(node: Node, sizes: Sizes) -> int:
    return -(-sizes.shape(node.operands[2])[2] // LANES)


def _lines(node: Node, sizes: Sizes) -> int:
    """Along the innermost axis of the result in memory; pieces of the only one."""
    shape = sizes.shape(node.output)
    if len(shape) < 2:
        return sizes.numel(node.output) // ITEM_ELEMENTS
    inner = shape[node.output.tensor.axis_order[-1]]
    return math.prod(shape) // max(1, inner)


def _reduce(node: Node, sizes: Sizes) -> int:
    return max(1, sizes.numel(node.output) // 64)


def _of_first_operand(node: Node, sizes: Sizes) -> int:
    return sizes.numel(node.operands[0]) // ITEM_ELEMENTS


def _of_results(node: Node, sizes: Sizes) -> int:
    return sum(map(sizes.numel, node.outputs)) // ITEM_ELEMENTS


def _one(node: Node, sizes: Sizes) -> int:
    return 1


ITEMS: dict[str, Callable[[Node, Sizes], int]] = {
    **dict.fromkeys(("conv", "conv1x1", "winograd", "few-channels"), _conv), "grouped": _grouped,
    "depthwise": _image_rows, "conv-transpose": _conv_transpose, **dict.fromkeys(("matmul", "batched-matmul"), _matmul),
    "attention": _attention, "recurrent": _recurrent, **dict.fromkeys(("pool", "elementwise"), _lines),
    "reduce": _reduce, **dict.fromkeys(("norm", "softmax"), _of_first_operand),
    **dict.fromkeys(("movement", "lookup"), _of_results), **dict.fromkeys(("host", "view"), _one),
}  # fmt: skip


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum of costs."""
    listed = list(costs)
    return Cost(
        flops=sum(c.flops for c in listed), read_nbytes=sum(c.read_nbytes for c in listed),
        written_nbytes=sum(c.written_nbytes for c in listed), weight_nbytes=sum(c.weight_nbytes for c in listed),
        parallel_items=1, kind="view", kernel_flops=sum(c.arithmetic for c in listed),
        kernel_weight_nbytes=sum(c.streamed_nbytes for c in listed), near_nbytes=sum(c.near_nbytes for c in listed),
        near_weight_nbytes=sum(c.near_weight_nbytes for c in listed), l2_nbytes=sum(c.l2_nbytes for c in listed),
    )  # fmt: skip
