"""What a node costs, in arithmetic and bytes, for given sizes.

Owns the sums, fused nodes included (root + tail; views cost nothing). What an operator computes it says itself
(`Operator.work`); into how many pieces kernels of a kind cut it, and what they do where that is not the direct
algorithm, say the `KernelCosts` that the caller hands in; how near to the machine's limits a kind of work comes is the
machine description's.

Intensity is that of the ParaX paper (section 3), elements moved per multiply-add: for a convolution
I = 1/(Co·Dk²) + 1/(Ci·Dk²) + 1/(B·Df²).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..ir.call_rows import ANY, CallRows
from ..ir.fp import Fp
from ..ir.graph import Node
from ..ir.ops.base import Control, Elementwise
from ..ir.ops.internal import Result
from ..ir.ops.work_rules import Shapes, Work
from ..ir.views import computes
from ..targets.machine import Machine
from .cost import Cost, Sizes

NOTHING = Cost(0.0, 0.0, 0.0, 0.0, 1, "view")


@dataclass(frozen=True)
class RoundedProducts:
    """Products by constant f32 matrices, of operands that are rounded to another type.

    Attributes:
        speed: products that a core starts in a cycle, in times of f32's. nbytes: of a packed element.
    """

    speed: float
    nbytes: int


@dataclass(frozen=True)
class Choice:
    """What kernels were chosen for: a level of floating-point arithmetic, a machine (None: any), calls, and what
    products are rounded to (None: nothing).
    """

    fp: Fp = Fp.DEFAULT
    machine: Machine | None = None
    calls: CallRows = ANY
    rounded: RoundedProducts | None = None


UNKNOWN = Choice()
"""What kernels are chosen for where nobody says anything."""


@dataclass(frozen=True)
class KernelCosts:
    """What the kernels of a kind of work do.

    Attributes:
        items: pieces that cores can share. kind: which family of kernels serves a node, where the operator leaves that
            open. counts: the cost with what the kernel does where that is not the direct algorithm, of the node's first
            operation and the flops of its tail.
    """

    items: Callable[[Node, Sizes], int]
    kind: Callable[[Node, Sizes], str] | None = None
    counts: Callable[[Cost, Node, Sizes, float, Choice], Cost] | None = None


KernelTable = Mapping[str, KernelCosts]
"""Kind of work, as operators say it → what its kernels do."""

_Counted = tuple[float, int, str]
"""Flops, parallel items, kind."""


def node_cost(node: Node, symbols: Mapping[str, int], kernels: KernelTable, choice: Choice) -> Cost:
    """The cost of a node of an optimised graph.

    Args:
        symbols: sizes of the symbolic dimensions; those that are not given (sizes known only at run time) are TYPICAL.
        kernels: of every kind of work.
    """
    if not computes(node) or isinstance(node.op, Result):
        return NOTHING
    sizes = Sizes(symbols)
    tail: list[Node] = []
    root = node
    if node.body is not None and not isinstance(node.op, Control):
        root, *tail = node.body
    work = _work(root, sizes)
    read, weights = _traffic(node, work, sizes)
    flops, items, kind = _count(root, work, sizes, kernels)
    after = sum(_work(n, sizes).flops for n in tail if isinstance(n.op, Elementwise))
    inner = [_count(n, _work(n, sizes), sizes, kernels) for n in tail if not isinstance(n.op, Elementwise)]
    if inner:  # several contractions in one kernel: it is of the heaviest's kind
        heaviest = max([(flops, items, kind), *inner], key=lambda counted: counted[0])
        flops, (_, items, kind) = flops + sum(counted[0] for counted in inner), heaviest
    written = sum(sizes.nbytes(v) for v in node.outputs)
    cost = Cost(float(flops + after), float(read), float(written), float(weights), max(1, int(items)), kind,
                work.meetings)  # fmt: skip
    counts = None if inner else kernels[work.kind].counts
    return counts(cost, root, sizes, after, choice) if counts else cost


def direct_flops(node: Node) -> float:
    """Arithmetic of a node that is not fused, bodies included, by the direct algorithm and with typical sizes."""
    return _flops(node, _work(node, Sizes({})), Sizes({}))


def _count(node: Node, work: Work, sizes: Sizes, kernels: KernelTable) -> _Counted:
    """What the operator says that it computes, and into how many pieces kernels of its kind cut it."""
    own = kernels[work.kind]
    return _flops(node, work, sizes), own.items(node, sizes), own.kind(node, sizes) if own.kind else work.kind


def _flops(node: Node, work: Work, sizes: Sizes) -> float:
    bodies = (n for body in node.bodies.values() for n in body if computes(n))  # once each
    return work.flops + sum(_flops(n, _work(n, sizes), sizes) for n in bodies)


def _work(node: Node, sizes: Sizes) -> Work:
    operands = [None if v is None else sizes.shape(v) for v in node.inputs]
    return node.op.work(Shapes(operands, [sizes.shape(v) for v in node.outputs]))


def _traffic(node: Node, work: Work, sizes: Sizes) -> tuple[float, float]:
    """Bytes of activations and of constants that the node reads; `work` is its first operation's."""
    if not work.reads:
        return 0.0, 0.0
    whole = sum(sizes.nbytes(v) for v in node.outputs)
    read, weights = 0.0, 0.0
    for i, v in enumerate(dict.fromkeys(node.operands)):
        nbytes = sizes.nbytes(v)
        if i == 0 and work.selects:
            nbytes = min(nbytes, whole)  # only the rows that are asked for
        if v.data is not None:
            weights += nbytes * work.times_read.get(i, 1)
        else:
            read += nbytes
    return read, weights


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
