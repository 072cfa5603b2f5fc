"""What a node costs, in arithmetic and bytes, for given sizes; and whether arithmetic, memory or calls bound it.

Owns the counts for every operator of the catalogue, fused nodes included (root + tail); views cost nothing. It must not
know kernels: how near to the machine's limits a kind of work comes is the machine description's.

Intensity is that of the ParaX paper (section 3), elements moved per multiply-add: for a convolution
I = 1/(Co·Dk²) + 1/(Ci·Dk²) + 1/(B·Df²).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace

from .graph import Graph, Node, Value
from .machine import Machine
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
from .views import view_source

KINDS = ("conv", "conv1x1", "conv3x3", "grouped", "few-channels", "depthwise", "conv-transpose", "matmul",
         "batched-matmul", "recurrent", "pool", "reduce", "norm", "softmax", "elementwise", "movement", "lookup",
         "host", "view")  # fmt: skip
TYPICAL = 32  # what a symbol without a given size is taken to be
FEW_CHANNELS = 8  # input channels of a group below which a tap is too short a run for the register tile
ITEM_ELEMENTS = 4096  # of an element-wise work item, about
ITEM_FLOPS = 100_000  # of a contraction's work item, at least
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
        weight_nbytes: of constants, as often as they are read (a recurrent layer reads them at every time step).
        parallel_items: pieces that cores can share, at least 1. kind: one of KINDS.
        near_nbytes, near_weight_nbytes: what of the activations and of the weights the caches serve
            (passes.partition.works finds out).
    """

    flops: float
    read_nbytes: float
    written_nbytes: float
    weight_nbytes: float
    parallel_items: int
    kind: str
    near_nbytes: float = 0.0
    near_weight_nbytes: float = 0.0

    @property
    def nbytes(self) -> float:
        """All bytes moved."""
        return self.read_nbytes + self.written_nbytes + self.weight_nbytes

    @property
    def far_nbytes(self) -> float:
        """Bytes that come from or go to memory."""
        return max(0.0, self.nbytes - self.near_nbytes - self.near_weight_nbytes)

    @property
    def far_weight_nbytes(self) -> float:
        """The part of them that are weights."""
        return max(0.0, self.weight_nbytes - self.near_weight_nbytes)

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
    if view_source(node) is not None or isinstance(node.op, (Shape, Result)):
        return NOTHING
    sizes = Sizes(symbols)
    tail: list[Node] = []
    root = node
    if node.body is not None and not isinstance(node.op, Control):
        root, *tail = node.body
    read, weights = _traffic(node, root, sizes)
    count = next((rule for class_, rule in RULES if isinstance(root.op, class_)), _moves)
    flops, items, kind = count(root, sizes)
    flops += sum(_elementwise_flops(n, sizes) for n in tail)
    written = sum(sizes.nbytes(v) for v in node.outputs)
    return Cost(float(flops), float(read), float(written), float(weights), max(1, int(items)), kind)


def training_cost(node: Node, symbols: Mapping[str, int]) -> Cost:
    """Forward, backward and update of a node, as one cost.

    Contractions: dX = dY·Wᵀ and dW = Xᵀ·dY take the forward's arithmetic each, so 3 times the flops; x and w are read
    twice, dy twice, dx and dw written. Normalisations read x for the statistics and again to scale, x and dy twice in
    the backward pass. Anything else: once more the flops, x or y and dy read, dx written. Update: w and its gradient
    read, w written, two flops a weight.
    """
    forward = node_cost(node, symbols)
    if forward.kind == "view":
        return forward
    read, written = forward.read_nbytes, forward.written_nbytes
    parameters = 0.0 if forward.kind == "lookup" else _distinct_weights(node)
    update = 3 * parameters
    flops = 2 * forward.flops + 2 * parameters / 4
    passes_in, passes_out = (2, 2)
    if forward.kind in CONTRACTIONS:
        flops = 3 * forward.flops + 2 * parameters / 4
        passes_in, passes_out = (3, 3)  # in: x, x, dx written; out: y written, dy, dy
    elif forward.kind == "norm":
        passes_in, passes_out = (5, 3)  # in: x twice, x twice, dx written; out: y written, dy twice
    elif forward.kind == "lookup":
        passes_in, passes_out = (1, 4)  # out: y written, dy read, rows of w read and written
    return replace(
        forward,
        flops=flops,
        read_nbytes=passes_in * read,
        written_nbytes=passes_out * written,
        weight_nbytes=(1 if forward.kind == "lookup" else 3) * forward.weight_nbytes + update,
    )


