"""One small kernel or two for each kind of work, ready to be timed: what share of the peak the kind gets in the caches.

Owns the reference nodes and their memory. Knows no timing; calibration measures.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..costs.cost import Cost
from ..costs.node_cost import Choice
from ..ir.fp import Fp
from ..ir.graph import Graph, Node, Value
from ..ir.ops import lookup
from ..ir.types import BF16, F32, DType, TensorType
from ..targets.machine import Machine
from ..targets.target import Target
from .costs import node_cost
from .emit_llvm import ModuleEmitter
from .jit import Loaded
from .lower import physical_array
from .lowering import (
    BarrierSlot,
    KernelCall,
    LowerContext,
    OffsetOperand,
    Operand,
    Scratch,
    SharedScratch,
    Weight,
    WeightStore,
    lowering_of,
)
from .objects import compile_objects

LAST = (0, 2, 3, 1)  # channels-last
_MANY = 1 << 21  # numbers


@dataclass(frozen=True)
class Reference:
    """A node to be timed.

    Attributes:
        kind: of `costs.KINDS`. shapes: of the operands; `constants` of them are weights, from the second one on.
        layout: of operands of rank 4 and of the result. dtype: of the operands.
    """

    kind: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    constants: int = 0
    layout: tuple[int, ...] | None = None
    attributes: dict[str, object] = field(default_factory=dict)
    domain: str = ""
    dtype: DType = F32


def _conv(
    kind: str, size: int, ci: int, co: int, kernel: int, group: int = 1, stride: int = 1, images: int = 1
) -> Reference:
    attributes = {"pads": (kernel // 2,) * 4, "group": group, "strides": (stride, stride)}
    return Reference(kind, "Conv", ((images, ci, size, size), (co, ci // group, kernel, kernel)), 1, LAST, attributes)


REFERENCES = (
    _conv("conv", 28, 72, 64, 5), _conv("conv1x1", 14, 256, 256, 1), _conv("conv1x1", 28, 64, 128, 1),
    _conv("winograd", 28, 64, 64, 3, images=2), _conv("grouped", 14, 512, 512, 3, 32),
    _conv("few-channels", 112, 3, 64, 7, stride=2), _conv("depthwise", 28, 96, 96, 3, 96),
    Reference("conv-transpose", "ConvTranspose", ((1, 128, 16, 16), (128, 64, 2, 2)), 1, LAST, {"strides": (2, 2)}),
    Reference("matmul", "MatMul", ((128, 256), (256, 256)), 1),
    Reference("batched-matmul", "MatMul", ((12, 128, 64), (12, 64, 128))),
    Reference("attention", "DotProductAttention", ((1, 12, 128, 64), (1, 12, 64, 128), (1, 12, 128, 64)), 0, None,
              {"scale": 0.125}, "parax"),
    Reference("recurrent", "LSTM", ((16, 8, 128), (1, 512, 128), (1, 512, 128)), 2, None, {"hidden_size": 128}),
    Reference("pool", "AveragePool", ((1, 64, 28, 28),), 0, LAST, {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    Reference("pool", "MaxPool", ((1, 64, 28, 28),), 0, LAST, {"kernel_shape": (3, 3), "strides": (2, 2)}),
    Reference("reduce", "GlobalAveragePool", ((1, 512, 7, 7),), 0, LAST),
    Reference("norm", "LayerNormalization", ((64, 256), (256,)), 1),
    Reference("softmax", "Softmax", ((64, 128),)),
    Reference("elementwise", "Sigmoid", ((16, 1024),)),
)  # fmt: skip


BF16_REFERENCES = (
    Reference("bf16-matmul", "Bf16MatMul", ((128, 768), (768, 768)), 1, domain="parax", dtype=BF16),
    Reference("bf16-conv", "Bf16Conv", ((1, 72, 28, 28), (64, 72, 5, 5)), 1, LAST, {"pads": (2,) * 4}, "parax", BF16),
    Reference("bf16-conv", "Bf16Conv", ((1, 256, 14, 14), (512, 256, 1, 1)), 1, LAST, {}, "parax", BF16),
    Reference("bf16-winograd", "Bf16Conv", ((2, 64, 28, 28), (64, 64, 3, 3)), 1, LAST, {"pads": (1,) * 4}, "parax",
              BF16),
)  # fmt: skip
"""Products of bf16, of targets that have an instruction for them; the last one is counted by the speed of others."""
HALVED_REFERENCES = tuple(Reference(kind, "MatMul", ((4, 128, 768), (768, 1024)), 1) for kind in ("strassen", "matmul"))
"""One product by halves and as it is: how much longer one takes than the other."""
FILTERED = {"winograd", "strassen", "bf16-winograd"}
"""Kinds of what strict arithmetic does without."""
FAR_REFERENCES = (
    Reference("movement", "Concat", ((4, 32, 128, 128), (4, 32, 128, 128)), 0, LAST, {"axis": 1}),
    Reference("matmul", "MatMul", ((1, 4096), (4096, 2048)), 1),
)
"""Kernels that wait for memory: their data are larger than the caches."""


@dataclass
class Bound:
    """A kernel on memory of its own: `run` does it once."""

    kind: str
    node: Node
    run: Callable[[], None]

    @property
    def cost(self) -> Cost:
        """That of its node, on a machine that nobody looked at."""
        return node_cost(self.node, {})

    def cost_on(self, machine: Machine) -> Cost:
        """The same on one whose other kinds of work are known."""
        return node_cost(self.node, {}, Choice(machine=machine))


class References:
    """Kernels compiled to be timed on any number of cores.

    Raises:
        InternalError: LLVM rejects a kernel.
    """

    def __init__(self, target: Target, references: Sequence[Reference] = REFERENCES, jobs: int = 1) -> None:
        """Compile them, in so many processes at once."""
        context = LowerContext(target, (), WeightStore())
        emitters = [ModuleEmitter(target) for _ in range(jobs)]
        names: list[set[str]] = [set() for _ in emitters]
        self._lowered: list[tuple[Reference, Node, list[KernelCall], int]] = []
        for reference in references:
            node, module = _node(reference), min(range(jobs), key=lambda i: len(emitters[i].text()))  # shares of work
            lowering = lowering_of(node.op)
            assert lowering is not None
            context.fp = Fp.DEFAULT if reference.kind in FILTERED else Fp.STRICT  # each kind by its own kernels
            result = lowering(context, node)
            calls = result if isinstance(result, list) else [result]
            for call in calls:
                if call.func.name not in names[module]:
                    names[module].add(call.func.name)
                    emitters[module].export(call.func, f"reference_{call.func.name}")
            self._lowered.append((reference, node, calls, module))
        modules = {str(i): (emitter.text(), target) for i, emitter in enumerate(emitters)}
        objects = compile_objects(modules, 2, jobs, None)
        self._code = [Loaded(objects[str(i)], [f"reference_{name}" for name in sorted(n)]) for i, n in enumerate(names)]
        self._weights = context.weights.to_bytes()

    def lowered(self) -> list[tuple[Reference, list[KernelCall]]]:
        """The kernel calls of each."""
        return [(reference, calls) for reference, _, calls, _ in self._lowered]

    def bound(self) -> list[Bound]:
        """The kernels on memory, weights included, that no other call of this returns."""
        memory = _Memory(self._weights)
        return [Bound(r.kind, n, _runner(calls, self._code[module], memory))
                for r, n, calls, module in self._lowered]  # fmt: skip


def _node(reference: Reference) -> Node:
    graph = Graph(reference.kind)
    values = []
    for i, shape in enumerate(reference.shapes):
        if 1 <= i <= reference.constants:
            values.append(graph.add_constant(_random(math.prod(shape)).reshape(shape).astype(reference.dtype.numpy)))
        else:
            layout = reference.layout if len(shape) == 4 else None
            values.append(graph.add_input(f"x{i}", TensorType(reference.dtype, shape, layout)))
    node = graph.add_node(lookup(reference.domain, reference.op)(**reference.attributes), values)
    node.output.type = node.output.tensor.with_layout(reference.layout)
    graph.set_outputs([node.output])
    return node


class _Memory:
    """Buffers for operands, aligned as the runtime aligns them."""

    def __init__(self, weights: bytes | memoryview) -> None:
        self.weights = _aligned(len(weights))
        self.weights[:] = np.frombuffer(weights, np.uint8)
        self.buffers: dict[Value, np.ndarray] = {}

    def of(self, operand: Operand) -> np.ndarray:
        """The bytes of an operand; random numbers in those of values."""
        if isinstance(operand, Weight):
            return self.weights[operand.offset :]
        if isinstance(operand, OffsetOperand):
            return self.of(operand.value)[operand.offset :]
        if isinstance(operand, (Scratch, SharedScratch, BarrierSlot)):  # working memory of one call
            nbytes = 64 if isinstance(operand, BarrierSlot) else int(operand.nbytes)  # type: ignore[arg-type]
            return _aligned(nbytes)
        if operand not in self.buffers:
            self.buffers[operand] = _aligned(int(operand.tensor.nbytes))  # type: ignore[arg-type]
            kind = operand.tensor.dtype.numpy
            assert kind is not None
            numbers = self.buffers[operand].view(kind)
            numbers[:] = _random(numbers.size) if operand.data is None else physical_array(operand).reshape(-1)
        return self.buffers[operand]


def _random(n: int) -> np.ndarray:
    """Random numbers, or, of more than the caches hold, ones: none that are slow to compute with, nor to make."""
    return np.ones(n, np.float32) if n > _MANY else np.random.default_rng(0).standard_normal(n, np.float32)


def _aligned(nbytes: int) -> np.ndarray:
    """Zeros at a multiple of 64 bytes."""
    whole = np.zeros(nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + nbytes]


def _runner(calls: list[KernelCall], code: Loaded, memory: _Memory) -> Callable[[], None]:
    dims, sync = np.zeros(8, np.int64), np.zeros(256, np.uint8)
    bound = []
    for call in calls:
        held = [*(memory.of(o) for o in call.operands), dims, sync]
        function = code.function(f"reference_{call.func.name}", None, *[ctypes.c_void_p] * len(held), ctypes.c_int64,
                                 ctypes.c_int64)  # fmt: skip
        bound.append((function, [ctypes.c_void_p(array.ctypes.data) for array in held], int(call.work), held))  # type: ignore[arg-type]

    def run() -> None:
        for function, pointers, work, _ in bound:
            function(*pointers, 0, work)

    return run
