"""What a node costs, in arithmetic and bytes, for given sizes; and whether arithmetic, memory or calls bound it.

Owns the counts for every operator of the catalogue, fused nodes included (root + tail); views cost nothing. It must not
know kernels: how near to the machine's limits a kind of work comes is the machine description's.

Intensity is that of the ParaX paper (section 3), elements moved per multiply-add: for a convolution
I = 1/(Co·Dk²) + 1/(Ci·Dk²) + 1/(B·Df²).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from .call_rows import ANY, CallRows
from .cost import Cost, CostRule, Sizes
from .fp import Fp
from .graph import Node
from .kernel_costs import LANES, as_the_kernel, groups_share_vectors, product_columns
from .machine import Machine
from .ops.attention import DotProductAttention
from .ops.base import Composite, Control, Elementwise, Host, Movement, Operator, Reduce, Relayout, Window
from .ops.contraction import Conv, ConvTranspose, Gemm, MatMul
from .ops.filling import Size
from .ops.gathering import Gather, GatherElements, GatherND, Scatter
from .ops.internal import Copy, Result
from .ops.normalization import BatchNormalization, Normalize
from .ops.recurrent import Recurrent
from .ops.reduce import ArgReduce, CumSum
from .ops.shape import Shape
from .ops.softmax import AlongAxis
from .views import computes
from .winograd import TILE_ROWS, USUAL, Pace, pace_of

KINDS = ("conv", "conv1x1", "winograd", "grouped", "few-channels", "depthwise", "conv-transpose", "matmul",
         "batched-matmul", "attention", "recurrent", "pool", "reduce", "norm", "softmax", "elementwise", "movement",
         "lookup", "host", "view")  # fmt: skip
FEW_CHANNELS = 8  # input channels of a group below which a tap is too short a run for the register tile
ITEM_ELEMENTS = 4096  # of an element-wise work item, about
PANEL = 64  # columns of a panel
EXPENSIVE, NORM_FLOPS, SOFTMAX_FLOPS = 12, 7, 16  # flops an element: a transcendental function, (x-m)/s·a+b, exp & sum
TRANSCENDENTAL = frozenset({"Sigmoid", "Tanh", "Exp", "Gelu", "Softplus", "Mish", "Swish", "Elu", "Selu", "Celu", "Pow",
                            "Erf", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh",
                            "Acosh", "Atanh"})  # fmt: skip


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
    read, weights = _traffic(node, root, sizes)
    flops, items, kind = _count(root, sizes)
    after = sum(_elementwise_flops(n, sizes) for n in tail)
    inner = [_count(n, sizes) for n in tail if not isinstance(n.op, Elementwise)]
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


def _count(node: Node, sizes: Sizes) -> Counted:
    """By the first rule that fits."""
    return next((rule for class_, rule in RULES if isinstance(node.op, class_)), _moves)(node, sizes)


def _traffic(node: Node, root: Node, sizes: Sizes) -> tuple[float, float]:
    """Bytes of activations and of constants that the node reads; `root` is its first operation."""
    picks = isinstance(root.op, (Gather, GatherElements, GatherND))
    whole = sum(sizes.nbytes(v) for v in node.outputs)
    read, weights, steps = 0.0, 0.0, _steps(root, sizes)
    for i, v in enumerate(dict.fromkeys(node.operands)):
        nbytes = sizes.nbytes(v)
        if i == 0 and (picks or isinstance(root.op, (Movement, Scatter))):
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


def _conv(node: Node, sizes: Sizes) -> Counted:
    op, w, y = node.op, sizes.shape(node.operands[1]), sizes.shape(node.output)
    assert isinstance(op, Conv)
    flops = 2 * math.prod(y) * math.prod(w[1:])
    kind = _conv_kind(op, w[1], w[0] // op.group, w[2:])
    pixels = y[0] * math.prod(y[2:])
    by_rows = kind == "depthwise" or groups_share_vectors(op, w)
    return flops, pixels // max(1, y[-1]) if by_rows else product_items(op.group, pixels, w[0] // op.group), kind


def _conv_kind(op: Conv, inputs: int, outputs: int, kernel: tuple[int, ...]) -> str:
    """Which family of kernels serves it; `inputs` and `outputs` are a group's channels."""
    if op.group > 1:
        return "depthwise" if inputs == 1 and outputs == 1 else "grouped"
    if inputs < FEW_CHANNELS:
        return "few-channels"
    if math.prod(kernel) == 1:
        return "conv1x1"
    plane = len(kernel) == 2 and set(op.dilations or (1,)) == {1}
    return "winograd" if plane and inputs % LANES == 0 and outputs % LANES == 0 else "conv"


def _conv_transpose(node: Node, sizes: Sizes) -> Counted:
    x, w = sizes.shape(node.operands[0]), sizes.shape(node.operands[1])
    flops = 2 * math.prod(x) * math.prod(w[1:])
    return flops, product_items(1, x[0] * math.prod(x[2:]), math.prod(w[1:])), "conv-transpose"


