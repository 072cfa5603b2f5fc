"""What a node costs, in arithmetic and bytes, for given sizes; and whether arithmetic, memory or calls bound it.

Owns the counts for every operator of the catalogue, fused nodes included (root + tail); views cost nothing. It must not
know kernels: how near to the machine's limits a kind of work comes is the machine description's.

Intensity is that of the ParaX paper (section 3), elements moved per multiply-add: for a convolution
I = 1/(Co·Dk²) + 1/(Ci·Dk²) + 1/(B·Df²).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from . import winograd
from .graph import Graph, Node, Value
from .machine import Machine
from .ops.attention import DotProductAttention
from .ops.base import Composite, Control, Elementwise, Host, Movement, Operator, Reduce, Relayout, Window
from .ops.contraction import Conv, ConvTranspose, Gemm, MatMul
from .ops.gathering import Gather, GatherElements, GatherND, Scatter
from .ops.internal import Copy, Result
from .ops.normalization import BatchNormalization, Normalize
from .ops.recurrent import Recurrent
from .ops.reduce import ArgReduce, CumSum
from .ops.shape import Shape
from .ops.softmax import AlongAxis
from .types import Dim, SymDim, TensorType
from .views import computes

KINDS = ("conv", "conv1x1", "winograd", "grouped", "few-channels", "depthwise", "conv-transpose", "matmul",
         "batched-matmul", "attention", "recurrent", "pool", "reduce", "norm", "softmax", "elementwise", "movement",
         "lookup", "host", "view")  # fmt: skip
TYPICAL = 32  # what a symbol without a given size is taken to be
FEW_CHANNELS = 8  # input channels of a group below which a tap is too short a run for the register tile
ITEM_ELEMENTS = 4096  # of an element-wise work item, about
PANEL = 64  # columns of a panel
TILE_ROWS = 6  # rows of the register tile
LANES = 16  # f32 elements of the widest vectors
EXPENSIVE, NORM_FLOPS, SOFTMAX_FLOPS = 12, 7, 16  # flops an element: a transcendental function, (x-m)/s·a+b, exp & sum
TRANSCENDENTAL = frozenset({"Sigmoid", "Tanh", "Exp", "Gelu", "Softplus", "Mish", "Swish", "Elu", "Selu", "Celu", "Pow",
                            "Erf", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh",
                            "Acosh", "Atanh"})  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What one run of a node does.

    Attributes:
        flops: arithmetic by the direct algorithm, a multiply-add is two.
        read_nbytes: of activations, each operand once. written_nbytes: of results.
        weight_nbytes: of constants, as often as they are read (a recurrent layer reads R at every time step).
        parallel_items: pieces that cores can share, at least 1. kind: one of KINDS.
        meetings: how often its cores meet before its end, at every time step of a recurrent layer.
        kernel_flops, kernel_weight_nbytes: what parax's kernel does and reads where that is not the direct algorithm's
            (Winograd, vectors padded with idle lanes, taps in the padding left out); None: the same.
        near_nbytes, near_weight_nbytes: what of the activations and of the weights the caches serve, l2_nbytes: what of
            both the core's own second-level cache serves (passes.partition.residency finds out).
    """

    flops: float
    read_nbytes: float
    written_nbytes: float
    weight_nbytes: float
    parallel_items: int
    kind: str
    meetings: int = 0
    kernel_flops: float | None = None
    kernel_weight_nbytes: float | None = None
    near_nbytes: float = 0.0
    near_weight_nbytes: float = 0.0
    l2_nbytes: float = 0.0

    @property
    def nbytes(self) -> float:
        """All bytes moved by the direct algorithm."""
        return self.read_nbytes + self.written_nbytes + self.weight_nbytes

    @property
    def arithmetic(self) -> float:
        """Flops that the kernel does."""
        return self.flops if self.kernel_flops is None else self.kernel_flops

    @property
    def streamed_nbytes(self) -> float:
        """Bytes of constants that the kernel reads."""
        return self.weight_nbytes if self.kernel_weight_nbytes is None else self.kernel_weight_nbytes

    @property
    def cached_nbytes(self) -> float:
        """Bytes that the caches serve, of any level."""
        return self.near_nbytes + self.near_weight_nbytes

    @property
    def far_weight_nbytes(self) -> float:
        """Bytes of constants that come from memory."""
        return max(0.0, self.streamed_nbytes - self.near_weight_nbytes)

    @property
    def far_nbytes(self) -> float:
        """Bytes that cross to memory and back: a line that is written is fetched first, so results count twice."""
        touched = self.read_nbytes + self.written_nbytes
        if not touched:
            return self.far_weight_nbytes
        away = max(0.0, 1 - self.near_nbytes / touched)
        return away * (self.read_nbytes + 2 * self.written_nbytes) + self.far_weight_nbytes

    @property
    def intensity(self) -> float:
        """f32 elements moved per multiply-add; infinite where nothing is computed."""
        return self.nbytes / 4 / (self.flops / 2) if self.flops else math.inf

    def bound(self, machine: Machine) -> str:
        """What limits it on all cores: "call" where neither takes as long as a hand-off, else "memory" or "compute"."""
        compute, memory = self.flops / machine.flops, self.nbytes / machine.bandwidth
        if max(compute, memory) < machine.call_seconds:
            return "call"
        return "memory" if memory > compute else "compute"