CONTRACTIONS = frozenset({"conv", "conv1x1", "conv3x3", "grouped", "few-channels", "depthwise", "conv-transpose",
                          "matmul", "batched-matmul", "recurrent"})  # fmt: skip


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
    read = weights = 0.0
    for i, v in enumerate(dict.fromkeys(node.operands)):
        nbytes = sizes.nbytes(v)
        if i == 0 and (picks or isinstance(root.op, (Movement, Scatter))):
            nbytes = min(nbytes, whole)  # only the rows that are asked for
        if v.data is not None:
            weights += nbytes * (_steps(root, sizes) if v.tensor.rank == 3 else 1)
        else:
            read += nbytes
    return read, weights


def _steps(root: Node, sizes: Sizes) -> int:
    """How often a recurrent layer reads its matrices: at every time step; 1 for anything else."""
    if not isinstance(root.op, Recurrent):
        return 1
    return max(1, sizes.shape(root.operands[0])[root.op.layout])


def _distinct_weights(node: Node) -> float:
    """Bytes of the node's constants."""
    return float(sum(v.data.nbytes for v in set(node.operands) if v.data is not None and v.data.ndim > 0))


Counted = tuple[float, float, str]
"""Flops, parallel items, kind."""


def _contraction_items(flops: float, outputs: int) -> float:
    return max(1, min(outputs // 16, flops // ITEM_FLOPS))


def _conv(node: Node, sizes: Sizes) -> Counted:
    op, w, y = node.op, sizes.shape(node.operands[1]), sizes.shape(node.output)
    assert isinstance(op, Conv)
    taps, inputs = math.prod(w[2:]), w[1]
    flops = 2 * math.prod(y) * inputs * taps
    kind = _conv_kind(op, inputs, w[0] // op.group, w[2:])
    return flops, _contraction_items(flops, math.prod(y)), kind


def _conv_kind(op: Conv, inputs: int, outputs: int, kernel: tuple[int, ...]) -> str:
    """Which family of kernels serves it; `inputs` and `outputs` are a group's channels."""
    if op.group > 1:
        return "depthwise" if inputs == 1 and outputs == 1 else "grouped"
    if inputs < FEW_CHANNELS:
        return "few-channels"
    if math.prod(kernel) == 1:
        return "conv1x1"
    plain = set(op.strides or (1,)) == {1} and set(op.dilations or (1,)) == {1}
    return "conv3x3" if kernel == (3, 3) and plain and inputs % 16 == 0 and outputs % 16 == 0 else "conv"


def _conv_transpose(node: Node, sizes: Sizes) -> Counted:
    flops = 2 * sizes.numel(node.operands[0]) * math.prod(sizes.shape(node.operands[1])[1:])
    return flops, _contraction_items(flops, sizes.numel(node.output)), "conv-transpose"


def _matmul(node: Node, sizes: Sizes) -> Counted:
    a, b = (sizes.shape(v) for v in node.operands[:2])
    depth = a[0] if isinstance(node.op, Gemm) and node.op.transA else a[-1]
    flops = 2 * sizes.numel(node.output) * depth
    kind = "matmul" if math.prod(b[:-2]) == 1 else "batched-matmul"
    return flops, _contraction_items(flops, sizes.numel(node.output)), kind


def _recurrent(node: Node, sizes: Sizes) -> Counted:
    op = node.op
    assert isinstance(op, Recurrent)
    x, r = sizes.shape(node.operands[0]), sizes.shape(node.operands[2])
    directions, gates, hidden = r
    batch = x[1 - op.layout]
    flops = 2 * x[0] * x[1] * directions * gates * (x[2] + hidden)
    return flops, directions * -(-batch // 8), "recurrent"


def _elementwise_flops(node: Node, sizes: Sizes) -> float:
    each = EXPENSIVE if node.op.name in TRANSCENDENTAL else 1
    return 0.0 if isinstance(node.op, Copy) else each * sizes.numel(node.output)


def _elementwise(node: Node, sizes: Sizes) -> Counted:
    return _elementwise_flops(node, sizes), sizes.numel(node.output) // ITEM_ELEMENTS, "elementwise"


def _reduce(node: Node, sizes: Sizes) -> Counted:
    return sizes.numel(node.operands[0]), max(1, sizes.numel(node.output) // 64), "reduce"


def _window(node: Node, sizes: Sizes) -> Counted:
    y = sizes.numel(node.output)
    return y * math.prod(getattr(node.op, "kernel_shape", ())), y // ITEM_ELEMENTS, "pool"


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
    summed = {f.name: sum(getattr(c, f.name) for c in listed) for f in fields(Cost) if f.type == "float"}
    return Cost(parallel_items=1, kind="view", **summed)