def _matmul(node: Node, sizes: Sizes) -> Counted:
    a, b = (sizes.shape(v) for v in node.operands[:2])
    depth = a[0] if isinstance(node.op, Gemm) and node.op.transA else a[-1]
    y = sizes.numel(node.output)
    columns = product_columns(node, sizes)
    outer = math.prod(b[:-2])
    kind = "matmul" if outer == 1 else "batched-matmul"
    return 2 * y * depth, product_items(outer, max(1, y // max(1, columns * outer)), columns), kind


def _attention(node: Node, sizes: Sizes) -> Counted:
    q, kt, v = (sizes.shape(x) for x in node.operands[:3])
    scores = math.prod(q[:-1]) * kt[-1]
    return scores * (2 * (q[-1] + v[-1]) + SOFTMAX_FLOPS), math.prod(q[:-2]), "attention"


def _recurrent(node: Node, sizes: Sizes) -> Counted:
    op = node.op
    assert isinstance(op, Recurrent)
    x, r = sizes.shape(node.operands[0]), sizes.shape(node.operands[2])
    directions, gates, hidden = r
    flops = 2 * x[0] * x[1] * directions * gates * (x[2] + hidden)
    return flops, -(-hidden // LANES), "recurrent"


def _elementwise_flops(node: Node, sizes: Sizes) -> float:
    if not isinstance(node.op, Elementwise):
        return 0.0
    each = EXPENSIVE if node.op.name in TRANSCENDENTAL else 1
    return 0.0 if isinstance(node.op, Copy) else each * sizes.numel(node.output)


def _rows(node: Node, sizes: Sizes) -> int:
    """Lines of the result along its innermost axis in memory; pieces of the only one."""
    shape = sizes.shape(node.output)
    if len(shape) < 2:
        return sizes.numel(node.output) // ITEM_ELEMENTS
    inner = shape[node.output.tensor.axis_order[-1]]
    return math.prod(shape) // max(1, inner)


def _elementwise(node: Node, sizes: Sizes) -> Counted:
    return _elementwise_flops(node, sizes), _rows(node, sizes), "elementwise"


def _reduce(node: Node, sizes: Sizes) -> Counted:
    return sizes.numel(node.operands[0]), max(1, sizes.numel(node.output) // 64), "reduce"


def _window(node: Node, sizes: Sizes) -> Counted:
    y = sizes.numel(node.output)
    return y * math.prod(getattr(node.op, "kernel_shape", ())), _rows(node, sizes), "pool"


def _per_line(flops: int, kind: str) -> Callable[[Node, Sizes], Counted]:
    def count(node: Node, sizes: Sizes) -> Counted:
        elements = sizes.numel(node.operands[0])
        return flops * elements, elements // ITEM_ELEMENTS, kind

    return count


def _lookup(node: Node, sizes: Sizes) -> Counted:
    return 0.0, sizes.numel(node.output) // ITEM_ELEMENTS, "lookup"


def _moves(node: Node, sizes: Sizes) -> Counted:
    return 0.0, sum(map(sizes.numel, node.outputs)) // ITEM_ELEMENTS, "movement"


def _host(node: Node, sizes: Sizes) -> Counted:
    """Steps in Python: an operator counts its elements, a control node one run of its bodies."""
    inside = sum(node_cost(n, sizes.symbols).flops for body in node.bodies.values() for n in body)
    return inside + sum(map(sizes.numel, node.outputs)), 1, "host"


def _composite(node: Node, sizes: Sizes) -> Counted:
    """An operator that the passes have not taken apart yet: a few flops for each element."""
    return 4 * sum(map(sizes.numel, node.outputs)), sizes.numel(node.output) // ITEM_ELEMENTS, "elementwise"


RULES: tuple[tuple[type[Operator], Callable[[Node, Sizes], Counted]], ...] = (
    (ConvTranspose, _conv_transpose), (Conv, _conv), (MatMul, _matmul), (Gemm, _matmul), (Recurrent, _recurrent),
    (DotProductAttention, _attention),
    (Normalize, _per_line(NORM_FLOPS, "norm")), (BatchNormalization, _per_line(NORM_FLOPS, "norm")),
    (AlongAxis, _per_line(SOFTMAX_FLOPS, "softmax")), (Elementwise, _elementwise), (Window, _window),
    (Reduce, _reduce), (ArgReduce, _reduce), (CumSum, _reduce), (Gather, _lookup), (GatherElements, _lookup),
    (GatherND, _lookup), (Scatter, _lookup), (Movement, _moves), (Relayout, _moves), (Composite, _composite),
    (Host, _host), (Control, _host),
)  # fmt: skip
"""The first class that fits counts. What is in none of them moves data: Split, Pad, Resize and their kin."""


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
