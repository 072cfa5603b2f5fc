"""Single kernels as cases to be timed: compiled for a target, with buffers bound to their operands."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from parax.compiler.backend import lower as _register_kernels  # noqa: F401
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.jit import Loaded, compile_object
from parax.compiler.backend.lower import physical_array
from parax.compiler.backend.lowering import (
    BarrierSlot,
    LowerContext,
    Scratch,
    SharedScratch,
    Weight,
    WeightStore,
    lowering_of,
)
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Operator
from parax.compiler.ir.types import DType, TensorType
from parax.compiler.kernel_ir.builder import F32, F32PTR, kernel
from parax.compiler.kernel_ir.loops import KFunc
from parax.compiler.targets.target import Target

from .warm_cold import Case, aligned

FP = Fp.STRICT  # algorithms that kernels may be: sums of the operator's own products alone


def compile_kernels(funcs: list[KFunc], target: Target) -> Loaded:
    """Object code of the functions, exported under their own names."""
    emitter = ModuleEmitter(target)
    names = list({f.name: f for f in funcs})
    for f in {f.name: f for f in funcs}.values():
        emitter.export(f, f"bench_{f.name}")
    return Loaded(compile_object(emitter.text(), target), [f"bench_{n}" for n in names])


def random_like(t: TensorType, rng: np.random.Generator) -> np.ndarray:
    """Values of a normal distribution in a buffer of the type's size."""
    out = aligned(int(t.nbytes))
    kind = t.dtype.numpy
    assert kind is not None
    out.view(kind)[:] = rng.standard_normal(int(t.numel)).astype(kind)
    return out


def one_node(
    op: Operator,
    shapes: list[tuple[int, ...]],
    layouts: dict[int, tuple[int, ...]],
    constants: tuple[int, ...],
    rng: np.random.Generator,
    dtype: DType = F32,
) -> Node:
    """A graph of one operator; operands are constants or inputs of a type, of some layouts."""
    graph = Graph("bench")
    values = []
    for i, shape in enumerate(shapes):
        if i in constants:
            values.append(graph.add_constant(rng.standard_normal(shape).astype(dtype.numpy)))
        else:
            values.append(graph.add_input(f"x{i}", TensorType(dtype, shape, layouts.get(i))))
    node = graph.add_node(op, values)
    graph.set_outputs(node.outputs)
    return node


def node_case(
    name: str,
    target: Target,
    op: str,
    shapes: list[tuple[int, ...]],
    layouts: dict[int, tuple[int, ...]],
    constants: tuple[int, ...],
    out_layout: tuple[int, ...] | None = None,
    matmul_input: DType = F32,
    dtype: DType = F32,
    **attributes: object,
) -> Case:
    """Compile one operator (domain::name outside of ONNX's own) and bind buffers to it."""
    rng = np.random.default_rng(0)
    node = one_node(lookup(*op.rpartition("::")[::2])(**attributes), shapes, layouts, constants, rng, dtype)
    node.outputs[0].type = node.outputs[0].tensor.with_layout(out_layout)
    return bound_case(name, target, node, rng, matmul_input)


def bound_case(name: str, target: Target, node: Node, rng: np.random.Generator, matmul_input: DType = F32) -> Case:
    """Compile a graph's only node and bind buffers to it."""
    ctx = LowerContext(target, (), WeightStore(), fp=FP,
                       matmul_input=matmul_input)  # fmt: skip
    lowering = lowering_of(node.op)
    assert lowering is not None
    start = time.thread_time()
    result = lowering(ctx, node)
    calls = result if isinstance(result, list) else [result]
    code = compile_kernels([c.func for c in calls], target)
    seconds = time.thread_time() - start
    weights = aligned(ctx.weights.nbytes)
    weights[:] = np.frombuffer(ctx.weights.to_bytes(), np.uint8)
    dims, sync = np.zeros(8, np.int64), np.zeros(128, np.uint8)
    buffers: dict[object, np.ndarray] = {}

    def memory(o: object) -> np.ndarray:
        if isinstance(o, Weight):
            return weights[o.offset :]
        if isinstance(o, (Scratch, SharedScratch)):
            return aligned(int(o.nbytes))
        if isinstance(o, BarrierSlot):
            return aligned(64)
        if o not in buffers:
            buffers[o] = random_like(o.type, rng)
            if o.data is not None:
                buffers[o][:] = physical_array(o).reshape(-1).view(np.uint8)
        return buffers[o]

    bound = []
    for call in calls:
        held = [memory(o) for o in call.operands]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(held) + 2), ctypes.c_int64, ctypes.c_int64)
        args = [m.ctypes.data for m in (*held, dims, sync)] + [0, int(call.work)]
        bound.append((kind(code.address(f"bench_{call.func.name}")), args, (held, code)))

    def run() -> None:
        for function, args, _ in bound:
            function(*args)

    return Case(name, run, float(sum(c.flops for c in calls)), float(sum(c.nbytes for c in calls)), seconds)


def peak_case(target: Target, steps: int = 200_000) -> Case:
    """Multiply-adds on registers alone: 12 independent chains."""
    k = kernel("peak", [("x", F32PTR), ("y", F32PTR)])
    lanes = target.f32_lanes
    a = k.load(k["x"], 0, lanes)
    acc = [k.load(k["x"], lanes * (i % 4), lanes) for i in range(12)]
    acc = k.for_(0, k["end"], 1, acc, lambda i, c: [k.fma(a, v, v) if target.has_fma else a * v + v for v in c])
    for i, v in enumerate(acc):
        k.store(k["y"], i * lanes, v)
    code = compile_kernels([k.func], target)
    x, y, dims = aligned(4096), aligned(4096), np.zeros(8, np.int64)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)(
        code.address("bench_peak")
    )

    def run(code: object = code) -> None:
        function(x.ctypes.data, y.ctypes.data, dims.ctypes.data, dims.ctypes.data, 0, steps)

    return Case("fma peak", run, steps * 12.0 * lanes * 2, 0)


def copy_case(nbytes: int = 64 << 20) -> Case:
    """Memory copy of more than the last cache."""
    a, b = aligned(nbytes), aligned(nbytes)
    return Case("copy", lambda: np.copyto(b, a), 0, 2 * nbytes)
