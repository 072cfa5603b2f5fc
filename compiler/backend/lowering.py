"""What every kernel generator receives and returns: the context, the call record, the registry by operator class.

Owns the table from operator classes to kernel generators and the sharing of equal kernels and equal packed weights.
It must not know any one kernel, LLVM or the plan's format.
"""

from __future__ import annotations

import math
import mmap
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from ...errors import UnsupportedOp
from ..ir import bands
from ..ir.call_rows import ANY, CallRows
from ..ir.fp import Fp
from ..ir.graph import Graph, Node, Value
from ..ir.open_sums import is_open_sum
from ..ir.ops.base import Contraction, Operator
from ..ir.types import F32, Dim, DType, TensorType
from ..kernel_ir.builder import Builder, kernel
from ..kernel_ir.loops import KFunc, PtrType
from ..targets.machine import Machine
from ..targets.target import Target

_HUGE_NBYTES = 4 << 20  # of memory from which on large pages are asked for


@dataclass(frozen=True)
class Weight:
    """A constant at a 64-byte aligned offset of weights.bin."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class Scratch:
    """Working memory of one core inside one kernel call, 64-byte aligned, contents undefined."""

    nbytes: Dim


@dataclass(frozen=True)
class SharedScratch:
    """Working memory that all cores of one kernel call share, 64-byte aligned, contents undefined."""

    nbytes: Dim


@dataclass(frozen=True)
class BarrierSlot:
    """The word in which the cores of one kernel call meet (`Builder.meet`)."""


@dataclass(frozen=True)
class OffsetOperand:
    """A value from `offset` bytes on."""

    value: Value
    offset: int


Operand: TypeAlias = "Value | Weight | Scratch | SharedScratch | BarrierSlot | OffsetOperand"


@dataclass(frozen=True)
class KernelCall:
    """One kernel to run: operands in the order of the function's pointer parameters.

    Attributes:
        work: number of independent work items; cores split [0, work).
        label: provenance for dumps and profiles (ONNX node name).
        flops, nbytes: arithmetic and compulsory memory traffic of the call, for reports (0 = not counted).
        moves_alike: it only copies the first operand's elements, each to where it lies in the second: nothing is left
            to do where both lie at one address.
        rounded_to: what operands are rounded to that the model has in a wider type; None: nothing.

    A call with a `BarrierSlot` among its operands waits inside for the cores that have its other items: all of
    [0, work) must be given out at once, one range to a core, none of them queued behind another.
    """

    func: KFunc
    operands: tuple[Operand, ...]
    work: Dim
    label: str = ""
    flops: Dim = 0
    nbytes: Dim = 0
    rounded_to: DType | None = None
    moves_alike: bool = False

    @property
    def meets(self) -> bool:
        """Whether its cores wait for each other inside the kernel."""
        return any(isinstance(o, BarrierSlot) for o in self.operands)


Candidates: TypeAlias = "dict[str, Callable[[LowerContext], KernelCall]]"
"""Ways to compute one node: name → what makes the kernel call. The one that a cost model expects to win comes first."""


class Chooser(Protocol):
    """Who decides between candidates."""

    def choose(self, ctx: LowerContext, node: Node, candidates: Candidates) -> str:
        """The name of one of them."""


class WeightStore:
    """weights.bin while it is built: aligned, equal contents stored once, all in memory that grows without copies.

    What kernels want in another order than the model's is written here at once, band after band (`ir/bands.py`): a
    packed copy beside the store would be what a compilation takes at most.
    """

    ALIGN = 64

    def __init__(self) -> None:
        self.nbytes = 0
        self._memory: mmap.mmap | None = None
        self._seen: dict[tuple[int, int], list[Weight]] = {}

    def add(self, array: np.ndarray) -> Weight:
        """Store the elements of `array` in C order."""
        return self.make(array.shape, array.dtype, lambda place: bands.copy(place, array))

    def make(self, shape: Sequence[int], dtype: DTypeLike, fill: Callable[[np.ndarray], None]) -> Weight:
        """Store an array that is made where it stays.

        Args:
            fill: writes it over zeros, in memory that it must not keep.
        """
        weight = Weight(self.nbytes, math.prod(shape) * np.dtype(dtype).itemsize)
        self.nbytes += -(-max(weight.nbytes, 1) // self.ALIGN) * self.ALIGN
        self._reserve()
        content = self._view(weight)
        fill(content.view(dtype).reshape(shape))
        alike = self._seen.setdefault((zlib.crc32(content.data), weight.nbytes), [])
        for other in alike:
            if bands.equal(self._view(other), content):
                content[:] = 0
                self.nbytes = weight.offset
                return other
        alike.append(weight)
        return weight

    def _view(self, weight: Weight) -> np.ndarray:
        """A weight's bytes; must not be kept, as memory that is looked at cannot grow."""
        assert self._memory is not None
        return np.frombuffer(self._memory, np.uint8, weight.nbytes, weight.offset)

    def _reserve(self) -> None:
        if self._memory is None:
            self._memory = mmap.mmap(-1, _page(self.nbytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        elif self.nbytes > len(self._memory):
            self._memory.resize(_page(self.nbytes * 3 // 2))  # pages that nobody touches cost nothing
        else:
            return
        if len(self._memory) >= _HUGE_NBYTES:
            self._memory.madvise(mmap.MADV_HUGEPAGE)

    def to_bytes(self) -> memoryview:
        """The whole blob, on an aligned address so that nobody need copy it. Nothing can be added afterwards."""
        return memoryview(self._memory)[: self.nbytes] if self._memory is not None else memoryview(b"")


def _page(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


@dataclass
class LowerContext:
    """Everything a kernel generator may ask for.

    Attributes:
        target: the machine the code is for. symbols: the plan's symbolic dimensions, in `dims` order.
        weights: where packed constants go. errors: texts of run-time error sites; site numbers start at 1.
        fp: which algorithms other than sums of the model's own products may be used.
        rows: of the batch that a call is expected to bring, where their number is symbolic: what work is cut for.
        calls: those that candidates are ranked for.
        chooser: picks between candidates; None: the first.
        cores: numbers of cores an instance may have; work is cut so that each of them finishes together.
        machine: what ranks candidates; None: a usual one.
        matmul_input: what operands of products by constant f32 matrices are rounded to where the target multiplies it.
    """

    target: Target
    symbols: tuple[str, ...]
    weights: WeightStore
    errors: list[str] = field(default_factory=list)
    fp: Fp = Fp.DEFAULT
    rows: int = 1
    calls: CallRows = ANY
    chooser: Chooser | None = None
    cores: tuple[int, ...] = (1, 2, 4)
    machine: Machine | None = None
    matmul_input: DType = F32
    functions: dict[tuple, KFunc] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        """f32 elements of a vector register."""
        return self.target.f32_lanes

    @property
    def n_cores(self) -> int:
        """Those that share a call; of an unknown machine, one."""
        return 1 if self.machine is None else self.machine.cores_per_socket * self.machine.n_sockets

    def function(self, kind: str, node: Node, build: Callable[[str], KFunc], *extra: object) -> KFunc:
        """The kernel for this node, built once for all nodes of equal operator, types and fused body.

        Behind anything but long sums every operation rounds by itself, as in the model: floors and casts see the last
        bit.

        Args:
            kind: name stem. build: makes the function under the given unique name.
            extra: whatever else `build` depends on that is not in the node's operator, types and body.
        """
        key = (kind, node_signature(node), extra)
        if key not in self.functions:
            made = build(f"{kind}_{len(self.functions)}")
            root = node if node.body is None else next(iter(node.body))
            made.exact = made.exact or not is_open_sum(root)
            self.functions[key] = made
        return self.functions[key]

    def pick(self, node: Node, candidates: Candidates) -> KernelCall:
        """The kernel call of the candidate that the chooser takes."""
        first = next(iter(candidates))
        return candidates[self.chooser.choose(self, node, candidates) if self.chooser else first](self)

    def kernel(self, name: str, operands: Sequence[tuple[str, PtrType]]) -> Builder:
        """A builder in the kernels' calling convention."""
        return kernel(name, operands, self.symbols)

    def error_site(self, node: Node, message: str) -> int:
        """A number for `Builder.fail` that the runtime turns into `message`."""
        self.errors.append(f"{node.op.name} \"{node.name}\": {message}")
        return len(self.errors)


def node_signature(node: Node) -> tuple:
    """Equal for nodes that one kernel function can serve: operators, types, which operands are one value; not names."""
    number: dict[Value | None, int] = {}
    head = (node.op.key(), tuple(str(v.type) if v is not None else None for v in node.inputs),
            tuple(str(v.type) for v in node.outputs), tuple(number.setdefault(v, len(number)) for v in node.inputs))
    return head if node.body is None else (*head, graph_signature(node.body))


def graph_signature(graph: Graph) -> tuple:
    """Structure of a fused body with values numbered in order of appearance."""
    number = {v: i for i, v in enumerate(graph.inputs)}
    rows: list[tuple] = []

    def ref(v: Value | None) -> object:
        if v is None:
            return None
        if v.data is not None and v.producer is None:
            return ("const", str(v.type), v.data.tobytes())
        return number[v]

    for node in graph:
        rows.append((node_signature(node), tuple(ref(v) for v in node.inputs)))
        for v in node.outputs:
            number[v] = len(number)
    return (*rows, tuple(ref(v) for v in graph.outputs))


Lowering = Callable[[LowerContext, Node], "KernelCall | list[KernelCall]"]
Windows = Literal["none", "rows", "any"]
LOWERINGS: dict[type[Operator], Lowering] = {}
WINDOWS: dict[type[Operator], tuple[Windows, Windows]] = {}


def lowers(
    *classes: type[Operator], windows: Windows = "none", read: Windows | None = None
) -> Callable[[Lowering], Lowering]:
    """Register a kernel generator for operator classes (or kinds: the nearest base class wins).

    For a fused block the class of its root decides; `Fusion.of(node)` shows root and tail alike for both cases.

    Args:
        windows: which windows of other tensors its kernels read and write: those of rows one pitch apart, or any.
        read: which the root's first operand may be, where that is another answer.
    """

    def register(fn: Lowering) -> Lowering:
        for c in classes:
            LOWERINGS[c] = fn
            WINDOWS[c] = windows, windows if read is None else read
        return fn

    return register


def lowering_of(op: Operator) -> Lowering | None:
    """The kernel generator of an operator, None if it has none."""
    return next((LOWERINGS[c] for c in type(op).__mro__ if c in LOWERINGS), None)


def takes_window(node: Node, v: Value, t: TensorType) -> bool:
    """Whether the node's kernel reads its operand, or writes its output, `v` where that is a window of type `t`."""
    if t.is_contiguous:
        return True
    root, inner = node, [v]
    if node.body is not None:
        root = next(iter(node.body))
        inner = [b for b, o in zip(node.body.inputs, node.inputs, strict=True) if o is v]
    windows, read = next((WINDOWS[c] for c in type(root.op).__mro__ if c in WINDOWS), ("none", "none"))
    first = bool(inner) and all(w is root.inputs[0] for w in inner) and v not in node.outputs
    uses = [n for n in (node.body or ()) if n is not root and any(w in n.inputs for w in inner)]
    if first and not uses:
        windows = read
    if windows == "rows" and not (t.has_rows and isinstance(t.pitch, int)):
        return False
    if windows == "none" or len(node.outputs) > 1:
        return False
    if not isinstance(root.op, Contraction):
        return True
    # kernels of groups, and of chains of convolutions, read pixels that lie side by side
    several = node.body is not None and sum(isinstance(n.op, Contraction) for n in node.body) > 1
    beside = several or getattr(root.op, "group", 1) != 1
    return all(w not in inner for w in (root.inputs if beside else root.inputs[1:]))


def unsupported(node: Node, reason: str) -> UnsupportedOp:
    """The error for a node that no kernel serves."""
    return UnsupportedOp(f"no kernel: {reason}", where=f"{node.op.name} \"{node.name}\"",
                         found=", ".join(str(v.type) if v is not None else "-" for v in node.inputs))