NOTHING = Cost(0.0, 0.0, 0.0, 0.0, 1, "view")


def node_cost(node: Node, symbols: Mapping[str, int]) -> Cost:
    """The cost of a node of an optimised graph.

    Args:
        symbols: sizes of the symbolic dimensions; those that are not given (sizes known only at run time) are TYPICAL.
    """
    if not computes(node) or isinstance(node.op, (Shape, Result)):
        return NOTHING
    sizes = Sizes(symbols)
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
    return _as_the_kernel(cost, root, sizes, after) if isinstance(root.op, Conv) else cost


def _count(node: Node, sizes: Sizes) -> Counted:
    """By the first rule that fits."""
    return next((rule for class_, rule in RULES if isinstance(node.op, class_)), _moves)(node, sizes)


@dataclass(frozen=True)
class Sizes:
    """Sizes of tensors for given symbols."""

    symbols: Mapping[str, int]

    def of(self, dim: Dim) -> int:
        """A dimension."""
        if not isinstance(dim, SymDim):
            return dim
        return dim.evaluate({name: self.symbols.get(name, TYPICAL) for name in dim.symbols()})

    def shape(self, v: Value) -> tuple[int, ...]:
        """All dimensions; (TYPICAL,) where not even the rank is known."""
        if not isinstance(v.type, TensorType) or v.type.shape is None:
            return (TYPICAL,)
        return tuple(map(self.of, v.type.shape))

    def numel(self, v: Value) -> int:
        """Elements."""
        return math.prod(self.shape(v))

    def nbytes(self, v: Value) -> float:
        """Bytes; four an element where the type is not known."""
        bits = v.type.dtype.bits if isinstance(v.type, TensorType) else 32
        return self.numel(v) * bits / 8


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


def _as_the_kernel(cost: Cost, root: Node, sizes: Sizes, tail_flops: float) -> Cost:
    """A convolution's cost with what its kernel does, where that differs from the direct algorithm."""
    op = root.op
    assert isinstance(op, Conv)
    w = sizes.shape(root.operands[1])
    direct = cost.flops - tail_flops
    if cost.kind == "winograd":
        layer = _layer(op, root, sizes)
        best = winograd.best_algorithm(layer, LANES)
        if best is None:
            return replace(cost, kind="conv")
        cycles = winograd.kernel_cycles(layer, best, LANES, TILE_ROWS)
        return replace(cost, kernel_flops=2 * LANES * cycles + tail_flops,
                       parallel_items=winograd.items(layer, best, LANES, TILE_ROWS),
                       kernel_weight_nbytes=cost.weight_nbytes * best.all_points / math.prod(layer.taps))  # fmt: skip
    if cost.kind == "depthwise":
        return replace(cost, kernel_flops=direct * _inner_taps(op, root) + tail_flops)
    per_group = w[0] // op.group
    padded = -(-per_group // LANES) * LANES / per_group if per_group < LANES and not _side_by_side(op, w) else 1.0
    return replace(cost, kernel_flops=direct * padded + tail_flops) if padded > 1 else cost


def _layer(op: Conv, root: Node, sizes: Sizes) -> winograd.Layer:
    w, y = sizes.shape(root.operands[1]), sizes.shape(root.output)
    strides = tuple(op.strides or (1, 1))
    return winograd.Layer(y[0], w[1], w[0], (w[2], w[3]), (strides[0], strides[1]), (y[2], y[3]))


def _inner_taps(op: Conv, root: Node) -> float:
    """The share of all taps that read the input rather than padding."""
    geometry = op.geometry(root.operands[0].tensor, root.operands[1].tensor)
    share = 1.0
    for k, s, d, p, n, out in zip(geometry.kernel, geometry.strides, geometry.dilations, geometry.pads_begin,
                                  geometry.input, geometry.output, strict=True):  # fmt: skip
        if isinstance(p, int) and isinstance(n, int) and isinstance(out, int):
            inside = sum(0 <= o * s - p + t * d < n for o in range(out) for t in range(k))
            share *= inside / (out * k)
    return share


def _conv(node: Node, sizes: Sizes) -> Counted:
    op, w, y = node.op, sizes.shape(node.operands[1]), sizes.shape(node.output)
    assert isinstance(op, Conv)
    flops = 2 * math.prod(y) * math.prod(w[1:])
    kind = _conv_kind(op, w[1], w[0] // op.group, w[2:])
    pixels = y[0] * math.prod(y[2:])
    by_rows = kind == "depthwise" or _side_by_side(op, w)
    return flops, pixels // max(1, y[-1]) if by_rows else product_items(op.group, pixels, w[0] // op.group), kind


def _side_by_side(op: Conv, w: tuple[int, ...]) -> bool:
    """Whether registers hold several groups, each lane reading its own group's inputs: no zeros are multiplied."""
    return op.group > 1 and w[-1] > 1 and 1 < w[1] == w[0] // op.group and LANES % w[1] == 0


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
    columns = b[0 if isinstance(node.op, Gemm) and node.op.transB else -1] if len(b) > 1 else 1
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


def graph_cost(graph: Graph, symbols: Mapping[str, int]) -> Cost:
    """All nodes of a graph as one cost, for totals; its kind and items are meaningless."""
    return total_cost(node_cost(node, symbols) for node in graph)


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
